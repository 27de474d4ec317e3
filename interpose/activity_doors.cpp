// The ways by which another client of CUPTI shows itself: it subscribes, or registers callbacks for buffers.
// Calls that the dynamic linker binds come to the exports below (the shim stands first in the search order),
// look-ups by dlsym to answer_cupti(). Both go on to the library that the caller would have reached.
#include <dlfcn.h>

#include <cstring>

#include "interpose/activity.h"
#include "interpose/activity_buffers.h"
#include "interpose/doors.h"
#include "interpose/objects.h"

namespace fragscope::interpose {

namespace {

struct Search {
    const Wanted& name;
    BehindUs behind_us;
    void* found = nullptr;
};

// The first loaded object behind the shim that exports the function: CUPTI, or a tool that stands before it.
// Found in place, as asking the loader would cost a pending dlerror().
void* first_after_us(const Wanted& name) {
    Search search{name};
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            auto& wanted = *static_cast<Search*>(data);
            Object object;
            if (!describe(*info, object)) return 0;
            if (wanted.behind_us.holds(object)) wanted.found = find_symbol(object, wanted.name);
            return wanted.found != nullptr ? 1 : 0;
        },
        &search);
    return search.found;
}

// What the caller would have reached without the shim; nullptr: nothing.
void* real_function(const Wanted& name, const void* caller) {
    void* found = nullptr;
    if (count_objects("libcupti.so") > 1) found = look_up_in_scope_of(caller, name.name);
    return found != nullptr ? found : first_after_us(name);
}

template <typename Function>
Function client_calls(const Wanted& name, const void* caller) {
    if (!in_cupti(caller)) give_way_to(name.name);
    return reinterpret_cast<Function>(real_function(name, caller));
}

}  // namespace

bool in_cupti(const void* address) {
    Dl_info info;
    if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) return false;
    const char* slash = std::strrchr(info.dli_fname, '/');
    return named(slash != nullptr ? slash + 1 : info.dli_fname, "libcupti.so");
}

}  // namespace fragscope::interpose

using namespace fragscope::interpose;

extern "C" {

[[gnu::visibility("default")]] CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle* subscriber,
                                                                   CUpti_CallbackFunc callback, void* data) {
    const auto real =
        client_calls<decltype(&::cuptiSubscribe)>(wanted("cuptiSubscribe"), __builtin_return_address(0));
    return real != nullptr ? real(subscriber, callback, data) : CUPTI_ERROR_NOT_INITIALIZED;
}

[[gnu::visibility("default")]] CUptiResult CUPTIAPI cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber,
                                                                      CUpti_CallbackFunc callback, void* data,
                                                                      CUpti_SubscriberParams* params) {
    const auto real = client_calls<decltype(&::cuptiSubscribe_v2)>(wanted("cuptiSubscribe_v2"),
                                                                   __builtin_return_address(0));
    return real != nullptr ? real(subscriber, callback, data, params) : CUPTI_ERROR_NOT_INITIALIZED;
}

[[gnu::visibility("default")]] CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(
    CUpti_BuffersCallbackRequestFunc requested, CUpti_BuffersCallbackCompleteFunc completed) {
    const auto real = client_calls<decltype(&::cuptiActivityRegisterCallbacks)>(
        wanted("cuptiActivityRegisterCallbacks"), __builtin_return_address(0));
    return real != nullptr ? real(requested, completed) : CUPTI_ERROR_NOT_INITIALIZED;
}

}  // extern "C"

namespace fragscope::interpose {

bool answer_cupti(void* handle, const char* name, const void* caller, void** result) {
    struct Door {
        const char* name;
        void* ours;
    };
    const Door doors[] = {
        {"cuptiSubscribe", reinterpret_cast<void*>(&::cuptiSubscribe)},
        {"cuptiSubscribe_v2", reinterpret_cast<void*>(&::cuptiSubscribe_v2)},
        {"cuptiActivityRegisterCallbacks", reinterpret_cast<void*>(&::cuptiActivityRegisterCallbacks)}};
    for (const Door& door : doors) {
        if (std::strcmp(name, door.name) != 0) continue;
        void* const real = first_after_us({door.name, gnu_hash_of(door.name)});
        // Next after the caller: ours if it stands before us, and then only as true as what is behind.
        if (handle == RTLD_NEXT && real != nullptr) return false;
        void* found =
            handle == RTLD_DEFAULT || handle == RTLD_NEXT ? door.ours : look_up_as_asked(handle, name);
        if (found == door.ours) found = look_up_after_us(name);
        if (found == nullptr && handle == RTLD_DEFAULT) found = look_up_in_scope_of(caller, name);
        *result = found != nullptr && found == real ? door.ours : found;
        return true;
    }
    return false;
}

}  // namespace fragscope::interpose
