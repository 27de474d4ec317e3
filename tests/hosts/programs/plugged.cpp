// plugged PLUGIN MODES TIMES: opens the library, RTLD_DEEPBIND (D), RTLD_GLOBAL (G) or in a namespace of its own (M), lets it
// work, closes it, and so on.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

int main(int count, char** words) {
    if (count < 4) return 2;
    int status = 0;
    for (int i = 0; i < std::atoi(words[3]); ++i) {
        const int flags = RTLD_NOW | (std::strchr(words[2], 'G') != nullptr ? RTLD_GLOBAL : RTLD_LOCAL) |
                          (std::strchr(words[2], 'D') != nullptr ? RTLD_DEEPBIND : 0);
        void* library = std::strchr(words[2], 'M') != nullptr ? dlmopen(LM_ID_NEWLM, words[1], flags) : dlopen(words[1], flags);
        if (library == nullptr) {
            std::printf("cannot open: %s\n", dlerror());
            return 1;
        }
        auto run = reinterpret_cast<int (*)()>(dlsym(library, "plugin_run"));
        std::fflush(stdout);
        status += run != nullptr ? run() : 100;
        dlclose(library);
    }
    return status;
}
