// Arrays in the books: what they own, and the physical memory that is mapped behind sparse and deferred ones.
#include <algorithm>

#include "analysis/state.h"

namespace fragscope::analysis {

void ProcessState::create_array(const Event& event) {
    if (const auto old = arrays_.add(event)) {
        // The driver gives no live handle twice: the release of the older one is missing.
        ++contradictions_.overlapping_acquisitions;
        forget_array(*old);
    }
    const Array& array = arrays_.all().at(event.object);
    if (!array.owns_memory) return;
    DeviceTotals& totals = totals_[array.device];
    totals.array_texels += array.texel_bytes;
    ++totals.array_count;
}

void ProcessState::release_array(const Event& event) {
    if (const auto array = arrays_.take(event.object)) {
        forget_array(*array);
    } else if (!arrays_.forget_alias(event.object)) {
        ++contradictions_.unknown_releases;
    }
}

// The books drop an array that was taken from arrays_.
void ProcessState::forget_array(const Array& array) {
    if (array.owns_memory) {
        DeviceTotals& totals = totals_[array.device];
        totals.array_texels -= array.texel_bytes;
        --totals.array_count;
    }
    for (const PhysicalId id : array.behind) {
        Physical* physical = physical_.find(id);
        if (physical == nullptr) continue;
        --(array.partly_unmapped ? physical->maybe_held : physical->arrays);
        drop_if_unused(id, *physical);
    }
}

void ProcessState::map_array(const Event& event) {
    Array* array = arrays_.find({event.address.value});
    if (event.object.value == 0) {
        if (array == nullptr || array->partly_unmapped) return;
        // Which memory lay behind the part, the call does not say.
        array->partly_unmapped = true;
        for (const PhysicalId id : array->behind) {
            Physical* physical = physical_.find(id);
            if (physical == nullptr) continue;
            --physical->arrays;
            ++physical->maybe_held;
            drop_if_unused(id, *physical);
        }
        return;
    }
    const HandleTable::Named* named = handles_.find(event.object);
    Physical* physical = named == nullptr ? nullptr : physical_.find(named->physical);
    if (physical == nullptr) {
        ++contradictions_.unknown_handles;
        return;
    }
    if (array == nullptr) {
        // An array of before the recording: it may hold the memory for as long as it likes.
        ++physical->maybe_held;
        return;
    }
    if (std::find(array->behind.begin(), array->behind.end(), named->physical) != array->behind.end()) return;
    array->behind.push_back(named->physical);
    ++(array->partly_unmapped ? physical->maybe_held : physical->arrays);
}

}  // namespace fragscope::analysis
