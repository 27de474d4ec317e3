// The callback API: who is subscribed, and what that one has switched on. No callback is ever made.
#include "answer.h"
#include "records.h"
#include "settings.h"

#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

using namespace fragscope::sim_cupti;

struct CUpti_Subscriber_st {
    std::string name;
    std::map<std::pair<CUpti_CallbackDomain, CUpti_CallbackId>, bool> enabled;
};

namespace {

std::mutex lock;
CUpti_Subscriber_st* holder = nullptr;
// All that ever were: a handle that is used too late is only wrong.
std::deque<CUpti_Subscriber_st>& subscribers() {
    static auto* const all = new std::deque<CUpti_Subscriber_st>;
    return *all;
}

// The name of who stands in the way; empty: nobody.
std::string in_the_way() {
    if (holder != nullptr) return holder->name;
    return settings().subscriber;
}

CUptiResult subscribe(CUpti_SubscriberHandle* out, const char* name, char* old, std::size_t old_bytes) {
    if (out == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
    std::lock_guard<std::mutex> guard(lock);
    if (const std::string other = in_the_way(); !other.empty()) {
        if (old != nullptr && old_bytes != 0) std::snprintf(old, old_bytes, "%s", other.c_str());
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    holder = &subscribers().emplace_back();
    holder->name = name == nullptr ? "CUPTI" : "CUPTI for " + std::string(name).substr(0, CUPTI_SUBSCRIBER_NAME_MAX_LEN);
    *out = holder;
    return CUPTI_SUCCESS;
}

bool is_domain(CUpti_CallbackDomain domain) { return domain > CUPTI_CB_DOMAIN_INVALID && domain < CUPTI_CB_DOMAIN_SIZE; }

}  // namespace

extern "C" {

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc, void*) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    return answer(subscribe(subscriber, nullptr, nullptr, 0));
}

CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc, void*,
                              CUpti_SubscriberParams* params) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    if (params == nullptr) return answer(subscribe(subscriber, nullptr, nullptr, 0));
    if (params->structSize < CUpti_SubscriberParams_STRUCT_SIZE) return answer(CUPTI_ERROR_INVALID_PARAMETER);
    return answer(subscribe(subscriber, params->subscriberName, params->oldSubscriberName, params->oldSubscriberSize));
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    std::lock_guard<std::mutex> guard(lock);
    if (subscriber == nullptr || subscriber != holder) return answer(CUPTI_ERROR_INVALID_PARAMETER);
    holder = nullptr;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                CUpti_CallbackId id) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    std::lock_guard<std::mutex> guard(lock);
    if (subscriber == nullptr || subscriber != holder || !is_domain(domain)) return answer(CUPTI_ERROR_INVALID_PARAMETER);
    holder->enabled[{domain, id}] = on != 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetCallbackState(uint32_t* on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                  CUpti_CallbackId id) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    std::lock_guard<std::mutex> guard(lock);
    if (on == nullptr || subscriber == nullptr || subscriber != holder || !is_domain(domain)) {
        return answer(CUPTI_ERROR_INVALID_PARAMETER);
    }
    const auto found = holder->enabled.find({domain, id});
    *on = found != holder->enabled.end() && found->second ? 1 : 0;
    return CUPTI_SUCCESS;
}

// A whole domain: the state of single functions is not told apart here.
CUptiResult cuptiEnableDomain(uint32_t on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    return cuptiEnableCallback(on, subscriber, domain, 0);
}

CUptiResult cuptiEnableAllDomains(uint32_t on, CUpti_SubscriberHandle subscriber) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    return cuptiEnableCallback(on, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, 0);
}

CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t, const char** name) {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    if (name == nullptr || !is_domain(domain)) return answer(CUPTI_ERROR_INVALID_PARAMETER);
    *name = "unknown";
    return CUPTI_SUCCESS;
}

CUptiResult cuptiFinalize() {
    FRAGSCOPE_SIM_CUPTI_BEGIN();
    for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_MEMORY2, CUPTI_ACTIVITY_KIND_MEMORY_POOL,
                                          CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER}) {
        enable(kind, false);
    }
    std::lock_guard<std::mutex> guard(lock);
    holder = nullptr;
    return CUPTI_SUCCESS;
}

}  // extern "C"
