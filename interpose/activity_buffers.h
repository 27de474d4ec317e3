// Buffers for CUPTI and what comes back in them, as records into the ring of the thread that brings them.
#pragma once

#include "interpose/rows.h"

#pragma GCC visibility push(default)
// Not all of cupti.h, which does not go with what rows.h wants of cuda.h.
#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <cupti_version.h>
#pragma GCC visibility pop

#include <atomic>

namespace fragscope::interpose {

// The functions that are used, of the library that is mapped; null: it has none of that name.
struct CuptiFunctions {
#define FRAGSCOPE_CUPTI_FUNCTIONS(X)     \
    X(cuptiGetVersion)                   \
    X(cuptiGetTimestamp)                 \
    X(cuptiSubscribe)                    \
    X(cuptiUnsubscribe)                  \
    X(cuptiActivityRegisterCallbacks)    \
    X(cuptiActivityEnable)               \
    X(cuptiActivityDisable)              \
    X(cuptiActivityFlushAll)             \
    X(cuptiActivityFlushPeriod)          \
    X(cuptiActivityGetNextRecord)        \
    X(cuptiActivityGetNumDroppedRecords) \
    X(cuptiActivityGetAttribute)         \
    X(cuptiActivitySetAttribute)         \
    X(cuptiActivityConfigureUnifiedMemoryCounter)
#define FRAGSCOPE_MEMBER(name) decltype(&::name) name = nullptr;
    FRAGSCOPE_CUPTI_FUNCTIONS(FRAGSCOPE_MEMBER)
#undef FRAGSCOPE_MEMBER
};
extern constinit CuptiFunctions cupti;  // written once, before CUPTI is told of the callbacks

// The attachment whose records are wanted; 0: none are, buffers are refused and records passed over.
extern constinit std::atomic<std::uint32_t> activity_wanted_in;

// Notes the moment from which on CUPTI's times are understood; before the first record. False: CUPTI does not
// tell its time.
bool begin_activity_times();

// The two callbacks. They take no lock, call CUPTI only to read what came, and never the driver.
void CUPTIAPI give_activity_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most);
void CUPTIAPI take_activity_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                                   std::size_t bytes, std::size_t valid);

// What is told while this exists is the shim's own, whatever the thread is in.
class Telling {
  public:
    Telling();
    ~Telling();
    Telling(const Telling&) = delete;
    Telling& operator=(const Telling&) = delete;

  private:
    bool entered_;
};

}  // namespace fragscope::interpose
