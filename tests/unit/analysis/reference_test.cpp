// The replay of a process against a reference model that is slow and obviously right: address space as one
// cell for each byte of a small space, physical memory as a list, and every layer worked out anew from them
// after each operation. Half a million random operations; the driver's rules are kept, so nothing may be
// contradicted.
//
// The model's rules come from the documentation of the calls in cuda.h: physical memory lives while a handle
// reference or a mapping is left; unmapping takes the access rights with it; a stream-ordered free waits for
// its stream until a synchronisation, or until its pool gives the address out again.
#include <doctest/doctest.h>

#include <cstdlib>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/state.h"

using namespace fragscope;
using namespace fragscope::analysis;
using wire::Kind;

namespace {

// A thousand operations each; a build without optimisation takes ten times as long for one.
#ifdef __OPTIMIZE__
constexpr unsigned kSeeds = 500;
#else
constexpr unsigned kSeeds = 60;
#endif

// Of a thousand operations each. FRAGSCOPE_SEEDS asks for more of them: 4000 make millions of operations.
unsigned seeds() {
    const char* said = std::getenv("FRAGSCOPE_SEEDS");
    return said == nullptr ? kSeeds : static_cast<unsigned>(std::strtoul(said, nullptr, 10));
}
constexpr std::size_t kSpace = 48;  // cells
constexpr std::uint64_t kBase = 0x1000;
constexpr std::uint64_t kDevices = 2;
constexpr std::size_t kPools = 2;
constexpr std::uint64_t kStreams = 3;

struct Memory {  // physical
    std::size_t bytes = 0;
    bool imported = false;
    int device = 0;
    std::uint32_t references = 0;
};

// What a cell of the address space is.
struct Cell {
    int reservation = 0;  // its number; 0: none
    int memory = 0;       // number of the physical memory that is mapped here; 0: none
    std::size_t offset = 0;
    std::array<int, kDevices> access{};  // 0: none was granted
    int linear = 0;                      // number of the block; 0: none
    int pool_block = 0;
    int pending = 0;
};

struct Block {
    std::size_t begin = 0, bytes = 0;
    int device = 0;
    std::uint64_t context = 0, pool = 0, stream = 0;
};

class Model {
  public:
    std::array<Cell, kSpace> cells;
    std::map<int, Memory> memory;
    std::map<std::uint64_t, int> handles;  // with the number of the memory
    std::map<int, Block> linear, pool_blocks, pending;
    int next = 1;

    template <typename What>
    bool is_clear(std::size_t begin, std::size_t bytes, What&& what) const {
        for (std::size_t i = begin; i < begin + bytes; ++i) {
            if (what(cells[i])) return false;
        }
        return true;
    }
    // Everything of which neither a handle nor a cell tells is gone.
    void drop_unused() {
        std::set<int> mapped;
        for (const Cell& cell : cells) mapped.insert(cell.memory);
        std::erase_if(memory, [&](const auto& one) {
            return one.second.references == 0 && !mapped.contains(one.first);
        });
    }
};

Event event_of(Kind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t object,
               std::uint64_t extra, int device = 0) {
    Event event;
    event.kind = kind;
    event.address = {address};
    event.bytes = {bytes};
    event.object = {object};
    event.extra = extra;
    event.device = static_cast<std::int16_t>(device);
    event.thread = 1;
    return event;
}

// How many things of each layer were there to be compared.
struct Compared {
    std::size_t reserved = 0;
    std::size_t mapped = 0;
    std::size_t memory = 0;
    std::size_t linear = 0;
    std::size_t pool_blocks = 0;
    std::size_t pending = 0;
};

class Run {
  public:
    explicit Run(unsigned seed) : seed_(seed), random_(seed), state_({{0, 4}, {1, 4}}) {}

    void step() {
        ++operations_;
        switch (random_() % 16) {
            case 0:
                return reserve();
            case 1:
                return unreserve();
            case 2:
            case 3:
                return create();
            case 4:
                return release();
            case 5:
                return retain();
            case 6:
            case 7:
                return map();
            case 8:
                return unmap();
            case 9:
                return access();
            case 10:
                return linear();
            case 11:
                return free_linear();
            case 12:
                return take_from_pool();
            case 13:
                return give_to_pool();
            case 14:
                return random_() % 8 == 0 ? destroy_context() : synchronize();
            default:
                return import();
        }
    }

