#include "analysis/arrays.h"

#include <utility>

namespace fragscope::analysis {

std::optional<Array> Arrays::add(const Event& created) {
    std::optional<Array> old = take(created.object);
    aliases_.erase(created.object);
    Array array;
    array.texel_bytes = created.bytes.value;
    array.device = created.device;
    array.context = {created.address.value};
    array.stack = created.stack;
    array.owns_memory = (wire::array_flags(created.extra) & (kArraySparse | kArrayDeferred)) == 0;
    arrays_.emplace(created.object, std::move(array));
    return old;
}

std::optional<Array> Arrays::take(ObjectId array) {
    const auto found = arrays_.find(array);
    if (found == arrays_.end()) return std::nullopt;
    std::optional<Array> out = std::move(found->second);
    arrays_.erase(found);
    std::erase_if(aliases_, [&](const auto& alias) { return alias.second == array; });
    return out;
}

Array* Arrays::find(ObjectId array_or_alias) {
    const auto alias = aliases_.find(array_or_alias);
    const auto found = arrays_.find(alias == aliases_.end() ? array_or_alias : alias->second);
    return found == arrays_.end() ? nullptr : &found->second;
}

std::vector<Array> Arrays::take_if(const std::function<bool(const Array&)>& owned) {
    std::vector<ObjectId> gone;
    for (const auto& [id, array] : arrays_) {
        if (owned(array)) gone.push_back(id);
    }
    std::vector<Array> out;
    for (const ObjectId id : gone) out.push_back(std::move(*take(id)));
    return out;
}

}  // namespace fragscope::analysis
