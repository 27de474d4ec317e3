// The same messages for machines: protobuf's own JSON mapping, with the field names of proto/report.proto.
#pragma once

#include <google/protobuf/message.h>

#include <optional>
#include <string>

namespace fragscope::tools {

// One line without its line break; fields that are zero or empty are written too, so that a reader finds
// every key. 64-bit numbers are strings, as the mapping has it. Nothing when the message holds text that is
// not UTF-8.
std::optional<std::string> json_line(const google::protobuf::Message& message);

}  // namespace fragscope::tools
