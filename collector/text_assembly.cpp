#include "collector/text_assembly.h"

namespace fragscope::collector {

TextAssembly::Took TextAssembly::take(const wire::TextRecord& part) {
    const bool first = part.part == 0;
    const bool fits = part.total_bytes <= wire::kMaxTextBytes && part.part_bytes <= sizeof part.text &&
                      part.text_kind >= wire::TextKind::kFunctionName &&
                      part.text_kind <= wire::TextKind::kThreadName;
    const bool continues =
        first || (next_part_ != 0 && part.part == next_part_ && part.text_kind == text_.kind &&
                  part.subject == text_.subject && part.id == text_.id && part.total_bytes == total_);
    if (!fits || !continues) {
        next_part_ = 0;
        return Took::kRefused;
    }
    if (first) {
        text_ = {part.text_kind, part.subject, part.id, {}};
        total_ = part.total_bytes;
    }
    if (text_.text.size() + part.part_bytes > total_ || (part.part_bytes == 0 && total_ != 0)) {
        next_part_ = 0;
        return Took::kRefused;
    }
    text_.text.append(part.text, part.part_bytes);
    next_part_ = part.part + 1u;
    if (text_.text.size() < total_) return Took::kPart;
    next_part_ = 0;
    return Took::kWhole;
}

}  // namespace fragscope::collector
