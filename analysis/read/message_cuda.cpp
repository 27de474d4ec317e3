// Lines that name CUDA's error for memory: what was asked for, and of what there was too little, they do not say.
#include "analysis/read/message_cuda.h"

#include <algorithm>
#include <array>

#include "analysis/read/message_text.h"

namespace fragscope::analysis {

namespace {

// In squeezed text, without regard to case.
constexpr std::array<std::string_view, 22> kNames = {
    "cuda_error_out_of_memory", "cudaerrormemoryallocation", "hiperroroutofmemory", "hip_error_out_of_memory",
    "cublas_status_alloc_failed", "cudnn_status_alloc_failed", "cufft_alloc_failed", "cusolver_status_alloc_failed",
    "cusparse_status_alloc_failed", "cudaerror:outofmemory", "cudaerror2", "cudaruntimeerror(2):outofmemory",
    "error=2:outofmemory", "cudaoutofmemory", "hipoutofmemory", "cudaerror(2)", "cudafailure2'outofmemory'",
    "cudafailure'outofmemory'", "cudaruntime(outofmemory)", "curesulterrorresult=2", "cudamallocfailed:outofmemory",
    "outofgpumemory"};

class CudaErrorReader final : public MessageReader {
  public:
    using MessageReader::MessageReader;

    void line(const TextPiece& piece) override {
        squeezed_.clear();
        append_squeezed(squeezed_, piece.text);
        std::transform(squeezed_.begin(), squeezed_.end(), squeezed_.begin(), [](char c) {
            return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        });
        constexpr std::array<std::string_view, 3> kAlways = {"memory", "alloc", "error"};  // one is in each name
        if (std::none_of(kAlways.begin(), kAlways.end(),
                         [&](std::string_view word) { return squeezed_.find(word) != std::string::npos; }))
            return;
        const bool named = std::any_of(kNames.begin(), kNames.end(), [&](std::string_view name) {
            return squeezed_.find(name) != std::string::npos;
        });
        if (!named) return;
        ImportedState state;
        state.kind = "cuda-error";
        state.in_words = "a line that names CUDA's error for memory";
        state.line = piece.line;
        state.scenario.title = "CUDA had no memory for a request of unknown size";
        state.scenario.device_name = "the GPU";
        state.scenario.device.context = {0, std::nullopt};
        state.scenario.device.other_processes = {0, std::nullopt};
        state.scenario.device.device_free = {0, std::nullopt};
        state.scenario.request.kind = ScenarioRequest::Kind::kDriver;
        state.scenario.request.bytes = {0, std::nullopt};
        state.not_in_source = {
            "How much was asked for, and by which call.",
            "The capacity of the device, and what of it was held by whom: nvidia-smi at that moment tells, a recording "
            "(`fragscope run`) tells all of it.",
            "Whether memory was short at all: the same error stands for address space, for what the host may commit and "
            "for other limits."};
        found().add({std::move(state), FoundStates::Says::kError, "", piece.line});
    }

    void end() override {}

  private:
    std::string squeezed_;
};

}  // namespace

constinit const MessageKind kCudaError{
    "cuda-error", "a line that names CUDA's error for memory",
    "CUDA_ERROR_OUT_OF_MEMORY, cudaErrorMemoryAllocation, …_STATUS_ALLOC_FAILED, \"CUDA error: out of memory\"",
    [](FoundStates& found) -> std::unique_ptr<MessageReader> { return std::make_unique<CudaErrorReader>(found); }};

}  // namespace fragscope::analysis
