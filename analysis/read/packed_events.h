// Events of an importer, packed as they come: a list of millions takes some 20 bytes an event and not 90. Each block is
// unpacked when it is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "analysis/event_log.h"

namespace fragscope::analysis {

class PackedEvents : public EventSource {
  public:
    // In order.
    void add(const Event& event);
    // No more come. Nothing is read before.
    void finish();
    std::size_t size() const { return size_; }

    std::span<const BlockFacts> blocks() const override { return facts_; }
    std::shared_ptr<const std::vector<Event>> load(std::size_t block) const override;

  private:
    static constexpr std::size_t kEventsInBlock = 4096;
    void pack();

    std::vector<Event> open_;
    std::vector<BlockFacts> facts_;
    std::vector<std::string> packed_;
    std::size_t size_ = 0;
};

}  // namespace fragscope::analysis
