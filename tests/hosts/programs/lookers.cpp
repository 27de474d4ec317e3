// A library that looks its own names up, in the ways that went wrong elsewhere: functions whose names begin as the driver's
// do, of cuBLAS, cuDNN, libcurl; a tool's entry that looks for the next one of its name and must not find itself; repeated
// look-ups; names that are nothing.
#include <dlfcn.h>
#include <pthread.h>

#include <cstdio>
#include <initializer_list>

extern "C" {
int cudnnCreate(void**) { return 17; }
int cublasCreate_v2(void**) { return 18; }
int curl_easy_init() { return 19; }
int cuMemcpyOfOurOwn() { return 20; }
// As OpenMP's: asks whether somebody behind it has one as well.
void* ompt_start_tool(unsigned, const char*) {
    void* next = dlsym(RTLD_NEXT, "ompt_start_tool");
    std::printf("next tool %s\n", next == nullptr ? "none" : "found");
    return next;
}
int lookers_run(const char* path) {
    void* self = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    for (int again = 0; again < 3; ++again)
        for (const char* name : {"cudnnCreate", "cublasCreate_v2", "curl_easy_init", "cuMemcpyOfOurOwn", "cu", "c", "", "cuM",
                                 "pthread_create", "ompt_start_tool"}) {
            dlerror();
            void* found[] = {dlsym(self, name), dlsym(RTLD_DEFAULT, name), dlsym(RTLD_NEXT, name)};
            std::printf("%s:", name);
            for (void* each : found) {
                Dl_info info{};
                const bool known = each != nullptr && dladdr(each, &info) != 0 && info.dli_sname != nullptr;
                std::printf(" %s", known ? info.dli_sname : each != nullptr ? "?" : "-");
            }
            std::printf(" %s\n", dlerror() != nullptr ? "said" : "not said");
        }
    using Create = int (*)(void**);
    auto create = reinterpret_cast<Create>(dlsym(self, "cudnnCreate"));
    std::printf("created %d\n", create != nullptr ? create(nullptr) : -1);
    ompt_start_tool(0, "");
    return 0;
}
}
