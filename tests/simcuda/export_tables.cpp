// cuGetExportTable: the private tables that NVIDIA's runtime asks for while it starts, as far as public
// observation of its start-up shows what it expects of them. Every other UUID is not found.
//
// In particular d4082055-bde6-704b-8d34-ba123c66e1f2, by which NVIDIA's runtime authenticates the driver, is NOT
// FOUND and must stay so: that answer is never to be forged, skipped or imitated. NVIDIA's own runtime therefore
// starts on this driver and then stops; README.md says so to users.
#include <cstdio>
#include <cstring>
#include <map>

#include "contexts.h"

namespace fragscope::sim {
namespace {

using Code = void (*)();
union Word {
    std::size_t number;
    Code code;
};

CUresult unknown_slot() { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult nothing_to_do() { return CUDA_SUCCESS; }

CUresult primary_of_device(CUcontext* context, CUdevice device) {
    if (g_driver == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
    if (context == nullptr || !driver().device_ok(device)) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    *context = primary_handle_locked(device);
    return CUDA_SUCCESS;
}

template <std::size_t Bytes>
CUresult zeroed_buffer(void** buffer, std::size_t* bytes) {
    static unsigned char zeroes[Bytes];
    if (buffer == nullptr || bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *buffer = zeroes;
    *bytes = Bytes;
    return CUDA_SUCCESS;
}

// Values that the runtime keeps for each context under keys of its own.
struct ContextStorage {
    std::mutex lock;
    std::map<std::pair<CUcontext, void*>, void*> values;
};
ContextStorage& storage() {
    static ContextStorage* const state = new ContextStorage;
    return *state;
}

CUcontext this_or_current(CUcontext context) {
    if (context == nullptr) impl::cuCtxGetCurrent(&context);
    return context;
}

CUresult storage_put(CUcontext context, void* key, void* value, void (*)(CUcontext, void*, void*)) {
    context = this_or_current(context);
    std::lock_guard<std::mutex> guard(storage().lock);
    storage().values[{context, key}] = value;
    return CUDA_SUCCESS;
}

CUresult storage_delete(CUcontext context, void* key) {
    context = this_or_current(context);
    std::lock_guard<std::mutex> guard(storage().lock);
    return storage().values.erase({context, key}) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult storage_get(void** value, CUcontext context, void* key) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    context = this_or_current(context);
    std::lock_guard<std::mutex> guard(storage().lock);
    const auto found = storage().values.find({context, key});
    if (found == storage().values.end()) return CUDA_ERROR_INVALID_HANDLE;
    *value = found->second;
    return CUDA_SUCCESS;
}

template <typename F>
Word code(F* function) {
    Word word;
    word.code = reinterpret_cast<Code>(function);
    return word;
}

// A table whose first word is its size in bytes; slots that nobody is known to use answer "not supported".
template <std::size_t Words>
struct SizedTable {
    Word words[Words];
    SizedTable() {
        for (Word& word : words) word = code(&unknown_slot);
        words[0].number = sizeof words;
    }
};

struct Tables {
    SizedTable<10> runtime_interface;  // slot 2: the primary context of a device
    SizedTable<7> tools_callbacks;     // slots 2 and 6: buffers
    SizedTable<4> tools_tls;
    SizedTable<4> context_checks;      // slot 3
    Word context_storage[3] = {code(&storage_put), code(&storage_delete), code(&storage_get)};  // no size word
    Tables() {
        runtime_interface.words[2] = code(&primary_of_device);
        tools_callbacks.words[2] = code(&zeroed_buffer<1024>);
        tools_callbacks.words[6] = code(&zeroed_buffer<14>);
        context_checks.words[3] = code(&nothing_to_do);
    }
};

const void* find(const char* uuid) {
    static const Tables* const tables = new Tables;
    const std::pair<const char*, const void*> known[] = {
        {"6bd5fb6c-5bf4-e74a-8987-d93912fd9df9", &tables->runtime_interface},
        {"a094798c-2e74-2e74-93f2-0800200c0a66", &tables->tools_callbacks},
        {"42d85a81-23f6-cb47-8298-f6e78a3aecdc", &tables->tools_tls},
        {"c693336e-1121-df11-a8c3-68f355d89593", tables->context_storage},
        {"263e8860-7cd2-6143-92f6-bbd5006dfa7e", &tables->context_checks},
    };
    for (const auto& [name, table] : known) {
        if (std::strcmp(name, uuid) == 0) return table;
    }
    return nullptr;
}

}  // namespace

namespace impl {

CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
    if (ppExportTable == nullptr || pExportTableId == nullptr) return CUDA_ERROR_INVALID_VALUE;
    char uuid[40];
    char* at = uuid;
    for (int i = 0; i < 16; ++i) {
        at += std::snprintf(at, 4, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                            static_cast<unsigned>(static_cast<unsigned char>(pExportTableId->bytes[i])));
    }
    *ppExportTable = find(uuid);
    log_table(uuid, *ppExportTable != nullptr);
    return *ppExportTable == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace fragscope::sim
