// What records and call stacks of one process name by number: texts, loaded files, call stacks. Takes them
// from the process's texts, whose bytes may be anything, and turns those that are new into what the trace
// holds of them.
//
// Remembers only which numbers were defined (a bit each, below 0.7 MiB a process): the first definition of a
// number wins, a later one is passed over in silence. A process that stays within the limits in proto/chunk.h
// loses nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/text_assembly.h"
#include "proto/trace.pb.h"

namespace fragscope::collector {

// True for the texts that are for here.
bool is_name(wire::TextKind kind);

class NameTable {
  public:
    NameTable();

    enum class Took {
        kNew,      // it is in `out` now
        kKnown,    // its number was defined before
        kRefused,  // it makes no sense, or its number is beyond the limits
    };
    Took take(const Text& text, trace::Names& out);

  private:
    // Which of the numbers from 1 to below its limit were defined.
    class Numbers {
      public:
        explicit Numbers(std::uint32_t limit) : limit_(limit) {}
        bool possible(std::uint32_t number) const { return number != 0 && number < limit_; }
        bool add(std::uint32_t number);  // false: it was there

      private:
        std::uint32_t limit_;
        std::vector<bool> defined_;
    };
    Took take_text(const Text& text, trace::Names& out);
    Took take_module(const Text& text, trace::Names& out);
    Took take_stack(const Text& text, trace::Names& out);

    Numbers texts_;
    Numbers modules_;
    Numbers stacks_;
};

}  // namespace fragscope::collector
