// Whose allocator the program uses, as far as its records show: by the functions that it was seen to call and
// the files that it was seen to have loaded. Settings are named for those only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/trace.h"

namespace fragscope::analysis {

enum class ClientKind : std::uint8_t { kPyTorch, kTensorFlow, kJax, kRmm };

struct Client {
    ClientKind kind = ClientKind::kPyTorch;
    std::string seen_by;        // a few words
    bool tells_blocks = false;  // its allocator's blocks are in the trace
};

const char* client_name(ClientKind kind);

// Whether a process's framework told of its blocks, by the first function by which one did.
class BlockTellers {
  public:
    explicit BlockTellers(const Trace& trace);
    // Every event of the process.
    void add(const Event& event);
    // The framework whose allocator tells; nothing: none does.
    std::optional<ClientKind> found() const { return found_; }

  private:
    std::vector<std::optional<ClientKind>> by_function_;  // by FunctionId
    std::optional<ClientKind> found_;
};

std::vector<Client> clients_of(const Trace& trace, ProcessIndex process, const BlockTellers& tellers);

}  // namespace fragscope::analysis
