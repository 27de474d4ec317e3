#include "tests/soak/match.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <unordered_map>
#include <utility>

namespace fragscope::soak {

namespace {

using analysis::Event;
using wire::Kind;
using O = Operation;

constexpr std::size_t kMostProblems = 20;

// Lines that belong to no call in particular, or tell in detail what another line says.
bool is_aside(Operation operation) {
    switch (operation) {
        case O::k_physical_free:
        case O::k_physical_left:
        case O::k_pool_gone:
        case O::k_pool_grow:
        case O::k_pool_shrink:
        case O::k_pool_free_done:
        case O::k_graph_alloc:
        case O::k_graph_trim:
        case O::k_graph_gone:
        case O::k_graph_create:
            return true;
        default:
            return false;
    }
}

// What the end of a context frees.
bool ends_with_context(Operation operation) {
    return operation == O::k_linear_free || operation == O::k_managed_free || operation == O::k_host_free ||
           operation == O::k_host_unregister || operation == O::k_array_destroy ||
           operation == O::k_mipmap_destroy;
}

enum class Named {
    kAddress,
    kObject,
    kNumber
};  // kNumber: the ledger has a number of its own for the handle
enum class Size { kNone, kBytes, kExtra };

// What a record is in the ledger.
struct Meaning {
    std::vector<Operation> operations;  // one of these; none: the record is no change of memory
    Named named = Named::kAddress;
    Size size = Size::kNone;
};

bool classify(const Event& event, Meaning& out) {
    const bool captured = event.has(wire::kCaptured);
    switch (event.kind) {
        case Kind::kLinearAcquired:
            out = {{O::k_linear_alloc}, Named::kAddress, Size::kBytes};
            return true;
        case Kind::kPitchAcquired:
            out = {{O::k_pitch_alloc}, Named::kAddress, Size::kExtra};
            return true;
        case Kind::kLinearReleased:
            out = {{O::k_linear_free, O::k_managed_free, O::k_pool_free, O::k_graph_free}};
            return true;
        case Kind::kManagedAcquired:
            out = {{O::k_managed_alloc}, Named::kAddress, Size::kBytes};
            return true;
        case Kind::kHostAcquired:
            out = {{O::k_host_alloc}, Named::kAddress, Size::kBytes};
            return true;
        case Kind::kHostReleased:
            out = {{O::k_host_free}};
            return true;
        case Kind::kHostRegistered:
            out = {{O::k_host_register}, Named::kAddress, Size::kBytes};
            return true;
        case Kind::kHostUnregistered:
            out = {{O::k_host_unregister}};
            return true;
        case Kind::kReserved:
            out = {{O::k_reserve}, Named::kAddress, Size::kBytes};
            return true;
        case Kind::kReservationFreed:
            out = {{O::k_unreserve}, Named::kAddress, Size::kBytes};
            return true;
        case Kind::kHandleCreated:
            out = {{O::k_create}, Named::kObject, Size::kBytes};
            return true;
        case Kind::kHandleReleased:
            out = {{O::k_release}, Named::kObject};
            return true;
        case Kind::kHandleRetained:
            out = {{O::k_retain}, Named::kObject};
            return true;
        case Kind::kHandleExported:
            out = {{O::k_export}, Named::kObject};
            return true;
        case Kind::kHandleImported:
            out = {{O::k_import}, Named::kObject};
            return true;
        case Kind::kMapped:
            out = {{O::k_map}, Named::kAddress, Size::kBytes};
            return true;
        case Kind::kUnmapped:
            out = {{O::k_unmap}, Named::kAddress, Size::kBytes};
            return true;
        case Kind::kAccessSet:
            // One line a call, one record a descriptor.
            out = {{O::k_access}, Named::kAddress, Size::kBytes};
            if (event.has(wire::kContinued)) out.operations.clear();
            return true;
        case Kind::kPoolCreated:
            out = {{O::k_pool_create}, Named::kNumber, Size::kBytes};
            return true;
        case Kind::kPoolDestroyed:
            out = {{O::k_pool_destroy}, Named::kNumber};
            return true;
        case Kind::kPoolAcquired:
            out = {{captured ? O::k_graph_node_alloc : O::k_pool_alloc}, Named::kAddress, Size::kBytes};
            return true;
        case Kind::kPoolReleased:
            if (captured)
                out = {{O::k_graph_node_free}};
            else
                out = {{O::k_pool_free_asked, O::k_graph_free}};
            return true;
        case Kind::kContextCreated:
        case Kind::kPrimaryRetained:
            out = {{O::k_context_create}, Named::kNumber};
            return true;
        case Kind::kContextDestroyed:
        case Kind::kPrimaryReleased:
        case Kind::kPrimaryReset:
            out = {{O::k_context_destroy}, Named::kNumber};
            return true;
        case Kind::kArrayCreated:
            // Of a chain of levels the record has the elements, which the driver lays out with room between
            // them.
            if (wire::array_levels(event.extra) == 0)
                out = {{O::k_array_create}, Named::kObject, Size::kBytes};
            else
                out = {{O::k_mipmap_create}, Named::kObject};
            return true;
        case Kind::kArrayReleased:
            out = {{O::k_array_destroy, O::k_mipmap_destroy}, Named::kObject};
            return true;
        case Kind::kGraphAllocNode:
            out = {{O::k_graph_node_alloc}, Named::kAddress, Size::kBytes};
            return true;
        case Kind::kGraphFreeNode:
            out = {{O::k_graph_node_free}};
            return true;
        case Kind::kGraphInstantiated:
            out = {{O::k_graph_instantiate}, Named::kObject};
            return true;
        case Kind::kGraphLaunched:
            out = {{O::k_graph_launch}, Named::kObject};
            return true;
        case Kind::kGraphExecReleased:
            out = {{O::k_graph_exec_destroy}, Named::kObject};
            return true;
        case Kind::kGraphReleased:
            out = {{O::k_graph_destroy}, Named::kObject};
            return true;
        // No change of memory.
        case Kind::kPoolTrimmed:
        case Kind::kPoolAttributeSet:
        case Kind::kPoolBound:
        case Kind::kPoolAccessSet:
        case Kind::kSynchronized:
        case Kind::kDeviceMemory:
        case Kind::kPoolState:
        case Kind::kPoolHigh:
        case Kind::kDevice:
        case Kind::kDeviceGranularity:
        case Kind::kDeviceAttribute:
        case Kind::kDriver:
        case Kind::kHookMissing:
        case Kind::kEnvironmentComplete:
        case Kind::kTouched:
        case Kind::kCalled:
        case Kind::kFailureSnapshotEnd:
        case Kind::kStreamCreated:
        case Kind::kStreamDestroyed:
        case Kind::kGraphMemoryTrimmed:
        case Kind::kGraphMemory:
        case Kind::kSampleEnd:
            out = {};
            return true;
        default:
            return false;
    }
}

struct Matcher {
    const analysis::Trace& trace;
    const std::vector<Line>& lines;
    Result& result;

