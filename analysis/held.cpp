#include "analysis/held.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>

#include "analysis/live_sites.h"
#include "analysis/quantity.h"

namespace fragscope::analysis {

namespace {

struct Sum {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t not_told = 0;

    void add(const trace::Held& held) {
        const auto plus = [](std::uint64_t a, std::uint64_t b) {
            return a + b < a ? std::numeric_limits<std::uint64_t>::max() : a + b;
        };
        count = plus(count, held.count());
        bytes = plus(bytes, held.bytes());
        not_told = plus(not_told, std::min(held.sizes_not_told(), held.count()));
    }
};

struct Group {
    Sum all;
    std::unordered_map<std::uint32_t, Sum> by_stack;
};

using Key = std::tuple<std::uint32_t, std::string, std::string>;  // process, what, device

// Where some sizes are not told, there is no upper end.
report::Quantity quantity(const Sum& sum, const Scope& scope) {
    if (sum.not_told == 0)
        return Quantity::derived(report::Quantity::live, sum.bytes, scope, "sum over the profile").message();
    if (sum.not_told == sum.count)
        return Quantity::unknown(report::Quantity::live, scope, "the profile tells no size").message();
    return Quantity::bounded(report::Quantity::live, {sum.bytes, std::nullopt}, scope,
                             "the profile does not tell every size")
        .message();
}

report::HeldAtMoment message_of(const Trace& trace, const Key& key, const Group& group,
                                const StackWords& words) {
    const auto& [process, what, device] = key;
    report::HeldAtMoment out;
    Scope scope;
    scope.process = process;
    scope.device = device;
    out.set_process(process);
    out.set_what(what);
    out.set_device(device);
    out.set_count(group.all.count);
    out.set_sizes_not_told(group.all.not_told);
    *out.mutable_bytes() = quantity(group.all, scope);
    std::vector<std::pair<std::uint32_t, Sum>> order(group.by_stack.begin(), group.by_stack.end());
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
        return a.second.bytes != b.second.bytes ? a.second.bytes > b.second.bytes : a.first < b.first;
    });
    Sum others;
    for (std::size_t i = 0; i < order.size(); ++i) {
        const auto& [stack, sum] = order[i];
        if (i >= kSitesShown) {
            others.count += sum.count;
            others.bytes += sum.bytes;
            others.not_told += sum.not_told;
            continue;
        }
        report::CallSite& site = *out.add_sites();
        site.set_process(process);
        site.set_device(device);
        site.set_count(sum.count);
        *site.mutable_bytes() = quantity(sum, scope);
        if (auto called = call_stack_of(trace, {process}, stack, words))
            *site.mutable_stack() = std::move(*called);
    }
    out.set_other_sites(order.size() - std::min(order.size(), kSitesShown));
    if (out.other_sites() != 0) *out.mutable_in_other_sites() = quantity(others, scope);
    return out;
}

std::map<Key, Group> groups_of(const Trace& trace) {
    std::map<Key, Group> out;
    for (std::uint32_t process = 0; process < trace.processes.size(); ++process) {
        for (const trace::Held& held : trace.processes[process].held()) {
            Group& group = out[{process, held.what(), held.device()}];
            group.all.add(held);
            group.by_stack[held.stack()].add(held);
        }
    }
    return out;
}

}  // namespace

std::vector<report::HeldAtMoment> held_in(const Trace& trace, const StackWords& words) {
    std::vector<report::HeldAtMoment> out;
    for (const auto& [key, group] : groups_of(trace)) out.push_back(message_of(trace, key, group, words));
    std::stable_sort(out.begin(), out.end(),
                     [](const report::HeldAtMoment& a, const report::HeldAtMoment& b) {
                         return a.bytes().low_bytes() > b.bytes().low_bytes();
                     });
    return out;
}

std::string held_instead_of_failure(const Trace& trace) {
    Sum all;
    for (const auto& [key, group] : groups_of(trace)) {
        all.count += group.all.count;
        all.bytes += group.all.bytes;
        all.not_told += group.all.not_told;
    }
    if (all.count == 0) return "";
    return fmt::format(
        "A profile holds no calls, so none that failed: it says what was alive when it was taken, {} in {} "
        "allocations{}. "
        "`report` shows from where. A failure is in the program's own message (`explain` takes it as a "
        "file), or in a "
        "recording of the run that fails.",
        in_words(all.bytes), all.count,
        all.not_told == 0 ? "" : fmt::format(", the sizes of {} of which it does not tell", all.not_told));
}

}  // namespace fragscope::analysis
