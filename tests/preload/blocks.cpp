// A program that has PyTorch's libraries, or stand-ins of their names, opened as Python opens them:
// `blocks NAME WHERE SCOPE` runs the scenario of that name with libc10_cuda.so of the folder WHERE, opened
// `local`ly or `global`ly. It knows nothing of the shim; what it saw it writes to stdout.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "framework/fake_c10.h"

namespace {

constexpr char kUsage[] = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
constexpr char kRefused[] = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE";
constexpr c10::Device kCuda{1, 0};

void* library = nullptr;

// The declarations of fake_c10.h are never linked against: only their types are used.
template <typename Function>
Function* look_up_by(const char* name) {
    auto* found = reinterpret_cast<Function*>(dlsym(library, name));
    if (found == nullptr) std::exit(3);
    return found;
}
#define CALL(function) look_up_by<decltype(::function)>(#function)

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
CUevent event(std::uintptr_t number) { return reinterpret_cast<CUevent>(number); }

void say_heard() {
    static char text[1 << 20];
    std::printf("%.*s", static_cast<int>(CALL(fake_heard)(text, sizeof text)), text);
    std::fflush(stdout);
}

std::string home(void* address) {
    Dl_info info;
    if (address == nullptr) return "null";
    if (dladdr(address, &info) == 0) return "unknown";
    const char* slash = std::strrchr(info.dli_fname, '/');
    const std::string file = slash != nullptr ? slash + 1 : info.dli_fname;
    return file.substr(0, file.find('.'));
}

int reports() {
    CALL(fake_start)();
    errno = 5;
    CALL(fake_report)(at(0x10000), 512, 512, 2097152, kCuda);
    CALL(fake_report_by_jump)(at(0x20000), 1024, 1536, 2097152, {1, 3});
    CALL(fake_report)(at(0x30000), 0, 1536, 2097152, kCuda);
    CALL(fake_report)(at(0x40000), 64, 64, 0, {0, -1});  // host memory
    CALL(fake_report)(at(0x50000), 64, 64, 0, {12, 0});  // an XPU
    CALL(fake_report)(at(0x60000), 2048, 2048, 2097152, {1, -1});
    CALL(fake_report)(at(0x70000), std::int64_t{1} << 40, SIZE_MAX, SIZE_MAX, kCuda);
    CALL(fake_report_by_jump)(at(0x10000), -512, 1024, 2097152, kCuda);
    CALL(fake_report)(at(0x80000), INT64_MIN, 0, 0, kCuda);
    CALL(fake_refuse)(std::int64_t{3} << 30, 1024, 4096, {1, 1});
    CALL(fake_refuse)(1, 2, 3, {0, -1});
    std::printf("errno %d\n", errno);
    say_heard();
    return 0;
}

// Where look-ups lead, and what is reached there.
int doors() {
    for (const char* name : {kUsage, kRefused}) {
        std::printf("default %s\n", home(dlsym(RTLD_DEFAULT, name)).c_str());
        std::printf("next %s\n", home(dlsym(RTLD_NEXT, name)).c_str());
        std::printf("main %s\n", home(dlsym(dlopen(nullptr, RTLD_LAZY), name)).c_str());
        if (library != nullptr) std::printf("handle %s\n", home(dlsym(library, name)).c_str());
    }
    std::printf("other %s\n", home(dlsym(RTLD_DEFAULT, "_ZNSaIcEC1Ev")).c_str());
    if (library == nullptr) return 0;
    CALL(fake_start)();
    look_up_by<decltype(c10::reportMemoryUsageToProfiler)>(kUsage)(at(0x10000), 512, 512, 4096, kCuda);
    look_up_by<decltype(c10::reportOutOfMemoryToProfiler)>(kRefused)(512, 512, 4096, kCuda);
    say_heard();
    return 0;
}

int exceptions() {
    struct Said {
        const char* text;
        ~Said() { std::printf("%s\n", text); }
    };
    CALL(fake_start)();
    CALL(fake_throw)(true);
    for (int kind = 0; kind < 3; ++kind) {
        try {
            const Said said{"left"};
            if (kind == 0) CALL(fake_report)(at(0x10000), 512, 512, 4096, kCuda);
            if (kind == 1) CALL(fake_report_by_jump)(at(0x10000), -512, 0, 4096, kCuda);
            if (kind == 2) CALL(fake_refuse)(512, 512, 4096, kCuda);
        } catch (int number) {
            std::printf("caught %d\n", number);
        }
    }
    CALL(fake_throw)(false);
    CALL(fake_report)(at(0x20000), 512, 512, 4096, kCuda);
    say_heard();
    return 0;
}

int threads() {
    CALL(fake_start)();
    const auto turn = CALL(fake_turn);
    std::vector<std::thread> all;
    for (int i = 0; i < 4; ++i)
        all.emplace_back([turn] {
            for (int j = 0; j < 1000; ++j) turn();
        });
    for (std::thread& each : all) each.join();
    return 0;
}

int forking() {
    CALL(fake_start)();
    CALL(fake_report)(at(0x10000), 512, 512, 4096, kCuda);
    const CUevent events[] = {event(0x1000)};
    CALL(fake_free)(at(0x10000), 512, events, 1);
    const pid_t child = fork();
    if (child == 0) {
        CALL(fake_report)(at(0x20000), 1024, 1024, 4096, kCuda);
        CALL(fake_ask)(event(0x1000));  // the parent's block
        _exit(0);
    }
    waitpid(child, nullptr, 0);
    CALL(fake_ask)(event(0x1000));
    return 0;
}

int waits() {
    CALL(fake_start)();
    const CUevent events[] = {event(0x1000), event(0x2000), event(0x3000)};
    const CUevent more[] = {event(0x4000)};
    CALL(fake_free)(at(0x10000), 512, events, 2);  // the first one of all: who reports is not known yet
    CALL(fake_report)(at(0x20000), 512, 512, 4096, kCuda);
    CALL(fake_free)(at(0x20000), 512, events, 3);
    CALL(fake_record)(event(0x5000), nullptr);
    CALL(fake_report)(at(0x30000), -512, 0, 4096, kCuda);
    CALL(fake_record_late)(more, 1);
    CALL(fake_free)(at(0x40000), 512, nullptr, 0);
    CALL(fake_ask)(event(0x2000));
    CALL(fake_ask)(event(0x2000));
    CALL(fake_ask)(event(0x5000));
    std::thread other([] { CALL(fake_wait)(event(0x1000)); });
    other.join();
    CALL(fake_free)(at(0x50000), 512, more, 1);
    CALL(fake_wait)(event(0x4000));
    CALL(fake_free)(at(0x60000), 512, more, 1);
    CALL(fake_ask)(event(0x4000));
    CALL(fake_ask)(event(0x3000));
    return 0;
}

// More streams than a block can be said to wait for, and more events than can be awaited.
int many_waits() {
    CALL(fake_start)();
    CALL(fake_report)(at(0x10000), 512, 512, 4096, kCuda);
    std::vector<CUevent> events;
    for (std::uintptr_t i = 1; i <= 40; ++i) events.push_back(event(i << 12));
    CALL(fake_free)(at(0x10000), 512, events.data(), 40);
    for (const CUevent each : events) CALL(fake_ask)(each);
    const auto release = CALL(fake_free);
    for (std::uintptr_t i = 1; i <= 20000; ++i) {
        const CUevent one[] = {event(i << 8)};
        release(at(i << 12), 512, one, 1);
    }
    const auto ask = CALL(fake_ask);
    for (std::uintptr_t i = 1; i <= 20000; ++i) ask(event(i << 8));
    return 0;
}

int streams() {
    using c10::cuda::CUDAStream;
    CALL(fake_start)();
    const CUDAStream none(nullptr), first(reinterpret_cast<CUstream>(0x60)),
        second(reinterpret_cast<CUstream>(0x70));
    const auto allocate = CALL(fake_allocate);
    const auto with_stream = CALL(fake_allocate_with_stream);
    with_stream(reinterpret_cast<CUstream>(0x80), at(0x8000), kCuda);
    allocate(&none, at(0x10000), kCuda);
    allocate(&none, at(0x11000), kCuda);
    allocate(&first, at(0x20000), kCuda);
    allocate(&first, at(0x30000), {1, 1});
    allocate(&second, at(0x40000), kCuda);
    with_stream(reinterpret_cast<CUstream>(0x80), at(0x50000), kCuda);
    with_stream(reinterpret_cast<CUstream>(0x90), at(0x51000), kCuda);
    allocate(&second, at(0x60000), kCuda);
    CALL(fake_report)(at(0x70000), 512, 512, 4096, kCuda);
    std::thread other([&] { allocate(&second, at(0x80000), kCuda); });
    other.join();
    CALL(fake_throw)(true);
    try {
        allocate(&first, at(0x90000), kCuda);
    } catch (int) {
    }
    CALL(fake_throw)(false);
    with_stream(reinterpret_cast<CUstream>(0x90), at(0xa0000), kCuda);
    return 0;
}

// For tests/bench/bench_blocks.py: what is done COUNT times.
int cost(const std::string& what, long times) {
    using c10::cuda::CUDAStream;
    CALL(fake_start)();
    CALL(fake_deaf)(true);
    const CUDAStream first(reinterpret_cast<CUstream>(0x60));
    const auto allocate = CALL(fake_allocate);
    const auto release = CALL(fake_free);
    const auto record = CALL(fake_record);
    const auto ask = CALL(fake_ask);
    const auto stream = look_up_by<CUstream(const CUDAStream*)>("_ZNK3c104cuda10CUDAStream6streamEv");
    const CUevent events[] = {event(0x1000)};
    allocate(&first, at(0x10000), kCuda);
    for (long i = 0; i < times; ++i) {
        if (what == "pair" || what == "waiting") allocate(&first, at(0x20000), kCuda);
        if (what == "pair") release(at(0x20000), 512, nullptr, 0);
        if (what == "waiting") release(at(0x20000), 512, events, 1);
        if (what == "waiting" || what == "query") ask(events[0]);
        if (what == "event") record(events[0], nullptr);
        if (what == "stream") stream(&first);
    }
    return 0;
}

// No driver: libc10.so alone.
int idle() {
    look_up_by<decltype(c10::reportMemoryUsageToProfiler)>(kUsage)(at(0x10000), 512, 512, 4096, kCuda);
    say_heard();
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 2) return 2;
    const std::string name = arguments[1];
    if (count >= 4) {
        const int scope = std::strcmp(arguments[3], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL;
        const std::string file = name == "idle" ? "/libc10.so" : "/libc10_cuda.so";
        library = dlopen((arguments[2] + file).c_str(), RTLD_LAZY | scope);
        if (library == nullptr) {
            std::printf("%s\n", dlerror());
            return 2;
        }
    }
    if (name == "cost" && count == 6) return cost(arguments[4], std::atol(arguments[5]));
    const std::pair<const char*, int (*)()> scenarios[] = {
        {"reports", reports},       {"doors", doors},     {"exceptions", exceptions},
        {"threads", threads},       {"fork", forking},    {"waits", waits},
        {"many_waits", many_waits}, {"streams", streams}, {"idle", idle}};
    for (const auto& [scenario, run] : scenarios)
        if (name == scenario) return run();
    return 2;
}
