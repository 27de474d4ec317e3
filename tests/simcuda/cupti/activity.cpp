// The activity API, versions and texts.
#include "answer.h"
#include "records.h"
#include "settings.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

using namespace fragscope::sim_cupti;

namespace fragscope::sim_cupti {
namespace {
thread_local CUptiResult last_error = CUPTI_SUCCESS;
}  // namespace

CUptiResult begin(const char* function) {
    if (!settings().wrong.empty()) return CUPTI_ERROR_NOT_INITIALIZED;
    // Its worker is not in a child of fork(): whoever asks it there is counted.
    static const pid_t first = ::getpid();
    if (::getpid() != first) note_misuse();
    if (const auto delay = settings().delays.find(function); delay != settings().delays.end())
        std::this_thread::sleep_for(std::chrono::nanoseconds(delay->second));
    const auto found = settings().faults.find(function);
    return found == settings().faults.end() ? CUPTI_SUCCESS : static_cast<CUptiResult>(found->second);
}

CUptiResult answer(CUptiResult result) {
    if (result != CUPTI_SUCCESS) last_error = result;
    return result;
}

namespace {

bool is_kind(CUpti_ActivityKind kind) { return kind > CUPTI_ACTIVITY_KIND_INVALID && kind < CUPTI_ACTIVITY_KIND_COUNT; }

CUptiResult flush_all(std::uint32_t flag) {
    if (!has_client()) return CUPTI_ERROR_INVALID_OPERATION;
    if (in_callback()) return note_misuse(), CUPTI_ERROR_INVALID_OPERATION;
    flush((flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0);
    return CUPTI_SUCCESS;
}

struct Text {
    CUptiResult result;
    const char* name;
};
constexpr Text kTexts[] = {
#define FRAGSCOPE_TEXT(name) {name, #name},
    FRAGSCOPE_TEXT(CUPTI_SUCCESS) FRAGSCOPE_TEXT(CUPTI_ERROR_INVALID_PARAMETER)
    FRAGSCOPE_TEXT(CUPTI_ERROR_INVALID_DEVICE) FRAGSCOPE_TEXT(CUPTI_ERROR_INVALID_CONTEXT)
    FRAGSCOPE_TEXT(CUPTI_ERROR_INVALID_OPERATION) FRAGSCOPE_TEXT(CUPTI_ERROR_OUT_OF_MEMORY)
    FRAGSCOPE_TEXT(CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT) FRAGSCOPE_TEXT(CUPTI_ERROR_MAX_LIMIT_REACHED)
    FRAGSCOPE_TEXT(CUPTI_ERROR_NOT_READY) FRAGSCOPE_TEXT(CUPTI_ERROR_NOT_COMPATIBLE)
    FRAGSCOPE_TEXT(CUPTI_ERROR_NOT_INITIALIZED) FRAGSCOPE_TEXT(CUPTI_ERROR_QUEUE_EMPTY)
    FRAGSCOPE_TEXT(CUPTI_ERROR_INVALID_KIND) FRAGSCOPE_TEXT(CUPTI_ERROR_DISABLED)
    FRAGSCOPE_TEXT(CUPTI_ERROR_NOT_SUPPORTED) FRAGSCOPE_TEXT(CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED)
    FRAGSCOPE_TEXT(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES) FRAGSCOPE_TEXT(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
    FRAGSCOPE_TEXT(CUPTI_ERROR_UNKNOWN)
#undef FRAGSCOPE_TEXT
};

// Attributes: only this one changes anything here; sizes of buffers and semaphores are taken and given back.
std::size_t attribute_bytes(CUpti_ActivityAttribute attribute) {
    switch (attribute) {
        case CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER:
        case CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED:
        case CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER: return sizeof(std::uint8_t);
        default: return attribute >= 0 && attribute <= CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_DEVICE_GRAPHS
                            ? sizeof(std::size_t)
                            : 0;
    }
}
std::size_t* attribute_value(CUpti_ActivityAttribute attribute) {
    static std::size_t values[CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_DEVICE_GRAPHS + 1] = {3200000, 8388608, 250,   25000, 250,
                                                                                          0,       3,       3,     0,     1,
                                                                                          16777216};
    return &values[attribute];
}

}  // namespace
}  // namespace fragscope::sim_cupti

extern "C" {

CUptiResult cuptiGetVersion(uint32_t* version) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    if (version == nullptr) return answer(CUPTI_ERROR_INVALID_PARAMETER);
    *version = settings().version;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(uint64_t* timestamp) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    if (timestamp == nullptr) return answer(CUPTI_ERROR_INVALID_PARAMETER);
    *timestamp = timestamp_now();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetLastError() {
    const CUptiResult result = fragscope::sim_cupti::last_error;
    fragscope::sim_cupti::last_error = CUPTI_SUCCESS;
    return result;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
    if (text == nullptr) return answer(CUPTI_ERROR_INVALID_PARAMETER);
    for (const Text& each : kTexts) {
        if (each.result == result) return *text = each.name, CUPTI_SUCCESS;
    }
    return answer(CUPTI_ERROR_INVALID_PARAMETER);
}

CUptiResult cuptiGetErrorMessage(CUptiResult result, const char** text) { return cuptiGetResultString(result, text); }

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    if (requested == nullptr || completed == nullptr) return answer(CUPTI_ERROR_INVALID_PARAMETER);
    set_client(requested, completed);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc timestamp) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    if (timestamp == nullptr) return answer(CUPTI_ERROR_INVALID_PARAMETER);
    set_timestamp(timestamp);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    if (!is_kind(kind)) return answer(CUPTI_ERROR_INVALID_KIND);
    enable(kind, true);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableAndDump(CUpti_ActivityKind kind) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    return cuptiActivityEnable(kind);
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    if (!is_kind(kind)) return answer(CUPTI_ERROR_INVALID_KIND);
    enable(kind, false);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t flag) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    return answer(flush_all(flag));
}

