// Another tool that listens to NVTX: takes some of its functions, and writes to stdout what it hears. With
// NVTX_TOOL_FAILS set it takes functions and then says that it could not start.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "interpose/nvtx.h"

using namespace fragscope::interpose::nvtx;

namespace {

int level = 0;
std::uint64_t ranges = 0;

void mark(const char* text) { std::printf("tool: mark %s\n", text != nullptr ? text : "null"); }
int push(const char* text) {
    std::printf("tool: push %s\n", text);
    return level++;
}
int pop() {
    std::puts("tool: pop");
    return --level;
}
std::uint64_t start(const char* text) {
    std::printf("tool: start %s\n", text);
    return ++ranges;
}
void end(std::uint64_t range) {
    std::printf("tool: end %llu\n", static_cast<unsigned long long>(range & 0xff));
}
void name_category(std::uint32_t category, const char* name) {
    std::printf("tool: category %u %s\n", category, name);
}
void name_thread(std::uint32_t, const char* name) { std::printf("tool: thread %s\n", name); }
const void* domain(const char* name) {
    std::printf("tool: domain %s\n", name);
    return &level;
}
const void* string(const void* where, const char* text) {
    std::printf("tool: string %s %d\n", text, where == &level);
    return &ranges;
}
void domain_mark(const void* where, const Attributes* what) {
    std::printf("tool: domain mark %d %d\n", where == &level, what->message == &ranges);
}
void destroy(const void* where) { std::printf("tool: destroy %d\n", where == &level); }

template <typename Function>
void take(const Callbacks& callbacks, std::uint32_t module, std::uint32_t id, Function function) {
    Generic** table = nullptr;
    unsigned size = 0;
    if (callbacks.module_functions(static_cast<int>(module), &table, &size) != 0 && id < size)
        *table[id] = reinterpret_cast<Generic>(function);
}

}  // namespace

extern "C" {

int InitializeInjectionNvtx2(GetExportTable get_table) {
    const auto& callbacks = *static_cast<const Callbacks*>(get_table(kCallbacksTable));
    take(callbacks, kCore, kMarkA, &mark);
    take(callbacks, kCore, kRangePushA, &push);
    take(callbacks, kCore, kRangePop, &pop);
    take(callbacks, kCore, kRangeStartA, &start);
    take(callbacks, kCore, kRangeEnd, &end);
    take(callbacks, kCore, kNameCategoryA, &name_category);
    take(callbacks, kCore, kNameOsThreadA, &name_thread);
    take(callbacks, kCore2, kDomainCreateA, &domain);
    take(callbacks, kCore2, kDomainRegisterStringA, &string);
    take(callbacks, kCore2, kDomainMarkEx, &domain_mark);
    take(callbacks, kCore2, kDomainDestroy, &destroy);
    return std::getenv("NVTX_TOOL_FAILS") != nullptr ? 0 : 1;
}

int InitializeInjectionNvtxExtension(void*) { return 1; }

}  // extern "C"