    void problem(std::string text) {
        if (result.problems.size() < kMostProblems) result.problems.push_back(std::move(text));
    }

    std::string words(const Event& event) const {
        return fmt::format(
            "record {} of process {} ({}, thread {}, {}, address {:#x}, bytes {}, object {:#x})",
            event.sequence.value, event.process.value, trace.processes[event.process.value].pid(),
            event.thread, trace.functions.at(event.function.value), event.address.value, event.bytes.value,
            event.object.value);
    }
    std::string words(std::size_t line) const {
        const Line& l = lines[line];
        return fmt::format("ledger line {} ({}, thread {}, {} {:#x}, {} bytes)", line + 1, l.pid, l.thread,
                           name_of(l.operation), l.object, l.bytes);
    }

    // One thread's lines, and where the next one is.
    struct Side {
        std::vector<std::size_t> lines;
        std::size_t at = 0;
        int open_contexts = 0;
    };
    Operation operation_at(const Side& side, std::size_t at) const { return lines[side.lines[at]].operation; }
    const Line& line_at(const Side& side, std::size_t at) const { return lines[side.lines[at]]; }

    static void add(std::map<Operation, Totals>& totals, Operation operation, std::uint64_t bytes) {
        ++totals[operation].count;
        totals[operation].bytes += bytes;
    }
    void skip_graph_frees(Side& side, std::size_t end, std::uint64_t but_not) {
        for (; side.at < end && operation_at(side, side.at) == O::k_graph_free &&
               line_at(side, side.at).object != but_not;
             ++side.at)
            add(result.detail, O::k_graph_free, 0);
    }

