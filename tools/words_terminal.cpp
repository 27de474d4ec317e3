// The only place of the words that asks the operating system: see words_terminal.h.
#include "tools/words_terminal.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdlib>
#include <string_view>

namespace fragscope::tools {
namespace {

constexpr int kNarrowest = 40;
constexpr int kWidest = 110;  // longer lines are hard to read

std::string_view variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

Style style_of_stdout() {
    Style style;
    std::setlocale(LC_CTYPE, "");
    style.utf8 = std::string_view(nl_langinfo(CODESET)) == "UTF-8";
    if (isatty(STDOUT_FILENO) == 0) return style;
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0) {
        style.width = std::clamp(static_cast<int>(size.ws_col), kNarrowest, kWidest);
    }
    style.colour = variable("NO_COLOR").empty() && variable("TERM") != "dumb" && !variable("TERM").empty();
    return style;
}

}  // namespace fragscope::tools