    // Every layer, cell by cell. Adds to `compared`.
    void check(Compared& compared) const {
        const auto cell = [](std::uint64_t address) { return static_cast<std::size_t>(address - kBase); };

        std::size_t reserved = 0;
        state_.reservations().for_each([&](const Range& range, const Reservation&) {
            for (std::uint64_t at = range.begin; at < range.end; ++at) {
                need(model_.cells[cell(at)].reservation != 0, "a reserved byte");
                need(model_.cells[cell(at)].reservation == model_.cells[cell(range.begin)].reservation,
                     "one reservation in an extent");
                ++reserved;
            }
        });
        std::size_t mapped = 0;
        std::map<PhysicalId, int> numbers;
        state_.mappings().for_each([&](const Range& range, const Mapping& mapping) {
            for (std::uint64_t at = range.begin; at < range.end; ++at) {
                const Cell& here = model_.cells[cell(at)];
                need(here.memory != 0, "a mapped byte");
                const auto [known, fresh] = numbers.emplace(mapping.physical, here.memory);
                need(known->second == here.memory, "the memory behind a byte");
                need(at - mapping.begin + mapping.offset == here.offset, "the offset in the memory");
                for (std::uint64_t device = 0; device < kDevices; ++device) {
                    const auto granted = state_.access(location(device), {at});
                    need(granted.value_or(0) == static_cast<std::uint64_t>(here.access[device]),
                         "the access to a byte");
                }
                ++mapped;
            }
        });
        std::size_t expected_reserved = 0, expected_mapped = 0;
        for (const Cell& here : model_.cells) {
            if (here.reservation != 0) ++expected_reserved;
            if (here.memory != 0) ++expected_mapped;
        }
        need(reserved == expected_reserved, "all reserved bytes");
        need(mapped == expected_mapped, "all mapped bytes");

        check_physical();
        check_blocks(model_.linear, state_.linear());
        check_blocks(model_.pool_blocks, state_.pool_blocks());
        check_blocks(model_.pending, state_.pending_frees());
        check_totals();
        need(state_.contradictions()() == 0, "no contradiction");
        compared.reserved += reserved;
        compared.mapped += mapped;
        compared.memory += model_.memory.size();
        compared.linear += model_.linear.size();
        compared.pool_blocks += model_.pool_blocks.size();
        compared.pending += model_.pending.size();
    }

  private:
    void need(bool right, const char* what) const {
        if (!right) FAIL("seed " << seed_ << ", operation " << operations_ << ": " << std::string(what));
    }
    static std::uint64_t location(std::uint64_t device) {
        return wire::pack_location(1, static_cast<std::int32_t>(device), 0);
    }
    void apply(const Event& event) { state_.apply(event); }
    std::size_t some(std::size_t most) { return 1 + random_() % most; }

    template <typename Map>
    typename Map::iterator any(Map& map) {
        auto at = map.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(random_() % map.size()));
        return at;
    }
    // Where so many cells are not taken; nothing: nowhere, this time.
    template <typename What>
    std::optional<std::size_t> place(std::size_t bytes, What&& taken) {
        for (int attempt = 0; attempt < 4; ++attempt) {
            const std::size_t begin = random_() % (kSpace - bytes + 1);
            if (model_.is_clear(begin, bytes, taken)) return begin;
        }
        return std::nullopt;
    }

    void reserve() {
        const std::size_t bytes = some(16);
        const auto begin = place(bytes, [](const Cell& cell) {
            return cell.reservation != 0 || cell.linear != 0 || cell.pool_block != 0 || cell.pending != 0;
        });
        if (!begin) return;
        const int number = model_.next++;
        for (std::size_t i = *begin; i < *begin + bytes; ++i) model_.cells[i].reservation = number;
        apply(event_of(Kind::kReserved, kBase + *begin, bytes, 0, 0));
    }

    void unreserve() {
        const std::size_t at = random_() % kSpace;
        const int number = model_.cells[at].reservation;
        if (number == 0) return;
        std::size_t begin = at, end = at;
        while (begin > 0 && model_.cells[begin - 1].reservation == number) --begin;
        while (end < kSpace && model_.cells[end].reservation == number) ++end;
        // The driver refuses to free what is mapped.
        if (!model_.is_clear(begin, end - begin, [](const Cell& cell) { return cell.memory != 0; })) return;
        for (std::size_t i = begin; i < end; ++i) model_.cells[i].reservation = 0;
        apply(event_of(Kind::kReservationFreed, kBase + begin, end - begin, 0, 0));
    }

