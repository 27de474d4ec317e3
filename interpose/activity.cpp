#include "interpose/activity.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "interpose/activity_buffers.h"
#include "interpose/ask.h"
#include "interpose/driver.h"
#include "interpose/emit.h"
#include "interpose/intern.h"
#include "interpose/nvtx.h"
#include "interpose/objects.h"
#include "interpose/state.h"

namespace fragscope::interpose {

using wire::CuptiState;

namespace {

// API versions whose layouts are known: those of the headers that this is built with. Later ones may have
// grown records.
constexpr bool layouts_known(std::uint32_t version) { return version == 130000 || version == 130001; }

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_MEMORY2, CUPTI_ACTIVITY_KIND_MEMORY_POOL,
                                         CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER};
constexpr std::uint32_t kFlushPeriodMs = 100;
constexpr std::uint64_t kFlushPauseNs = 500'000'000;
constexpr std::uint64_t kPatienceNs = 2'000'000'000;

enum Phase : std::uint32_t { kIdle, kStarting, kRunning, kLeaving, kOver };
constinit std::atomic<std::uint32_t> phase{kIdle};
constinit std::atomic<std::uint32_t> tried_in{0};     // the attachment that has decided, or is at it
constinit std::atomic<const void*> starter{nullptr};  // the thread that is at it
constinit std::atomic<std::uint32_t> used_in{
    0};  // the last attachment that used CUPTI, of this process or an ancestor
constinit std::atomic<const char*> client{nullptr};  // who has come; names are literals
constinit std::atomic<std::uint64_t> next_flush_ns{0};
constinit std::uint8_t pinned_before = 0;
constinit bool pinned_changed = false;

struct Decision {
    CuptiState state = CuptiState::kOn;
    std::uint32_t version = 0;
    CUptiResult result = CUPTI_SUCCESS;
    char text[1024] = "";  // see kActivityState
};

void set_text(Decision& out, const char* text) { std::snprintf(out.text, sizeof out.text, "%s", text); }

Decision no(CuptiState state, const char* text, CUptiResult result = CUPTI_SUCCESS) {
    Decision out;
    out.state = state;
    out.result = result;
    set_text(out, text);
    return out;
}

void tell_state(const Decision& decision) {
    const std::uint32_t text = told_string(decision.text, std::strlen(decision.text));
    wire::Record record = shim_record(Kind::kActivityState, HookId::kActivity, wire::kDeviceUnknown);
    record.address = static_cast<std::uint64_t>(decision.state);
    record.bytes = decision.version;
    record.object = static_cast<std::uint64_t>(decision.result);
    record.extra = text;
    emit(record);
}

// A variable by which another tool is brought into the process; nullptr: none is set. The shim's own path in
// the one that `fragscope run` sets for NVTX does not count.
const char* injection_variable() {
    Dl_info own;
    const char* nvtx = getenv("NVTX_INJECTION64_PATH");
    const bool ours = nvtx != nullptr && dladdr(&session, &own) != 0 && std::strcmp(nvtx, own.dli_fname) == 0;
    if (nvtx != nullptr && *nvtx != '\0' && !ours) return "NVTX_INJECTION64_PATH";
    for (const char* name : {"CUDA_INJECTION64_PATH", nvtx::kChainVariable}) {
        const char* value = getenv(name);
        if (value != nullptr && *value != '\0') return name;
    }
    return nullptr;
}

bool load(const char* path) { return dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE) != nullptr; }

