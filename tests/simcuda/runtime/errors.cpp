// Error numbers, names and words. Since CUDA 10.1 an error that exists in both interfaces has the same number
// in both, so that the mapping is the identity on the numbers that the runtime knows, with one exception.
#include <cuda_runtime_api.h>

#include "state.h"

namespace fragscope::simrt {
namespace {

struct ErrorText {
    const char* name;
    const char* words;
};

ErrorText text_of(cudaError_t error) {
    switch (error) {
#define ERROR(name, words) \
    case name:             \
        return {#name, words};
#include "errors.def"
#undef ERROR
    }
    return {nullptr, nullptr};
}

}  // namespace

cudaError_t to_runtime_error(CUresult result) {
    if (result == CUDA_ERROR_CONTEXT_ALREADY_CURRENT) return cudaErrorIncompatibleDriverContext;
    const auto same_number = static_cast<cudaError_t>(result);
    return text_of(same_number).name != nullptr ? same_number : cudaErrorUnknown;
}

}  // namespace fragscope::simrt

using namespace fragscope::simrt;

const char* cudaGetErrorName(cudaError_t error) {
    const ErrorText text = text_of(error);
    return text.name != nullptr ? text.name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
    const ErrorText text = text_of(error);
    return text.words != nullptr ? text.words : "unrecognized error code";
}

cudaError_t cudaGetLastError() { return take_last_error(); }

cudaError_t cudaPeekAtLastError() { return peek_last_error(); }
