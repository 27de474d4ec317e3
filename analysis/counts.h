// How often each of many numbers is counted, without an allocation for each of them: a table with linear
// probing, at most half full. A number that is counted no more leaves nothing behind.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fragscope::analysis {

class Counts {
  public:
    // One more; how many there are now.
    std::uint32_t add(std::uint64_t number) {
        if (2 * (used_ + 1) > places_.size()) grow();
        Place& place = places_[place_of(number)];
        if (place.count == 0) {
            place.number = number;
            ++used_;
        }
        return ++place.count;
    }
    // One less, of a number that is counted; how many are left.
    std::uint32_t remove(std::uint64_t number) {
        std::size_t hole = place_of(number);
        if (--places_[hole].count != 0) return places_[hole].count;
        // Whatever was pushed behind the hole by it moves up.
        const std::size_t mask = places_.size() - 1;
        for (std::size_t at = (hole + 1) & mask; places_[at].count != 0; at = (at + 1) & mask) {
            if (((at - home_of(places_[at].number)) & mask) < ((at - hole) & mask)) continue;
            places_[hole] = places_[at];
            places_[at].count = 0;
            hole = at;
        }
        --used_;
        return 0;
    }
    std::size_t size() const { return used_; }  // different numbers

  private:
    struct Place {
        std::uint64_t number = 0;
        std::uint32_t count = 0;  // 0: the place is empty
    };
    std::size_t home_of(std::uint64_t number) const {
        return static_cast<std::size_t>((number * 0x9e3779b97f4a7c15u) >> shift_);
    }
    // Where the number is, or would go.
    std::size_t place_of(std::uint64_t number) const {
        std::size_t at = home_of(number);
        while (places_[at].count != 0 && places_[at].number != number) at = (at + 1) & (places_.size() - 1);
        return at;
    }
    void grow() {
        std::vector<Place> old(places_.empty() ? 64 : 2 * places_.size());
        old.swap(places_);
        shift_ = 64 - static_cast<unsigned>(std::countr_zero(places_.size()));
        for (const Place& place : old)
            if (place.count != 0) places_[place_of(place.number)] = place;
    }

    std::vector<Place> places_;  // a power of two
    std::size_t used_ = 0;
    unsigned shift_ = 58;
};

}  // namespace fragscope::analysis
