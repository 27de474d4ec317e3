#include "interpose/marks.h"

#include <cerrno>
#include <cstring>

namespace fragscope::interpose {

namespace {

void send(Kind kind, HookId function, std::uint64_t domain, std::uint64_t payload, std::uint64_t text,
          std::uint64_t range) {
    wire::Record record{};
    record.sequence = next_sequence();
    record.start = now();
    record.function = static_cast<std::uint16_t>(function);
    record.kind = kind;
    record.device = wire::kDeviceUnknown;
    record.address = domain;
    record.bytes = payload;
    record.object = text;
    record.extra = range;
    emit(record);
}

}  // namespace

std::size_t bounded_length(const char* text) {
    return text == nullptr ? 0 : strnlen(text, wire::kMaxTextBytes);
}

void said(Kind kind, HookId function, std::uint32_t domain, std::uint32_t text, std::uint64_t payload,
          std::uint64_t range) {
    if (!attached()) return;
    const int saved = errno;
    tell_string(domain);
    tell_string(text);
    send(kind, function, domain, payload, text, range);
    errno = saved;
}

void range_ended(HookId function, std::uint32_t domain, std::uint64_t range) {
    if (!attached()) return;
    const int saved = errno;
    tell_string(domain);
    send(Kind::kRangeEnded, function, domain, 0, 0, range);
    errno = saved;
}

namespace {

std::uint32_t told(const char* text) { return told_string(text, bounded_length(text)); }

}  // namespace

}  // namespace fragscope::interpose

using namespace fragscope::interpose;

// What fragscope.h calls.
extern "C" {

__attribute__((visibility("default"))) void fragscope_shim_mark(const char* text) {
    if (attached()) said(Kind::kMark, HookId::kShimMark, 0, told(text), 0, 0);
}
__attribute__((visibility("default"))) void fragscope_shim_range_begin(const char* text) {
    if (attached()) said(Kind::kRangeBegun, HookId::kShimRangeBegin, 0, told(text), 0, 0);
}
__attribute__((visibility("default"))) void fragscope_shim_range_end() {
    range_ended(HookId::kShimRangeEnd, 0, 0);
}

}  // extern "C"
