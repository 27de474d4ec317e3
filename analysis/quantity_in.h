// A quantity whose kind of space is part of its type: physical memory, addresses, a pool's or an allocator's
// books. Numbers of different kinds of space do not combine: there is no function for it, so it does not
// compile. Numbers of one kind combine only where process, device, domain and snapshot agree (Scope); that is
// looked at when it runs, and refused with nothing.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "analysis/quantity.h"

namespace fragscope::analysis {

enum class Space {
    kPhysical,   // backing on a device
    kAddresses,  // of a process
    kPool,       // inside one stream-ordered pool
    kSegments,   // inside a framework allocator's segments
};

template <Space kSpace>
class QuantityIn {
  public:
    explicit QuantityIn(Quantity quantity) : quantity_(std::move(quantity)) {}
    const Quantity& quantity() const { return quantity_; }

    friend std::optional<QuantityIn> plus(const QuantityIn& a, const QuantityIn& b, Definition definition,
                                          std::string reason) {
        return wrapped(analysis::plus(a.quantity_, b.quantity_, definition, std::move(reason)));
    }
    friend std::optional<QuantityIn> minus(const QuantityIn& a, const QuantityIn& b, Definition definition,
                                           std::string reason) {
        return wrapped(analysis::minus(a.quantity_, b.quantity_, definition, std::move(reason)));
    }
    // part / whole; nothing where the scopes differ. See `share`.
    friend std::optional<Share> share(const QuantityIn& part, const QuantityIn& whole) {
        return analysis::share(part.quantity_, whole.quantity_);
    }

  private:
    static std::optional<QuantityIn> wrapped(std::optional<Quantity> quantity) {
        if (!quantity) return std::nullopt;
        return QuantityIn(*std::move(quantity));
    }

    Quantity quantity_;
};

}  // namespace fragscope::analysis