    // Of one process image: the ledger's number of a pool or context, and its handle. A handle that was
    // destroyed may come again.
    std::unordered_map<std::uint64_t, std::uint64_t> handles, numbers;
    bool is_number_of(std::uint64_t number, std::uint64_t handle) {
        return handles.try_emplace(number, handle).first->second == handle &&
               numbers.try_emplace(handle, number).first->second == number;
    }
    void forget_number(std::uint64_t number) {
        const auto known = handles.find(number);
        if (known != handles.end()) numbers.erase(known->second);
    }
    // Primary contexts by device, likewise: the first reference makes one, the last release or a reset ends it. A reset
    // takes no reference back, and the next one makes the context again.
    struct Primary {
        int references = 0;
        bool alive = false;
    };
    std::map<std::int16_t, Primary> primaries;

    bool same_object(const Event& event, const Meaning& meaning, const Line& line) {
        switch (meaning.named) {
            case Named::kAddress:
                return event.address.value == line.object;
            case Named::kObject:
                return event.object.value == line.object;
            case Named::kNumber: {
                // The call names the device, of which there is one primary context.
                if (event.kind == Kind::kPrimaryReleased || event.kind == Kind::kPrimaryReset) return true;
                return is_number_of(line.object, event.object.value);
            }
        }
        return false;
    }

    // What the line says besides: the handle that is mapped, the pool that was taken from, the graph.
    bool same_other(const Event& event, const Line& line) {
        if (line.operation == O::k_map) return event.object.value == line.other;
        if (line.operation == O::k_graph_instantiate) return event.extra == line.other;
        if (event.kind == Kind::kGraphAllocNode || event.kind == Kind::kGraphFreeNode)
            return event.object.value == line.other;
        return line.operation != O::k_pool_alloc || event.object.value == 0 ||
               is_number_of(line.other, event.object.value);
    }

    static bool same_bytes(const Event& event, const Meaning& meaning, std::uint64_t bytes) {
        return meaning.size == Size::kNone ||
               (meaning.size == Size::kBytes ? event.bytes.value : event.extra) == bytes;
    }

    void take(Side& side, std::size_t count_of_lines, const Event& event, std::uint32_t image) {
        for (std::size_t i = 0; i < count_of_lines; ++i)
            result.places[side.lines[side.at + i]] = {image, event.sequence.value};
        side.at += count_of_lines;
    }

    // Both primary contexts were given back, as the program does when its threads have come to their ends.
    bool ended() const {
        return std::all_of(primaries.begin(), primaries.end(),
                           [](const auto& each) { return each.second.references == 0; });
    }
    bool changes_nothing(const Event& event) {
        if (event.kind == Kind::kPrimaryRetained) {
            Primary& primary = primaries[event.device];
            ++primary.references;
            return std::exchange(primary.alive, true);
        }
        if (event.kind == Kind::kPrimaryReleased) {
            Primary& primary = primaries[event.device];
            return --primary.references > 0 || !std::exchange(primary.alive, false);
        }
        return event.kind == Kind::kPrimaryReset && !std::exchange(primaries[event.device].alive, false);
    }

