// Every string of a message, found by its description: a field that is added later is looked at, too.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <string>

namespace fragscope::test {

// `visit(path, text)`, e.g. ("audit.reason", "…").
void for_each_string(const google::protobuf::Message& message,
                     const std::function<void(const std::string&, const std::string&)>& visit,
                     const std::string& path = "");

// No text says "free" of memory without saying whose or which (see tests/unit/words/unqualified.h), and none
// was left with a place that nothing was put into.
void check_words(const google::protobuf::Message& message);

}  // namespace fragscope::test
