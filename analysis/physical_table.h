// The physical allocations that are alive, and the driver's names for them, without an allocation for each of
// either.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/event.h"

namespace fragscope::analysis {

// Our own name for one physical allocation: the driver uses its handle values again. Never 0.
using PhysicalId = std::uint64_t;

// Things by the id that they are given when they are added. Slots are used again, ids are not.
template <typename Thing>
class Slots {
  public:
    PhysicalId add(Thing thing) {
        if (unused_.empty()) {
            unused_.push_back(slots_.size());
            slots_.emplace_back();
        }
        const std::size_t index = unused_.back();
        unused_.pop_back();
        Slot& slot = slots_[index];
        slot.id = (++turn_ << kIndexBits) | index;
        slot.thing = std::move(thing);
        return slot.id;
    }
    const Thing* find(PhysicalId id) const {
        const std::size_t index = id & (kMost - 1);
        return id != 0 && index < slots_.size() && slots_[index].id == id ? &slots_[index].thing : nullptr;
    }
    Thing* find(PhysicalId id) { return const_cast<Thing*>(std::as_const(*this).find(id)); }
    void erase(PhysicalId id) {
        if (find(id) == nullptr) return;
        const std::size_t index = id & (kMost - 1);
        slots_[index] = {};
        unused_.push_back(index);
    }
    // `visit(thing)` of each, in no order that means anything.
    template <typename Visit>
    void for_each(Visit&& visit) const {
        for (const Slot& slot : slots_) {
            if (slot.id != 0) visit(slot.thing);
        }
    }
    // The same with the id that each was given: `visit(id, thing)`.
    template <typename Visit>
    void for_each_numbered(Visit&& visit) const {
        for (const Slot& slot : slots_) {
            if (slot.id != 0) visit(slot.id, slot.thing);
        }
    }
    std::size_t size() const { return slots_.size() - unused_.size(); }
    bool empty() const { return size() == 0; }

  private:
    static constexpr unsigned kIndexBits = 32;
    static constexpr std::uint64_t kMost = std::uint64_t{1} << kIndexBits;
    struct Slot {
        PhysicalId id = 0;
        Thing thing;
    };
    std::vector<Slot> slots_;
    std::vector<std::size_t> unused_;
    std::uint64_t turn_ = 0;
};

// What the driver's handle values stand for, and how many references each of them has. Linear probing; at
// most half full.
class HandleTable {
  public:
    struct Named {
        ObjectId handle;
        PhysicalId physical = 0;
        std::uint32_t count = 0;  // 0: the place is empty
    };

    Named* find(ObjectId handle) {
        if (places_.empty()) return nullptr;
        Named& place = places_[place_of(handle)];
        return place.count == 0 ? nullptr : &place;
    }
    // One reference; of a handle that is not in the table.
    void add(ObjectId handle, PhysicalId physical) {
        if (2 * (used_ + 1) > places_.size()) grow();
        places_[place_of(handle)] = {handle, physical, 1};
        ++used_;
    }
    void erase(ObjectId handle) {
        std::size_t hole = place_of(handle);
        if (places_[hole].count == 0) return;
        // Whatever was pushed behind the hole by it moves up.
        for (std::size_t at = next(hole); places_[at].count != 0; at = next(at)) {
            const std::size_t home = home_of(places_[at].handle);
            const std::size_t mask = places_.size() - 1;
            if (((at - home) & mask) >= ((at - hole) & mask)) {
                places_[hole] = places_[at];
                hole = at;
            }
        }
        places_[hole] = {};
        --used_;
    }
    // `visit(named)` of each, in no order that means anything.
    template <typename Visit>
    void for_each(Visit&& visit) const {
        for (const Named& named : places_) {
            if (named.count != 0) visit(named);
        }
    }
    std::size_t size() const { return used_; }

  private:
    std::size_t home_of(ObjectId handle) const {
        return static_cast<std::size_t>((handle.value * 0x9e3779b97f4a7c15u) >> shift_);
    }
    std::size_t next(std::size_t at) const { return (at + 1) & (places_.size() - 1); }
    // Where the handle is, or would go.
    std::size_t place_of(ObjectId handle) const {
        std::size_t at = home_of(handle);
        while (places_[at].count != 0 && places_[at].handle != handle) at = next(at);
        return at;
    }
    void grow() {
        std::vector<Named> old(places_.empty() ? 64 : 2 * places_.size());
        old.swap(places_);
        shift_ = 64 - static_cast<unsigned>(std::countr_zero(places_.size()));
        for (const Named& named : old) {
            if (named.count != 0) places_[place_of(named.handle)] = named;
        }
    }

    std::vector<Named> places_;  // a power of two
    std::size_t used_ = 0;
    unsigned shift_ = 58;
};

}  // namespace fragscope::analysis