    std::uint64_t unused_handle() {
        std::uint64_t handle = 1;
        while (model_.handles.contains(handle)) ++handle;  // the driver uses its values again
        return handle;
    }

    void create() {
        if (model_.handles.size() > 6) return;
        const std::uint64_t handle = unused_handle();
        Memory made{some(8), false, static_cast<int>(random_() % kDevices), 1};
        apply(event_of(Kind::kHandleCreated, 0, made.bytes, handle,
                       location(static_cast<std::uint64_t>(made.device)), made.device));
        model_.handles[handle] = model_.next;
        model_.memory[model_.next++] = made;
    }

    void import() {
        if (model_.handles.size() > 6) return;
        const std::uint64_t handle = unused_handle();
        model_.handles[handle] = model_.next;
        model_.memory[model_.next++] = {some(8), true, 0, 1};
        apply(event_of(Kind::kHandleImported, 0, 0, handle, 1, kNoDevice));
    }

    // One name has as many references as it was given; the model counts them together.
    void release() {
        if (model_.handles.empty()) return;
        const auto handle = any(model_.handles);
        apply(event_of(Kind::kHandleReleased, 0, 0, handle->first, 0));
        --model_.memory.at(handle->second).references;
        if (--names_[handle->first] < 0) {  // the creation's own
            names_.erase(handle->first);
            model_.handles.erase(handle);
        }
        model_.drop_unused();
    }

    // By an address that is mapped: under the name that it has, or a new one.
    void retain() {
        const std::size_t at = random_() % kSpace;
        const int number = model_.cells[at].memory;
        if (number == 0) return;
        std::uint64_t handle = 0;
        for (const auto& [name, memory] : model_.handles) {
            if (memory == number) handle = name;
        }
        if (handle != 0) {
            ++names_[handle];
        } else {
            handle = unused_handle();
            model_.handles[handle] = number;
        }
        ++model_.memory.at(number).references;
        apply(event_of(Kind::kHandleRetained, kBase + at, 0, handle, 0));
    }

    void map() {
        if (model_.handles.empty()) return;
        const auto handle = any(model_.handles);
        const Memory& memory = model_.memory.at(handle->second);
        const std::size_t bytes = some(memory.bytes);
        const std::size_t offset = random_() % (memory.bytes - bytes + 1);
        const auto begin =
            place(bytes, [](const Cell& cell) { return cell.reservation == 0 || cell.memory != 0; });
        if (!begin) return;
        for (std::size_t i = 0; i < bytes; ++i) {
            model_.cells[*begin + i].memory = handle->second;
            model_.cells[*begin + i].offset = offset + i;
        }
        apply(event_of(Kind::kMapped, kBase + *begin, bytes, handle->first, offset));
    }

    // Any part of the space, mappings and gaps alike: rests of cut mappings keep their offsets.
    void unmap() {
        const std::size_t bytes = some(12);
        const std::size_t begin = random_() % (kSpace - bytes + 1);
        if (model_.is_clear(begin, bytes, [](const Cell& cell) { return cell.memory != 0; })) return;
        for (std::size_t i = begin; i < begin + bytes; ++i) {
            model_.cells[i].memory = 0;
            model_.cells[i].access = {};
        }
        model_.drop_unused();
        apply(event_of(Kind::kUnmapped, kBase + begin, bytes, 0, 0));
    }

    void access() {
        const std::size_t bytes = some(12);
        const std::size_t begin = random_() % (kSpace - bytes + 1);
        // The driver grants access to mapped memory only.
        if (!model_.is_clear(begin, bytes, [](const Cell& cell) { return cell.memory == 0; })) return;
        const std::uint64_t device = random_() % kDevices;
        const int rights = std::array{0, 1, 3}[random_() % 3];
        for (std::size_t i = begin; i < begin + bytes; ++i) model_.cells[i].access[device] = rights;
        apply(event_of(Kind::kAccessSet, kBase + begin, bytes, location(device),
                       static_cast<std::uint64_t>(rights), static_cast<int>(device)));
    }