CUptiResult cuptiActivityFlush(CUcontext, uint32_t, uint32_t flag) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    return answer(flush_all(flag));
}

CUptiResult cuptiActivityFlushPeriod(uint32_t time) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    set_period(time);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    if (dropped == nullptr) return answer(CUPTI_ERROR_INVALID_PARAMETER);
    *dropped = take_dropped();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, CUpti_Activity** record) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    if (buffer == nullptr || record == nullptr) return answer(CUPTI_ERROR_INVALID_PARAMETER);
    const auto* last = reinterpret_cast<const uint8_t*>(*record);
    const size_t at = last == nullptr ? 0 : static_cast<size_t>(last - buffer) + record_bytes((*record)->kind);
    if (at >= valid) return answer(CUPTI_ERROR_MAX_LIMIT_REACHED);
    auto* next = reinterpret_cast<CUpti_Activity*>(buffer + at);
    const size_t bytes = record_bytes(next->kind);
    if (bytes == 0 || bytes > valid - at) return answer(CUPTI_ERROR_INVALID_KIND);
    *record = next;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute attribute, size_t* bytes, void* value) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    const size_t needed = attribute_bytes(attribute);
    if (bytes == nullptr || value == nullptr || needed == 0) return answer(CUPTI_ERROR_INVALID_PARAMETER);
    if (*bytes < needed) return answer(CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT);
    std::memcpy(value, attribute_value(attribute), needed);
    *bytes = needed;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t* bytes, void* value) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    const size_t needed = attribute_bytes(attribute);
    if (bytes == nullptr || value == nullptr || needed == 0) return answer(CUPTI_ERROR_INVALID_PARAMETER);
    if (*bytes < needed) return answer(CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT);
    std::memcpy(attribute_value(attribute), value, needed);
    if (attribute == CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED) set_pinned(*static_cast<uint8_t*>(value) != 0);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityConfigureUnifiedMemoryCounter(CUpti_ActivityUnifiedMemoryCounterConfig* config, uint32_t count) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    return answer(config == nullptr || count == 0 ? CUPTI_ERROR_INVALID_PARAMETER : CUPTI_SUCCESS);
}

CUptiResult cuptiActivityEnableAllocationSource(uint8_t on) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    set_allocation_source(on != 0);
    return CUPTI_SUCCESS;
}

// Of records that are never made here: taken, and without effect.
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind, uint64_t) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind, uint64_t* last) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    if (last != nullptr) *last = 0;
    return answer(CUPTI_ERROR_QUEUE_EMPTY);
}
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId, uint8_t) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId, uint8_t) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnableLatencyTimestamps(uint8_t) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    return CUPTI_SUCCESS;
}

}  // extern "C"
