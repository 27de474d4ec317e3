// Not linked to the driver: opens it as its words say, and works with what it finds.
//   opener FILE MODES DOOR       MODES: letters of  l LAZY, n NOW, L LOCAL, G GLOBAL, D DEEPBIND, K NODELETE, M a namespace
//                                of its own (dlmopen), R closed and opened again;
//                                DOOR: handle, default, next (dlsym with that), resolver:VERSION[:FLAGS]
#include "host.h"

int main(int count, char** words) {
    if (count < 4) return 2;
    const std::string file = words[1], modes = words[2], door = words[3];
    const auto has = [&](char letter) { return modes.find(letter) != std::string::npos; };
    const int flags = (has('n') ? RTLD_NOW : RTLD_LAZY) | (has('G') ? RTLD_GLOBAL : RTLD_LOCAL) |
                      (has('D') ? RTLD_DEEPBIND : 0) | (has('K') ? RTLD_NODELETE : 0);
    void* handle = has('M') ? dlmopen(LM_ID_NEWLM, file.c_str(), flags) : dlopen(file.c_str(), flags);
    if (handle == nullptr) {
        std::printf("cannot open: %s\n", dlerror());
        return 1;
    }
    if (has('R')) {
        std::printf("first %s\n", dlsym(handle, "cuMemAlloc_v2") != nullptr ? "found" : "absent");
        std::printf("closed %d\n", dlclose(handle));
        handle = dlopen(file.c_str(), flags);
    }
    std::printf("absent %s: %s\n", dlsym(handle, "cuNoSuchFunction") == nullptr ? "yes" : "no",
                dlerror() != nullptr ? "said" : "not said");
    host::Driver driver;
    if (door == "handle")
        driver = host::by_handle(handle);
    else if (door == "default")
        driver = host::by_handle(RTLD_DEFAULT);
    else if (door == "next")
        driver = host::by_handle(RTLD_NEXT);
    else {
        int version = 0, variant = 0;
        if (std::sscanf(door.c_str(), "resolver:%d:%d", &version, &variant) < 1) return 2;
        driver = host::by_resolver(handle, version, static_cast<cuuint64_t>(variant));
    }
    const int status = host::work(driver);
    std::printf("closed %d\n", dlclose(handle));
    return status;
}
