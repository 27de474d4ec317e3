// The dictionary behind report and explain: see words_terms.h.
#include "tools/words_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "tools/words.h"

namespace fragscope::tools {

using report::Counterfactual;
using report::Quantity;
using report::Request;
using report::Verdict;

Term definition_term(Quantity::Definition definition) {
    switch (definition) {
        case Quantity::capacity:
            return {"device capacity", "all memory of the device, as the driver states it"};
        case Quantity::device_free:
            return {"device-free memory", "held by nobody at that moment, as cuMemGetInfo said"};
        case Quantity::address_reserved:
            return {"reserved addresses", "virtual addresses held; there need be no memory behind them"};
        case Quantity::committed:
            return {"committed", "memory promised to the program under the call's contract"};
        case Quantity::resident:
            return {"resident", "memory present on the device at that moment"};
        case Quantity::requested:
            return {"requested", "what the program asked for, before any rounding"};
        case Quantity::charged:
            return {"charged", "what was taken for it, after rounding up and bookkeeping"};
        case Quantity::attributed:
            return {"attributed", "charged, and explained by the recorded calls of this process"};
        case Quantity::unattributed:
            return {"unattributed", "taken on the device, and explained by no recorded call"};
        case Quantity::other_processes:
            return {
                "other recorded processes",
                "charged by the other recorded processes on the same device; one that was not recorded is in "
                "unattributed"};
        case Quantity::cached:
            return {"cached", "kept by a pool or allocator for later, in no live allocation"};
        case Quantity::reclaimable:
            return {"reclaimable",
                    "cached, and given back to the device by a call that the program can make"};
        case Quantity::eligible_free:
            return {"eligible free memory",
                    "unused, and usable for this request: its pool, alignment and placement fit"};
        case Quantity::commitment_headroom:
            return {"commitment headroom", "what may still be promised before a limit is reached"};
        case Quantity::largest_allocatable:
            return {"largest allocatable", "the largest single request that would have been met"};
        case Quantity::live:
            return {"live", "in allocations that the program had not given back"};
        case Quantity::internal_waste:
            return {"internal waste",
                    "charged, but holding nothing that the program asked for (rounding up)"};
        case Quantity::mapped:
            return {"mapped addresses", "virtual addresses with memory behind them"};
        case Quantity::payload_written:
            return {"payload written", "where recorded copies and memsets wrote"};
        case Quantity::pending_free:
            return {"waiting for a stream",
                    "given back by the program, but its stream has not come to that point yet"};
        case Quantity::needed:
            return {"needed", "what the request takes, after rounding up"};
        case Quantity::taken:
            return {"taken", "held by anybody on the device: its capacity less device-free memory"};
        case Quantity::external_span:
            return {"address span", "from the lowest to the highest address seen"};
        case Quantity::nvml_total:
            return {"NVML total", "all memory of the device, as the management library counts it"};
        case Quantity::nvml_used:
            return {"NVML used", "held by anybody on the device, as the management library counts it"};
        case Quantity::nvml_free:
            return {"NVML device-free", "held by nobody, as the management library counts it"};
        case Quantity::nvml_reserved:
            return {"NVML reserved", "kept by the driver for itself, as the management library counts it"};
        case Quantity::nvml_process:
            return {
                "NVML process",
                "held by one process, its contexts and code among it, as the management library counts it"};
        default:
            return {"unnamed quantity", "of a kind that this version of fragscope does not know"};
    }
}

Term evidence_term(Quantity::Evidence evidence) {
    switch (evidence) {
        case Quantity::unknown:
            return {"not known", "nothing in the trace says it"};
        case Quantity::measured:
            return {"measured", "the driver or the call itself said so"};
        case Quantity::derived:
            return {"derived", "arithmetic on measured numbers of the same moment and place"};
        case Quantity::bounded:
            return {"bounded", "the true value lies between two ends that are known"};
        case Quantity::assumed:
            return {"assumed", "rests on a rule about the driver that this trace does not show"};
        default:
            return {"unnamed evidence", "of a kind that this version of fragscope does not know"};
    }
}

Term cause_term(Verdict::Cause cause) {
    switch (cause) {
        case Verdict::capacity_exhaustion:
            return {"capacity exhaustion",
                    "the memory in use left less than the request needs, however it is arranged"};
        case Verdict::commitment_limit:
            return {"commitment limit",
                    "a limit on what may be promised was reached, before the memory itself ran out"};
        case Verdict::virtual_space_fragmentation:
            return {"virtual-space fragmentation",
                    "enough virtual addresses were unused, but no single unbroken range of them was large "
                    "enough"};
        case Verdict::physical_external_fragmentation:
            return {"physical external fragmentation",
                    "enough device memory was unused, but no single unbroken piece of it was large enough"};
        case Verdict::allocator_external_fragmentation:
            return {"allocator-cache fragmentation",
                    "a pool or allocator kept enough memory that nothing used, but not where this request "
                    "could have it"};
        case Verdict::internal_fragmentation:
            return {"internal fragmentation",
                    "rounding up took memory that holds nothing the program asked for; without that, the "
                    "request fits"};
        case Verdict::other_constraint:
            return {"another limit", "something other than the amount of memory refused it"};
        case Verdict::undetermined:
            return {"undetermined", "the trace does not hold enough to tell one cause from another"};
        case Verdict::no_failure:
            return {"no failure", "nothing in this trace failed, so nothing is to be explained"};
        case Verdict::would_fit:
            return {"it would have been met", "by all that this trace knows of that moment, it fits"};
        case Verdict::not_an_allocation:
            return {"not a memory failure", "the call failed for a reason that is not about memory"};
        case Verdict::cause_unspecified:
            return {"not stated", "no cause was worked out"};
        default:
            return {"unnamed cause", "of a kind that this version of fragscope does not know"};
    }
}

std::string cause_words(const Verdict& verdict) {
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 21> kConstraints = {{
        {"cached_by_pool", "memory kept by a stream-ordered pool"},
        {"pending_frees", "memory whose release still waited for its stream"},
        {"address_space", "the virtual address space ran out"},
        {"driver_refused", "the driver refused for a reason of its own"},
        {"kept_by_graphs", "memory kept for allocations of graphs"},
        {"gone_at_once", "something that was gone right after"},
        {"less_than_said", "less was to be had than the driver's own number says"},
        {"pool_maximum", "the pool's own maximum size"},
        {"cached_by_allocator", "memory kept by the framework's own allocator"},
        {"pool_ownership", "memory that a private pool of the framework's allocator keeps to itself"},
        {"stream_ownership", "memory that the framework's allocator keeps for another stream"},
        {"process_fraction", "the share of the device that the framework's allocator may reserve"},
        {"IPC_import_keeps_memory", "memory that is freed, and still mapped by a process that imported it"},
        {"leaked_handles", "physical memory that nothing reaches any more"},
        {"stack_reservation", "the stacks of a kernel, taken when it was launched"},
        {"pinned_host_limit", "the limit on page-locked host memory"},
        {"BAR1_aperture", "the window through which others reach device memory (BAR1)"},
        {"per_allocation_limit", "the limit on the size of one allocation"},
        {"mapping_count", "the number of mappings that there may be"},
        {"handle_type", "a kind of handle that the device does not have"},
        {"size_not_multiple_of_granularity",
         "a size that is no multiple of the granularity; memory was not short"},
    }};
    std::string words(cause_term(verdict.cause()).name);
    if (verdict.constraint().empty()) return words;
    for (const auto& [id, meaning] : kConstraints) {
        if (id == verdict.constraint()) return std::string(meaning);
    }
    std::string constraint = verdict.constraint();
    std::replace(constraint.begin(), constraint.end(), '_', ' ');
    return fmt::format("{} ({})", constraint, words);
}

std::string domain_words(const std::string& domain) {
    if (domain == "physical") return "physical memory";
    return domain == "virtual" ? "virtual addresses" : domain;
}

std::string_view outcome_words(Counterfactual::Outcome outcome) {
    switch (outcome) {
        case Counterfactual::fits:
            return "yes";
        case Counterfactual::does_not_fit:
            return "no";
        case Counterfactual::not_applicable:
            return "does not apply";
        default:
            return "cannot tell";
    }
}

std::string_view contiguity_words(Request::Contiguity contiguity) {
    switch (contiguity) {
        case Request::physical:
            return "one unbroken piece of device memory";
        case Request::virtual_only:
            return "one unbroken range of virtual addresses; the memory behind it may be in pieces";
        case Request::segmented:
            return "may be in pieces; the program keeps track of them";
        default:
            return "not known";
    }
}

std::string mechanism_words(const std::string& mechanism) {
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kWords = {{
        {"framework", "one block from what the framework's allocator keeps"},
        {"vmm_smaller", "a granularity below the device's minimum"},
        {"vmm_recommended", "one physical handle (cuMemCreate) at the recommended granularity"},
        {"direct", "one plain allocation (cuMemAlloc)"},
        {"vmm", "one physical handle (cuMemCreate)"},
        {"reservation", "one address reservation (cuMemAddressReserve)"},
        {"stitched", "several physical handles mapped side by side into one address range"},
        {"pool", "from the stream-ordered pool (cuMemAllocAsync)"},
        {"granularity", "the same with a different granularity"},
        {"segmented", "in several pieces that the program keeps track of"},
        {"compaction", "after moving live blocks together"},
        {"managed", "managed memory (cuMemAllocManaged)"},
        {"host", "page-locked host memory (cuMemHostAlloc)"},
    }};
    for (const auto& [id, words] : kWords) {
        if (id == mechanism) return std::string(words);
    }
    return mechanism;
}

bool is_known(const Quantity& quantity) { return quantity.has_low_bytes() || quantity.has_high_bytes(); }

bool read_alike(std::uint64_t a, std::uint64_t b) {
    const std::uint64_t larger = std::max(a, b);
    const std::uint64_t difference = larger - std::min(a, b);
    return difference != 0 && larger >= 1024 && difference <= larger / 100;
}

namespace {

enum class Form { kHuman, kExact, kBoth };

std::string shown(std::uint64_t bytes, Form form) {
    if (form == Form::kExact) return exact_bytes(bytes);
    return form == Form::kHuman ? human_bytes(bytes) : both_bytes(bytes);
}

Form form_for(const Quantity& quantity, Form wanted) {
    return wanted == Form::kHuman && read_alike(quantity.low_bytes(), quantity.high_bytes()) ? Form::kExact
                                                                                             : wanted;
}

// Addresses have at most 57 bits.
constexpr std::uint64_t kAnyAddressSpace = std::uint64_t{1} << 57;

std::string cell(const Quantity& quantity, Form wanted) {
    const bool low = quantity.has_low_bytes();
    const bool high = quantity.has_high_bytes();
    if (low && quantity.low_bytes() >= kAnyAddressSpace && wanted != Form::kExact)
        return "more than any address space";
    if (low && high) {
        const Form form = form_for(quantity, wanted);
        if (quantity.low_bytes() == quantity.high_bytes()) return shown(quantity.low_bytes(), form);
        return fmt::format("{} to {}", shown(quantity.low_bytes(), form), shown(quantity.high_bytes(), form));
    }
    if (low) return "at least " + shown(quantity.low_bytes(), wanted);
    if (high) return "at most " + shown(quantity.high_bytes(), wanted);
    return "not known";
}

}  // namespace

std::string quantity_cell(const Quantity& quantity) { return cell(quantity, Form::kHuman); }

std::string quantity_exact_cell(const Quantity& quantity) {
    return is_known(quantity) ? cell(quantity, Form::kExact) : "";
}

std::string quantity_words(const Quantity& quantity) {
    if (!is_known(quantity)) {
        return quantity.reason().empty() ? "not known" : "not known: " + quantity.reason();
    }
    if (quantity.has_low_bytes() && quantity.has_high_bytes() &&
        quantity.low_bytes() != quantity.high_bytes() && quantity.low_bytes() < kAnyAddressSpace) {
        const Form form = form_for(quantity, Form::kHuman);
        return fmt::format("between {} and {}", shown(quantity.low_bytes(), form),
                           shown(quantity.high_bytes(), form));
    }
    return cell(quantity, Form::kBoth);
}

bool just_below(const Quantity& quantity, std::uint64_t limit) {
    return quantity.has_high_bytes() && limit != 0 && quantity.high_bytes() == limit - 1;
}

namespace {

// Nothing where the plain form says it better.
std::string below_need(const Quantity& available, const Quantity& needed) {
    const bool exact = available.has_low_bytes() && available.low_bytes() == available.high_bytes();
    if (!needed.has_low_bytes() || exact || !just_below(available, needed.low_bytes())) return {};
    const std::string below = "less than " + human_bytes(needed.low_bytes());
    if (available.low_bytes() == 0) return below;
    return fmt::format("at least {}, but {}", human_bytes(available.low_bytes()), below);
}

// Margins are signed 64-bit numbers: one at their end stands for all that lies beyond it.
std::string margin_words(std::int64_t margin) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (margin == kMost) return "more than +8 EiB";
    if (margin <= -kMost) return "more than 8 EiB too little";
    return human_margin(margin);
}

}  // namespace

