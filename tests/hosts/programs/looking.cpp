// looking LIBRARY MODE: opens it (l local, g global) and lets it look.
#include <dlfcn.h>

#include <cstdio>

int main(int count, char** words) {
    if (count < 3) return 2;
    void* library = dlopen(words[1], RTLD_NOW | (words[2][0] == 'g' ? RTLD_GLOBAL : RTLD_LOCAL));
    auto run = library != nullptr ? reinterpret_cast<int (*)(const char*)>(dlsym(library, "lookers_run")) : nullptr;
    if (run == nullptr) return 1;
    // The tool's entry, as a runtime finds it: the first one anywhere.
    std::printf("tool %s\n", dlsym(RTLD_DEFAULT, "ompt_start_tool") != nullptr ? "found" : "none");
    return run(words[1]);
}
