// Kinds of events in words, for people ("virtual range mapped") and for machines ("mapped").
#pragma once

#include <optional>
#include <string_view>

#include "proto/wire.h"

namespace fragscope::analysis {

struct KindName {
    wire::Kind kind;
    std::string_view id;  // stable: used in JSON and on the command line
    std::string_view words;
};

// The row for `kind`; an unknown kind gives "unknown".
const KindName& kind_name(wire::Kind kind);
std::optional<wire::Kind> kind_from_id(std::string_view id);

}  // namespace fragscope::analysis