std::string available_cell(const Quantity& available, const Quantity& needed) {
    const std::string below = below_need(available, needed);
    return below.empty() ? quantity_cell(available) : below;
}

std::string available_words(const Quantity& available, const Quantity& needed) {
    const std::string below = below_need(available, needed);
    return below.empty() ? quantity_words(available) : below;
}

std::string margin_cell(const Counterfactual& counterfactual) {
    const bool low = counterfactual.has_margin_low();
    const bool high = counterfactual.has_margin_high();
    if (low && high) {
        const std::string from = margin_words(counterfactual.margin_low());
        // One byte below what would fit: the end is the need itself, which is not reached.
        const std::string to =
            counterfactual.margin_high() == -1 ? "below 0 B" : margin_words(counterfactual.margin_high());
        return counterfactual.margin_low() == counterfactual.margin_high()
                   ? from
                   : fmt::format("{} to {}", from, to);
    }
    if (low) return "at least " + margin_words(counterfactual.margin_low());
    if (high) return "at most " + margin_words(counterfactual.margin_high());
    return "not known";
}

namespace {

// The upper end in words; one byte below a whole number of KiB is the end of a request that failed.
std::string upper_end(std::uint64_t bytes) {
    if (bytes != std::numeric_limits<std::uint64_t>::max() && (bytes + 1) % 1024 == 0)
        return "less than " + both_bytes(bytes + 1);
    return "at most " + both_bytes(bytes);
}

}  // namespace