// Where NVIDIA's toolkits and wheels put CUPTI, from the folder of the shared runtime that the program has.
bool bring_library_in() {
    Object runtime;
    int major = 0;
    if (find_object("libcudart.so", runtime)) {
        const char* version = runtime.soname + std::strlen("libcudart.so");
        if (*version == '.') major = std::atoi(version + 1);
    } else {
        // Linked in: of which version it is, nothing says. The driver's is not older.
        const auto ask = driver.cuDriverGetVersion.load();
        if (ask != nullptr && ask(&major) == CUDA_SUCCESS) major /= 1000;
    }
    if (major <= 0 || major > 1000) return false;
    const char* slash = runtime.path == nullptr ? nullptr : std::strrchr(runtime.path, '/');
    char path[1024];
    for (const char* folder : {"", "../extras/CUPTI/lib64/", "../../cuda_cupti/lib/"}) {
        if (slash == nullptr) break;
        const int length = std::snprintf(path, sizeof path, "%.*s/%slibcupti.so.%d",
                                         static_cast<int>(slash - runtime.path), runtime.path, folder, major);
        if (length > 0 && static_cast<std::size_t>(length) < sizeof path && access(path, R_OK) == 0)
            return load(path);
    }
    std::snprintf(path, sizeof path, "libcupti.so.%d", major);
    return load(path);
}

template <typename Function>
bool store(const Object& library, const Wanted& name, Function& slot) {
    slot = reinterpret_cast<Function>(find_symbol(library, name));
    return slot != nullptr;
}

void CUPTIAPI no_callback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

// Whether somebody is subscribed, by subscribing and ending that at once: the only way to ask.
Decision ask_for_subscriber() {
    CUpti_SubscriberHandle subscriber = nullptr;
    const CUptiResult result = cupti.cuptiSubscribe(&subscriber, no_callback, nullptr);
    if (result == CUPTI_SUCCESS) {
        cupti.cuptiUnsubscribe(subscriber);
        return {};
    }
    return result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
               ? no(CuptiState::kOthersUse, "a subscriber that was there first", result)
               : no(CuptiState::kRefused, "cuptiSubscribe", result);
}

// CUPTI's buffers for kernels' times, which are not asked for here, would lie in device memory.
void keep_buffers_off_the_device() {
    std::size_t bytes = sizeof pinned_before;
    std::uint8_t on = 1;
    pinned_changed = cupti.cuptiActivityGetAttribute(CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED,
                                                     &bytes, &pinned_before) == CUPTI_SUCCESS &&
                     pinned_before == 0 &&
                     cupti.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED,
                                                     &bytes, &on) == CUPTI_SUCCESS;
}

void ask_for_migrations() {
    CUpti_ActivityUnifiedMemoryCounterConfig wanted[3]{};
    std::uint32_t count = 0;
    for (const CUpti_ActivityUnifiedMemoryCounterKind kind :
         {CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_HTOD,
          CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_DTOH,
          CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_DTOD}) {
        wanted[count].scope = CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_SCOPE_PROCESS_ALL_DEVICES;
        wanted[count].kind = kind;
        wanted[count++].enable = 1;
    }
    // Not all devices have them; the rest is told all the same.
    if (cupti.cuptiActivityConfigureUnifiedMemoryCounter(wanted, count) == CUPTI_SUCCESS)
        cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER);
}

Decision start(std::uint32_t attachment) {
    Decision out;
    Object library;
    if (used_in.load() != 0) return no(CuptiState::kForked, "");
    if (const char* name = client.load()) return no(CuptiState::kOthersUse, name);
    if (const char* name = injection_variable()) return no(CuptiState::kOthersUse, name);
    if (session.cupti == wire::CuptiMode::kAuto && find_needing("libcupti.so", library))
        return no(CuptiState::kOthersUse, *library.path != '\0' ? library.path : "the program");
    bool mapped = find_object("libcupti.so", library);
    if (!mapped && session.cupti == wire::CuptiMode::kOn)
        mapped = bring_library_in() && find_object("libcupti.so", library);
    if (!mapped) return no(CuptiState::kNoLibrary, "");
    if (count_objects("libcupti.so") != 1) return no(CuptiState::kOthersUse, "a second libcupti");
    // As long as it is asked anything it must stay, whoever else closes it.
    if (!load(library.path)) return no(CuptiState::kRefused, library.path);
    bool whole = true;
#define FRAGSCOPE_STORE(name) whole = store(library, wanted(#name), cupti.name) && whole;
    FRAGSCOPE_CUPTI_FUNCTIONS(FRAGSCOPE_STORE)
#undef FRAGSCOPE_STORE
    set_text(out, library.path);
    out.state = CuptiState::kUnknownVersion;
    if (!whole) return out;
    out.result = cupti.cuptiGetVersion(&out.version);
    if (out.result != CUPTI_SUCCESS || !layouts_known(out.version)) return out;

    if (Decision other = ask_for_subscriber(); other.state != CuptiState::kOn) {
        other.version = out.version;
        return other;
    }
    out.state = CuptiState::kRefused;
    if (!begin_activity_times()) return out;
    keep_buffers_off_the_device();
    activity_wanted_in.store(attachment, std::memory_order_release);
    used_in.store(attachment);
    out.result = cupti.cuptiActivityRegisterCallbacks(give_activity_buffer, take_activity_buffer);
    if (out.result == CUPTI_SUCCESS) {
        ask_for_migrations();
        cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMORY_POOL);
        out.result = cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMORY2);
    }
    if (out.result != CUPTI_SUCCESS) {
        activity_wanted_in.store(0);
        return out;
    }
    cupti.cuptiActivityFlushPeriod(kFlushPeriodMs);
    out.state = CuptiState::kOn;
    return out;
}

