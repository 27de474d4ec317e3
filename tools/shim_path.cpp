#include "tools/shim_path.h"

#include <unistd.h>

#include <cstdlib>

namespace fragscope::tools {

std::string find_shim() {
    char path[4096];
    const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
    if (length <= 0) return "";
    const std::string self(path, static_cast<std::size_t>(length));
    const std::string folder = self.substr(0, self.find_last_of('/'));
    for (const char* place : {"/../interpose/libfragscope.so", "/../libexec/fragscope/libfragscope.so"}) {
        char* whole = ::realpath((folder + place).c_str(), nullptr);
        if (whole == nullptr) continue;
        std::string found = whole;
        std::free(whole);
        return found;
    }
    return "";
}

}  // namespace fragscope::tools