std::string bound_words(const Quantity& largest) {
    const bool low = largest.has_low_bytes();
    const bool high = largest.has_high_bytes();
    if (low && high) {
        if (largest.low_bytes() == largest.high_bytes()) return "exactly " + both_bytes(largest.low_bytes());
        if (largest.low_bytes() == 0) return upper_end(largest.high_bytes()) + "; nothing was seen to fit";
        return fmt::format("at least {}, {}", both_bytes(largest.low_bytes()),
                           upper_end(largest.high_bytes()));
    }
    if (low) return fmt::format("at least {}; no upper end known", both_bytes(largest.low_bytes()));
    if (high) return upper_end(largest.high_bytes()) + "; nothing was seen to fit";
    return "not known";
}

std::string scope_words(const report::Scope& scope) {
    std::string words;
    const auto add = [&words](const std::string& part) {
        if (!words.empty()) words += ", ";
        words += part;
    };
    if (scope.has_process()) add(fmt::format("process {}", scope.process()));
    if (!scope.device().empty()) add(named_device(scope.device()));
    if (!scope.domain().empty()) add(domain_words(scope.domain()));
    if (scope.has_snapshot()) add("at record number " + grouped(scope.snapshot()));
    if (scope.has_time_ns()) add(human_duration(scope.time_ns()) + " after the start");
    return words;
}

std::string shown_version(std::uint32_t version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::vector<std::string> health_warnings(const report::Health& health) {
    std::vector<std::string> warnings(health.warnings().begin(), health.warnings().end());
    if (!warnings.empty()) return warnings;
    if (health.file_cut_off()) {
        warnings.push_back(
            fmt::format("The file was cut off: it can be read up to byte {}, and what came later is missing.",
                        grouped(health.readable_bytes())));
    }
    if (health.records_lost() != 0) {
        warnings.push_back(counted(health.records_lost(), "record was", "records were") +
                           " lost during the recording.");
    }
    if (warnings.empty() && !health.complete()) {
        warnings.emplace_back("The trace is not known to be complete, and does not say what is missing.");
    }
    return warnings;
}

std::string named_device(const std::string& device) {
    return device.starts_with("device ") ? device : "device " + device;
}

}  // namespace fragscope::tools
