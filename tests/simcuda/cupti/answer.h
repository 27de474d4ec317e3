// What every exported function does first and last: settings that cannot be, faults that were asked for, the last error.
#pragma once

#include <cupti.h>

namespace fragscope::sim_cupti {

// The fault set for `function`, or CUPTI_SUCCESS.
CUptiResult begin(const char* function);
// Keeps an error for cuptiGetLastError and returns it.
CUptiResult answer(CUptiResult result);

}  // namespace fragscope::sim_cupti

// In a function of that name.
#define FRAGSCOPE_SIM_CUPTI_BEGIN()                                                              \
    if (const CUptiResult fault = ::fragscope::sim_cupti::begin(__func__); fault != CUPTI_SUCCESS) \
        return ::fragscope::sim_cupti::answer(fault)
