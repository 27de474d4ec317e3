// libc10.so.
#include "fake_c10.h"

#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

namespace {

std::mutex lock;
std::string heard;
bool throws = false, deaf = false;

template <typename... Values>
void hear(const char* format, Values... values) {
    if (deaf) return;
    char line[160];
    std::snprintf(line, sizeof line, format, values...);
    std::lock_guard guard(lock);
    heard += line;
}

}  // namespace

namespace c10 {

void reportMemoryUsageToProfiler(void* address, std::int64_t bytes, std::size_t allocated,
                                 std::size_t reserved, Device device) {
    hear("usage %zx %lld %zu %zu %d %d\n", reinterpret_cast<std::size_t>(address),
         static_cast<long long>(bytes), allocated, reserved, device.type, device.index);
    if (throws) throw 7;
}
void reportOutOfMemoryToProfiler(std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                                 Device device) {
    hear("refused %lld %zu %zu %d %d\n", static_cast<long long>(bytes), allocated, reserved, device.type,
         device.index);
    if (throws) throw 7;
}

}  // namespace c10

extern "C" {

std::size_t fake_heard(char* out, std::size_t size) {
    std::lock_guard guard(lock);
    const std::size_t bytes = heard.size() < size ? heard.size() : size;
    std::memcpy(out, heard.data(), bytes);
    heard.clear();
    return bytes;
}
void fake_deaf(bool on) { deaf = on; }
void fake_throw(bool on) { throws = on; }

}  // extern "C"
