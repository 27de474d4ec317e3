// See words_json.h.
#include "tools/words_json.h"

#include <google/protobuf/util/json_util.h>

namespace fragscope::tools {

std::optional<std::string> json_line(const google::protobuf::Message& message) {
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    options.always_print_primitive_fields = true;
    std::string line;
    if (!google::protobuf::util::MessageToJsonString(message, &line, options).ok()) return std::nullopt;
    return line;
}

}  // namespace fragscope::tools
