// A program that asks the driver's resolver for every hooked function, in many versions and both kinds of
// stream, and says what it got: "<name> <version> <flags> <result> <status> <symbol> <library>". Not linked
// to the driver.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>

namespace {

const char* const kRows[] = {
#define HOOK(symbol, parameters, arguments, numbered, event) #symbol,
#include "interpose/hooks.def"
};

// "cuMemAllocAsync_ptsz" and "cuMemAlloc_v2" are variants of what is looked up without the suffixes.
std::string base_name(std::string name) {
    for (const char* suffix : {"_ptsz", "_ptds"})
        if (name.size() > 5 && name.compare(name.size() - 5, 5, suffix) == 0) name.resize(name.size() - 5);
    const std::size_t last = name.rfind("_v");
    if (last != std::string::npos && last + 3 == name.size()) name.resize(last);
    return name;
}

}  // namespace

int main() {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) return 1;
    using Resolver = int (*)(const char*, void**, int, std::uint64_t, int*);
    auto resolver = reinterpret_cast<Resolver>(dlsym(driver, "cuGetProcAddress_v2"));
    // As the runtime does: the resolver comes from the resolver.
    void* again = nullptr;
    if (resolver == nullptr || resolver("cuGetProcAddress", &again, 12000, 0, nullptr) != 0 ||
        again == nullptr)
        return 1;
    resolver = reinterpret_cast<Resolver>(again);
    std::set<std::string> names = {"", "cuNoSuchFunction", "cuGraphCreate", "cuFuncGetName"};
    for (const char* row : kRows) names.insert(base_name(row));
    for (const std::string& name : names)
        for (const int version : {2000, 3020, 4000, 6050, 7000, 8000, 10010, 11000, 11020, 12000, 12030,
                                  12050, 12080, 13000, 13030})
            for (const std::uint64_t flags : {0, 1, 2}) {
                void* found = nullptr;
                int status = -1;
                const int result = resolver(name.c_str(), &found, version, flags, &status);
                Dl_info info{};
                const bool known = found != nullptr && dladdr(found, &info) != 0 && info.dli_saddr == found;
                const char* file = known ? std::strrchr(info.dli_fname, '/') : nullptr;
                std::printf("'%s' %d %d %d %d %s %s\n", name.c_str(), version, static_cast<int>(flags),
                            result, status, known ? info.dli_sname : "none",
                            file != nullptr ? file + 1 : "none");
            }
    return 0;
}