    std::optional<std::size_t> place_of_block(std::size_t bytes) {
        return place(bytes, [](const Cell& cell) {
            return cell.reservation != 0 || cell.linear != 0 || cell.pool_block != 0;
        });
    }

    void linear() {
        Block block;
        block.bytes = some(10);
        const auto begin = place(block.bytes, [](const Cell& cell) {
            return cell.reservation != 0 || cell.linear != 0 || cell.pool_block != 0 || cell.pending != 0;
        });
        if (!begin) return;
        block.begin = *begin;
        block.device = static_cast<int>(random_() % kDevices);
        block.context = 0xc0 + random_() % 2;
        apply(event_of(Kind::kLinearAcquired, kBase + *begin, block.bytes, block.context, 0, block.device));
        for (std::size_t i = *begin; i < *begin + block.bytes; ++i) model_.cells[i].linear = model_.next;
        model_.linear[model_.next++] = block;
    }

    void forget_linear(std::map<int, Block>::iterator at) {
        for (Cell& cell : model_.cells) {
            if (cell.linear == at->first) cell.linear = 0;
        }
        model_.linear.erase(at);
    }

    void free_linear() {
        if (model_.linear.empty()) return;
        const auto at = any(model_.linear);
        apply(event_of(Kind::kLinearReleased, kBase + at->second.begin, 0, 0, 0));
        forget_linear(at);
    }

    void destroy_context() {
        const std::uint64_t context = 0xc0 + random_() % 2;
        apply(event_of(Kind::kContextDestroyed, 0, 0, context, 0));
        for (auto at = model_.linear.begin(); at != model_.linear.end();) {
            const auto here = at++;
            if (here->second.context == context) forget_linear(here);
        }
    }

    void forget_pending(int number) {
        for (Cell& cell : model_.cells) {
            if (cell.pending == number) cell.pending = 0;
        }
        model_.pending.erase(number);
    }

    void take_from_pool() {
        Block block;
        block.bytes = some(10);
        const auto begin = place_of_block(block.bytes);
        if (!begin) return;
        block.begin = *begin;
        block.device = 0;
        block.pool = 0xb00 + random_() % kPools;
        block.stream = 10 + random_() % kStreams;
        apply(event_of(Kind::kPoolAcquired, kBase + *begin, block.bytes, block.pool, block.stream));
        for (std::size_t i = *begin; i < *begin + block.bytes; ++i) {
            if (model_.cells[i].pending != 0) forget_pending(model_.cells[i].pending);
        }
        for (std::size_t i = *begin; i < *begin + block.bytes; ++i) model_.cells[i].pool_block = model_.next;
        model_.pool_blocks[model_.next++] = block;
    }

    void give_to_pool() {
        if (model_.pool_blocks.empty()) return;
        const auto at = any(model_.pool_blocks);
        Block block = at->second;
        const bool at_once = random_() % 3 == 0;  // cuMemFree
        block.stream = 10 + random_() % kStreams;
        apply(event_of(at_once ? Kind::kLinearReleased : Kind::kPoolReleased, kBase + block.begin, 0, 0,
                       at_once ? 0 : block.stream));
        for (Cell& cell : model_.cells) {
            if (cell.pool_block != at->first) continue;
            cell.pool_block = 0;
            if (!at_once) cell.pending = at->first;
        }
        if (!at_once) model_.pending[at->first] = block;
        model_.pool_blocks.erase(at);
    }

    void synchronize() {
        const std::uint64_t stream = random_() % 4 == 0 ? 0 : 10 + random_() % kStreams;
        apply(event_of(Kind::kSynchronized, 0, 0, stream, 0xc0));
        std::vector<int> done;
        for (const auto& [number, block] : model_.pending) {
            if (stream == 0 || block.stream == stream) done.push_back(number);
        }
        for (const int number : done) forget_pending(number);
    }

