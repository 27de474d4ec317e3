// Points of a curve, thinned while they come: memory does not grow with their number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace fragscope::analysis {

// Keeps at most `limit` points of any number, in order: neighbours are merged in pairs, and of each pair the
// heavier stays (Point::weight()).
template <typename Point>
class Thinner {
  public:
    explicit Thinner(std::size_t limit) : limit_(limit) {}

    void add(const Point& point) {
        if (pending_ == 0 || point.weight() >= heaviest_.weight()) heaviest_ = point;
        if (++pending_ < stride_) return;
        kept_.push_back(heaviest_);
        pending_ = 0;
        if (kept_.size() >= limit_) halve();
    }

    std::vector<Point> points() const {
        std::vector<Point> out = kept_;
        if (pending_ != 0) out.push_back(heaviest_);
        return out;
    }

  private:
    void halve() {
        std::vector<Point> merged;
        merged.reserve(limit_);
        for (std::size_t i = 0; i + 1 < kept_.size(); i += 2)
            merged.push_back(kept_[i + 1].weight() >= kept_[i].weight() ? kept_[i + 1] : kept_[i]);
        if (kept_.size() % 2 == 1) merged.push_back(kept_.back());
        kept_ = std::move(merged);
        stride_ *= 2;
    }

    std::size_t limit_;
    std::uint64_t stride_ = 1;   // points that go into one kept point
    std::uint64_t pending_ = 0;  // points in `heaviest_`
    Point heaviest_;
    std::vector<Point> kept_;
};

}  // namespace fragscope::analysis