    void match_event(const Event& event, const Meaning& meaning, Side& side, std::uint32_t image) {
        if (changes_nothing(event)) return;
        const auto wanted = [&](Operation operation) {
            return std::count(meaning.operations.begin(), meaning.operations.end(), operation) != 0;
        };
        // The memory of graphs is freed by their launches as well as by calls.
        skip_graph_frees(side, side.lines.size(), wanted(O::k_graph_free) ? event.address.value : 0);
        // What a context's end frees is listed before it.
        std::size_t ahead = 0;
        if (wanted(O::k_context_destroy))
            while (side.at + ahead < side.lines.size() &&
                   ends_with_context(operation_at(side, side.at + ahead)))
                ++ahead;
        if (side.at + ahead >= side.lines.size() || !wanted(operation_at(side, side.at + ahead))) {
            return problem(words(event) + " has no line in the ledger; the next there is " +
                           (side.at < side.lines.size() ? words(side.lines[side.at]) : "none"));
        }
        const std::size_t main = side.lines[side.at + ahead];
        const Line& line = lines[main];
        std::uint64_t bytes = line.bytes;
        std::size_t more = 0;
        if (line.operation == O::k_unmap) {  // a line for each mapping in the range
            while (bytes < event.bytes.value && side.at + more + 1 < side.lines.size() &&
                   operation_at(side, side.at + more + 1) == O::k_unmap &&
                   line_at(side, side.at + more + 1).object == line.object + bytes)
                bytes += line_at(side, side.at + ++more).bytes;
        }
        if (!same_object(event, meaning, line) || !same_bytes(event, meaning, bytes) ||
            !same_other(event, line))
            problem(words(event) + " is not what happened: " + words(main));
        if (event.device != analysis::kNoDevice && line.device >= 0 && event.device != line.device)
            problem(words(event) +
                    fmt::format(" is of device {}, and happened on {}: ", event.device, line.device) +
                    words(main));
        if (line.operation == O::k_context_destroy || line.operation == O::k_pool_destroy)
            forget_number(line.object);
        if (line.operation == O::k_context_create) ++side.open_contexts;
        if (line.operation == O::k_context_destroy) --side.open_contexts;
        ++result.records;
        add(result.recorded, line.operation,
            meaning.size == Size::kNone    ? 0
            : meaning.size == Size::kBytes ? event.bytes.value
                                           : event.extra);
        for (std::size_t i = 0; i < ahead; ++i) add(result.detail, operation_at(side, side.at + i), 0);
        for (std::size_t i = 0; i < more; ++i) add(result.detail, O::k_unmap, 0);
        take(side, ahead + more + 1, event, image);
    }

    // How many of the thread's next lines one single call can have written; 0: more than one call did.
    std::size_t lines_of_one_call(const Side& side, std::size_t end) const {
        std::size_t at = side.at;
        const auto left = [&] { return at < end; };
        if (!left()) return 0;
        if (operation_at(side, at) == O::k_unmap) {
            std::uint64_t next = line_at(side, at).object;
            while (left() && operation_at(side, at) == O::k_unmap && line_at(side, at).object == next)
                next += line_at(side, at++).bytes;
        } else if (ends_with_context(operation_at(side, at)) && side.open_contexts > 0) {
            while (left() && ends_with_context(operation_at(side, at))) ++at;
            if (left() && operation_at(side, at) == O::k_context_destroy) ++at;
        } else {
            ++at;
        }
        return at - side.at;
    }

    // The image ended. `end`: where the thread's lines of the next image begin.
    void end_thread(Side& side, std::size_t end, bool whole) {
        skip_graph_frees(side, end, 0);
        const std::size_t one = lines_of_one_call(side, end);
        if (side.at + one != end || (whole && one != 0))
            problem(fmt::format("{} has no record{}", words(side.lines[side.at + (whole ? 0 : one)]),
                                whole ? ", and its process came to its end" : ""));
        for (; side.at < end; ++side.at)
            add(result.under_way, operation_at(side, side.at), line_at(side, side.at).bytes);
        side.open_contexts = 0;
    }

