#include "tests/unit/analysis/texts.h"

#include <doctest/doctest.h>
#include <google/protobuf/descriptor.h>

#include "tests/unit/words/unqualified.h"

namespace fragscope::test {

void for_each_string(const google::protobuf::Message& message,
                     const std::function<void(const std::string&, const std::string&)>& visit,
                     const std::string& path) {
    using google::protobuf::FieldDescriptor;
    const auto* reflection = message.GetReflection();
    const auto* descriptor = message.GetDescriptor();
    for (int i = 0; i < descriptor->field_count(); ++i) {
        const FieldDescriptor* field = descriptor->field(i);
        const std::string here = path.empty() ? field->name() : path + "." + field->name();
        const int count = field->is_repeated() ? reflection->FieldSize(message, field)
                          : field->has_presence() && !reflection->HasField(message, field) ? 0
                                                                                           : 1;
        for (int at = 0; at < count; ++at) {
            if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
                visit(here, field->is_repeated() ? reflection->GetRepeatedString(message, field, at)
                                                 : reflection->GetString(message, field));
            } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
                for_each_string(field->is_repeated() ? reflection->GetRepeatedMessage(message, field, at)
                                                     : reflection->GetMessage(message, field),
                                visit, here);
            }
        }
    }
}

void check_words(const google::protobuf::Message& message) {
    for_each_string(message, [](const std::string& path, const std::string& text) {
        CAPTURE(path);
        CAPTURE(text);
        CHECK(unqualified_free(text).empty());
        CHECK(text.find("{}") == std::string::npos);
        CHECK(text.find("..") == std::string::npos);
        if (path.find("summary") != std::string::npos || path.find("reason") != std::string::npos) {
            CHECK(text.find("  ") == std::string::npos);
        }
    });
}

}  // namespace fragscope::test