// The client that has come finds CUPTI as if nobody had been there, and all that it had for us is with us.
void leave(const char* who) {
    std::uint32_t running = kRunning;
    if (!phase.compare_exchange_strong(running, kLeaving)) return;
    if (used_in.load() != generation()) return;  // a child: nothing of it is touched
    for (const CUpti_ActivityKind kind : kKinds) cupti.cuptiActivityDisable(kind);
    cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    cupti.cuptiActivityFlushPeriod(0);
    std::size_t bytes = sizeof pinned_before;
    if (pinned_changed)
        cupti.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED, &bytes,
                                        &pinned_before);
    {
        const Telling telling;
        tell_state(no(CuptiState::kEnded, who));
    }
    activity_wanted_in.store(0, std::memory_order_release);
    phase.store(kOver, std::memory_order_release);
}

bool running_here() {
    return phase.load(std::memory_order_acquire) == kRunning && used_in.load() == generation();
}

}  // namespace

void begin_activity() {
    if (!attached() || session.cupti == wire::CuptiMode::kOff) return;
    const std::uint32_t attachment = generation();
    if (tried_in.exchange(attachment) == attachment) return;
    const int saved = errno;
    starter.store(&thread_state);
    phase.store(kStarting);
    const Decision decision = start(attachment);
    tell_state(decision);
    next_flush_ns.store(monotonic_ns() + kFlushPauseNs);
    phase.store(decision.state == CuptiState::kOn ? kRunning : kOver);
    if (const char* who = client.load()) leave(who);  // it came meanwhile
    errno = saved;
}

void flush_activity(std::uint64_t now_ns) {
    if (!running_here()) return;
    std::uint64_t due = next_flush_ns.load(std::memory_order_relaxed);
    if (now_ns < due || !next_flush_ns.compare_exchange_strong(due, now_ns + kFlushPauseNs)) return;
    cupti.cuptiActivityFlushAll(0);
}

void end_activity() {
    if (!running_here()) return;
    const Telling telling;
    cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    tell_state(no(CuptiState::kFinished, ""));
    activity_wanted_in.store(0, std::memory_order_release);
    phase.store(kOver, std::memory_order_release);
}

void give_way_to(const char* who) {
    const char* none = nullptr;
    client.compare_exchange_strong(none, who);
    const int saved = errno;
    const std::uint64_t deadline = monotonic_ns() + kPatienceNs;
    // Who is at it looks for clients after it has said so, and once more when it is done: one of the two sees
    // the other.
    for (;;) {
        const std::uint32_t now_in = phase.load();
        if (now_in == kRunning) leave(who);
        // In a child nobody is at it any more. Nor is anybody to wait for who comes out of a library that is
        // being brought in.
        const bool under_way =
            now_in == kStarting
                ? tried_in.load() == generation() && starter.load() != &thread_state
                : (now_in == kRunning || now_in == kLeaving) && used_in.load() == generation();
        if (!under_way || monotonic_ns() > deadline) break;
        sched_yield();
    }
    errno = saved;
}

}  // namespace fragscope::interpose
