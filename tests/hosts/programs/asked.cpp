// What a program finds where it looks: "asked FILE", FILE with names, one a line. For each: whether there is such a function
// in the opened driver, in the global scope and after the program; and for each name without its suffixes what the resolvers
// answer, in many versions and both kinds of stream. Printed is the function's own name, not the library it is of.
#include <fstream>
#include <set>

#include "host.h"

namespace {

std::string base_name(std::string name) {
    for (const char* suffix : {"_ptsz", "_ptds"})
        if (name.size() > 5 && name.compare(name.size() - 5, 5, suffix) == 0) name.resize(name.size() - 5);
    const std::size_t last = name.rfind("_v");
    if (last != std::string::npos && last + 3 == name.size()) name.resize(last);
    return name;
}

const char* symbol_of(void* function) {
    Dl_info info{};
    if (function == nullptr) return "absent";
    if (dladdr(function, &info) == 0) return "unknown";
    return info.dli_saddr == function ? info.dli_sname : "unnamed";
}

}  // namespace

int main(int count, char** words) {
    if (count < 2) return 2;
    std::set<std::string> names, bases = {"", "cuNoSuchFunction", "cu", "cuda", "curl_easy_init", "cuMemAlloc "};
    std::ifstream file(words[1]);
    for (std::string line; std::getline(file, line);) {
        names.insert(line);
        bases.insert(base_name(line));
    }
    void* local = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (local == nullptr) return 1;
    for (int again = 0; again < 2; ++again)
        for (const std::string& name : names)
            std::printf("%s handle %s default %s next %s dlerror %s\n", name.c_str(), symbol_of(dlsym(local, name.c_str())),
                        symbol_of(dlsym(RTLD_DEFAULT, name.c_str())), symbol_of(dlsym(RTLD_NEXT, name.c_str())),
                        dlerror() != nullptr ? "pending" : "none");
    using New = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
    using Old = CUresult (*)(const char*, void**, int, cuuint64_t);
    auto with_status = reinterpret_cast<New>(dlsym(local, "cuGetProcAddress_v2"));
    auto without = reinterpret_cast<Old>(dlsym(local, "cuGetProcAddress"));
    std::printf("resolvers %s %s\n", with_status != nullptr ? "new" : "-", without != nullptr ? "old" : "-");
    for (const std::string& name : bases)
        for (const int version : {2000, 3020, 4000, 7000, 10010, 11020, 11030, 12000, 12030, 12080, 13000, 13030, 14000})
            for (const cuuint64_t flags : {0, 1, 2, 4}) {
                void* found = nullptr;
                CUdriverProcAddressQueryResult status{};
                CUresult result = CUDA_ERROR_UNKNOWN;
                if (with_status != nullptr) {
                    result = with_status(name.c_str(), &found, version, flags, &status);
                    void* again = nullptr;
                    with_status(name.c_str(), &again, version, flags, nullptr);
                    std::printf("%s", again == found ? "" : "ANOTHER ");
                } else if (without != nullptr) {
                    result = without(name.c_str(), &found, version, flags);
                } else {
                    continue;
                }
                std::printf("'%s' %d %d: %d %d %s\n", name.c_str(), version, static_cast<int>(flags),
                            static_cast<int>(result), static_cast<int>(status), symbol_of(found));
            }
    if (with_status != nullptr) {
        void* found = nullptr;
        CUdriverProcAddressQueryResult status{};
        std::printf("nothing %d", with_status(nullptr, &found, 12000, 0, &status));
        std::printf(" %d", with_status("cuMemAlloc", nullptr, 12000, 0, &status));
        std::printf(" %d\n", with_status(nullptr, nullptr, 12000, 0, nullptr));
    }
    return 0;
}