    void check_physical() const {
        std::set<int> mapped;
        std::map<int, std::uint64_t> cells_of;
        for (const Cell& cell : model_.cells) {
            if (cell.memory == 0) continue;
            mapped.insert(cell.memory);
            ++cells_of[cell.memory];
        }
        std::map<std::tuple<std::size_t, bool, std::uint32_t, std::uint64_t>, int> expected, found;
        std::uint64_t imported = 0;
        for (const auto& [number, one] : model_.memory) {
            const auto here = cells_of.find(number);
            ++expected[{one.imported ? 0 : one.bytes, one.imported, one.references,
                        here == cells_of.end() ? 0 : here->second}];
            if (one.imported) ++imported;
        }
        state_.physical().for_each([&](const Physical& one) {
            ++found[{one.bytes, one.imported, one.references, one.mapped_bytes}];
        });
        need(found == expected, "physical memory: bytes, references, mapped bytes");
        need(state_.physical().size() == model_.memory.size(), "how much physical memory there is");
        need(state_.imported_handles() == imported, "how much of it is imported");
        need(state_.handles().size() == model_.handles.size(), "how many names");
        state_.handles().for_each([&](const HandleTable::Named& named) {
            const auto known = model_.handles.find(named.handle.value);
            need(known != model_.handles.end(), "a name");
            const auto more = names_.find(known->first);
            need(named.count == 1 + static_cast<std::uint32_t>(more == names_.end() ? 0 : more->second),
                 "references of a name");
        });
    }

    template <typename Value>
    void check_blocks(const std::map<int, Block>& expected, const ExtentMap<Value>& found) const {
        std::map<std::uint64_t, std::size_t> want;
        std::uint64_t total = 0;
        for (const auto& [number, block] : expected) {
            want[kBase + block.begin] = block.bytes;
            total += block.bytes;
        }
        std::map<std::uint64_t, std::size_t> have;
        found.for_each([&](const Range& range, const Value&) { have[range.begin] = range.size(); });
        need(have == want, "blocks, their places and sizes");
        need(found.total() == total, "bytes in blocks");
    }

    void check_totals() const {
        for (int device = 0; device < static_cast<int>(kDevices); ++device) {
            std::uint64_t handles = 0, mapped = 0, linear = 0, pools = 0;
            for (const auto& [number, one] : model_.memory) {
                if (!one.imported && one.device == device) handles += one.bytes;
            }
            for (const Cell& cell : model_.cells) {
                if (cell.memory == 0) continue;
                const Memory& memory = model_.memory.at(cell.memory);
                if (!memory.imported && memory.device == device) ++mapped;
            }
            // Small blocks share pages of four bytes (the page of this test), which count once.
            std::set<std::size_t> pages;
            for (const auto& [number, block] : model_.linear) {
                if (block.device != device) continue;
                linear += block.bytes;
                for (std::size_t i = block.begin; i < block.begin + block.bytes; ++i)
                    pages.insert((kBase + i) / 4);
            }
            if (device == 0) {
                for (const auto& [number, block] : model_.pool_blocks) pools += block.bytes;
            }
            const DeviceTotals& totals = state_.totals(device);
            need(totals.handles == handles, "bytes of physical memory");
            need(totals.mapped == mapped, "mapped bytes of a device");
            need(totals.linear_requested == linear, "linear bytes");
            need(totals.small_pages == pages.size(), "pages of small blocks");
            need(totals.pool_live == pools, "live bytes of pools");
        }
        std::map<std::uint64_t, std::uint64_t> by_pool;
        for (const auto& [number, block] : model_.pool_blocks) by_pool[block.pool] += block.bytes;
        for (const auto& [pool, books] : state_.pools())
            need(books.live_bytes == by_pool[pool.value], "live bytes of a pool");
    }

    unsigned seed_;
    std::uint64_t operations_ = 0;
    std::mt19937 random_;
    Model model_;
    ProcessState state_;
    std::map<std::uint64_t, int> names_;  // references of a handle value beyond its first
};

}  // namespace

TEST_CASE("every layer, after every operation, is what the reference model of single bytes says") {
    Compared compared;
    const unsigned most = seeds();
    for (unsigned seed = 1; seed <= most; ++seed) {
        Run run(seed);
        for (int operation = 0; operation < 1000; ++operation) {
            run.step();
            run.check(compared);
        }
    }
    // Every difference has failed by itself; that there was something to differ, in each layer, again
    // and again:
    const std::size_t operations = std::size_t{most} * 1000;
    CHECK(compared.reserved > operations);
    CHECK(compared.mapped > operations / 2);
    CHECK(compared.memory > operations / 2);
    CHECK(compared.linear > operations / 4);
    CHECK(compared.pool_blocks > operations / 2);
    CHECK(compared.pending > 0);
}
