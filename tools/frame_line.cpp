#include "tools/frame_line.h"

#include <fmt/format.h>

#include <vector>

namespace fragscope::tools {

std::string frame_line(const analysis::FrameName& frame) {
    using analysis::NameForm;
    std::string out = frame.function.empty() ? "?" : frame.function;
    const std::string at = frame.file.empty() ? ""
                           : frame.line == 0  ? frame.file
                                              : fmt::format("{}:{}", frame.file, frame.line);
    switch (frame.form) {
        case NameForm::kSource:
            if (frame.inlined) out += " [inlined]";
            return out + fmt::format(" ({})", at.empty() ? frame.module : at);
        case NameForm::kPython:
            return out + (at.empty() ? " (Python)" : fmt::format(" ({})", at));
        case NameForm::kSymbol:
            return out + fmt::format("+{:#x} ({})", frame.into, frame.module);
        case NameForm::kModule:
            return out + fmt::format(" ({}+{:#x}: {})", frame.module.empty() ? "?" : frame.module,
                                     frame.offset, frame.why);
        case NameForm::kAddress:
            return out + fmt::format(" ({:#x}, in no file)", frame.offset);
    }
    return out;
}

analysis::StackWords stack_words(analysis::Symbolizer& symbolizer) {
    return [&symbolizer](const analysis::ProcessNames& names, const trace::Stack& stack) {
        std::vector<std::string> lines;
        for (const analysis::FrameName& frame : symbolizer.frames(names, stack))
            lines.push_back(frame_line(frame));
        return lines;
    };
}

}  // namespace fragscope::tools