    void match_process_id(std::int32_t pid, const std::vector<std::uint32_t>& images,
                          std::map<std::int32_t, Side>& sides) {
        bool last_whole = false;
        for (std::uint32_t image = 0; image < images.size(); ++image) {
            numbers.clear();
            handles.clear();
            primaries.clear();
            const analysis::EventLog& events = trace.events[images[image]];
            bool any = false, whole = false;
            std::set<std::int32_t> threads;
            for (const Event& event : events) {
                if (event.has(wire::kByShim)) continue;
                Meaning meaning;
                if (!classify(event, meaning)) {
                    problem(words(event) + fmt::format(" is of a kind ({}) that the check does not know",
                                                       static_cast<int>(event.kind)));
                    continue;
                }
                if (event.failed()) {
                    ++result.failures;
                    continue;
                }
                if (meaning.operations.empty()) continue;
                Side& side = sides[event.thread];
                // The first of an image: what the last one left under way in a thread of this number comes
                // before it.
                if (!any && image > 0 && event.thread == pid) {
                    std::size_t start = side.at;
                    while (start < side.lines.size() && operation_at(side, start) != O::k_context_create)
                        ++start;
                    end_thread(side, start, false);
                }
                any = true;
                threads.insert(event.thread);
                match_event(event, meaning, side, image);
                whole = event.kind == Kind::kPrimaryReleased && ended();
            }
            if (!any) continue;
            ++result.images;
            result.threads += threads.size();
            if (whole) ++result.whole_images;
            last_whole = whole;
            for (const std::int32_t thread : threads)
                if (thread != pid) end_thread(sides[thread], sides[thread].lines.size(), whole);
        }
        // What is left is of threads that came to no record, and of the process's own number.
        for (auto& [thread, side] : sides)
            end_thread(side, side.lines.size(), last_whole && (thread == pid || images.size() == 1));
    }
};

enum class Space { kNone, kAddress, kMapping, kHandle, kObject, kContext, kPool };

Space space_of(Operation operation) {
    switch (operation) {
        case O::k_map:
        case O::k_unmap:
        case O::k_access:
            return Space::kMapping;
        case O::k_create:
        case O::k_release:
        case O::k_retain:
        case O::k_export:
        case O::k_import:
            return Space::kHandle;
        case O::k_array_create:
        case O::k_array_destroy:
        case O::k_mipmap_create:
        case O::k_mipmap_destroy:
        case O::k_graph_instantiate:
        case O::k_graph_launch:
        case O::k_graph_exec_destroy:
        case O::k_graph_destroy:
            return Space::kObject;
        case O::k_context_create:
        case O::k_context_destroy:
            return Space::kContext;
        case O::k_pool_create:
        case O::k_pool_destroy:
            return Space::kPool;
        default:
            return is_aside(operation) ? Space::kNone : Space::kAddress;
    }
}

// The order of what happened to one address or handle, by whatever threads.
void check_order(const std::vector<Line>& lines, Matcher& matcher) {
    std::map<std::tuple<std::int32_t, Space, std::uint64_t>, std::size_t> last;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const Place& place = matcher.result.places[i];
        const Space space = space_of(lines[i].operation);
        if (place.sequence == 0 || space == Space::kNone) continue;
        const auto [before, fresh] = last.try_emplace({lines[i].pid, space, lines[i].object}, i);
        if (fresh) continue;
        if (place < matcher.result.places[before->second])
            matcher.problem(matcher.words(i) + " has its record before that of " +
                            matcher.words(before->second));
        before->second = i;
    }
}

}  // namespace

Result match(const analysis::Trace& trace, const std::vector<Line>& lines) {
    Result result;
    result.places.resize(lines.size());
    Matcher matcher{trace, lines, result, {}};
    std::map<std::int32_t, std::vector<std::uint32_t>> images;
    for (std::uint32_t i = 0; i < trace.processes.size(); ++i)
        images[static_cast<std::int32_t>(trace.processes[i].pid())].push_back(i);
    std::map<std::int32_t, std::map<std::int32_t, Matcher::Side>> sides;
    for (std::size_t i = 0; i < lines.size(); ++i)
        if (!is_aside(lines[i].operation)) sides[lines[i].pid][lines[i].thread].lines.push_back(i);
    for (auto& [pid, threads] : sides)
        if (!images.contains(pid)) matcher.problem(fmt::format("process {} is in the ledger only", pid));
    for (const auto& [pid, indexes] : images) matcher.match_process_id(pid, indexes, sides[pid]);
    check_order(lines, matcher);
    return result;
}

}  // namespace fragscope::soak
