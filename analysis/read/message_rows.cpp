// One row is one wording of one program: what its amounts are, and what it asked. Adding a wording is adding a row;
// where several stand at one place, the first row that fits counts, so that longer ones stand before those that
// they begin with.
//
// What the amounts mean is from the programs' sources: CuPy's "allocated so far" is what its pool has taken from the
// driver; RMM's sizes are "current" and "maximum" of its pool; vLLM's are shares of the device at its start.
#include "analysis/read/message_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "analysis/read/message_pattern.h"
#include "analysis/read/message_text.h"
#include "analysis/read/message_torch_state.h"
#include "analysis/scenario_layout.h"

namespace fragscope::analysis {

namespace {

// Who was asked, and so what the request draws on.
enum class Asked : std::uint8_t {
    kDriver,     // for device memory
    kAllocator,  // an allocator that keeps memory of its own
    kLimit,      // an allocator that says itself that its limit refused
    kPinned,     // the driver, for page-locked host memory
    kHost        // the host, for memory
};

struct Row {
    const char* kind;
    const char* who;  // "llama.cpp"
    const char* pattern;
    Asked asked;
    std::uint64_t rounding = 0;  // of the allocator's blocks; 0: not known, or none
};

constexpr std::array kRows = {
    // ggml
    Row{"ggml-message", "ggml (llama.cpp)", "allocating%rondevice%d:cudaMallocfailed:outofmemory", Asked::kDriver},
    Row{"ggml-message", "ggml (llama.cpp)", "allocating%rondevice%d:hipMallocfailed:outofmemory", Asked::kDriver},
    Row{"ggml-message", "ggml (llama.cpp)", "failedtoallocateCUDA_Hostbufferofsize%r", Asked::kPinned},
    Row{"ggml-message", "ggml (llama.cpp)", "failedtoallocateCUDA%dbufferofsize%r", Asked::kDriver},
    Row{"ggml-message", "ggml (llama.cpp)", "failedtoallocateROCm%dbufferofsize%r", Asked::kDriver},
    Row{"ggml-message", "ggml (llama.cpp)", "failedtoallocateVulkan%dbufferofsize%r", Asked::kDriver},
    Row{"ggml-message", "ggml (llama.cpp)", "failedtoallocate%rofpinnedmemory", Asked::kPinned},
    Row{"ollama-message", "Ollama", "modelrequiresmoresystemmemory(%r)thanisavailable(%h)", Asked::kHost},
    // vLLM
    Row{"vllm-message", "vLLM",
        "Freememoryondevice%*(%F/%CGiB)onstartupislessthandesiredGPUmemoryutilization(%n,%r)", Asked::kDriver},
    Row{"vllm-message", "vLLM",
        "Availablememoryonnode%n(%H/%NGiB)onkvcacheallocationislessthanrequestedmemoryforkv(%R/", Asked::kHost},
    Row{"vllm-message", "vLLM",
        "maxseqlen(%n),(%rKVcacheisneeded,whichislargerthantheavailableKVcachememory(%l)", Asked::kLimit},
    Row{"vllm-message", "vLLM",
        "maxseqlen(%n),%rKVcacheisneeded,whichislargerthantheavailableKVcachememory(%l)", Asked::kLimit},
    Row{"vllm-message", "vLLM", "Noavailablememoryforthecacheblocks", Asked::kLimit},
    Row{"vllm-message", "vLLM", "islargerthanthemaximumnumberoftokensthatcanbestoredinKVcache(", Asked::kLimit},
    // CuPy
    Row{"cupy-message", "CuPy", "Outofmemoryallocating%r(allocatedsofar:%u,limitsetto:%l)", Asked::kAllocator, 512},
    Row{"cupy-message", "CuPy", "Outofmemoryallocating%r(allocatedsofar:%u", Asked::kAllocator, 512},
    // RMM
    Row{"rmm-message", "RMM", "oolsizeexceeded(failedtoallocate%r):Notenoughroomtogrow,current/max/trysize=%u,%l,%n",
        Asked::kLimit, 256},
    Row{"rmm-message", "RMM", "oolsizeexceeded(failedtoallocate%r):current/max/trysize=%u,%l,%n", Asked::kLimit, 256},
    Row{"rmm-message", "RMM", "oolsizeexceeded(failedtoallocate%r)", Asked::kLimit, 256},
    Row{"rmm-debug-log", "RMM",
        "[Upstream%r][FAILUREmaximumpoolsizeexceeded:Notenoughroomtogrow,current/max/trysize=%u,%l,%n]",
        Asked::kLimit, 256},
    Row{"rmm-debug-log", "RMM", "[Upstream%r][FAILUREmaximumpoolsizeexceeded", Asked::kLimit, 256},
    Row{"rmm-debug-log", "RMM", "[Upstream%r][FAILUREmaxpoolsizeexceeded", Asked::kLimit, 256},
    Row{"rmm-debug-log", "RMM", "[Upstream%r][FAILURE", Asked::kAllocator, 256},
    Row{"rmm-message", "RMM", "Maximumpoolsizeexceeded", Asked::kLimit, 256},
    Row{"rmm-message", "RMM", "Exceededmemorylimit(failedtoallocate%r)", Asked::kLimit},
    Row{"rmm-message", "RMM", "out_of_memory:CUDAerror(failedtoallocate%r)", Asked::kDriver},
    // XLA, TensorFlow and JAX
    Row{"xla-message", "XLA", "Failedtoallocaterequestfor%r(%r)ondeviceordinal%d", Asked::kAllocator, 256},
    Row{"xla-message", "XLA", "Ranoutofmemoryinmemoryspacehbm.Used%rof%chbm", Asked::kDriver},
    Row{"xla-message", "XLA (JAX, TensorFlow)", "Outofmemorywhiletryingtoallocate%r", Asked::kAllocator, 256},
    Row{"xla-message", "XLA (JAX, TensorFlow)", "RESOURCE_EXHAUSTED:Outofmemoryallocating%r", Asked::kAllocator, 256},
    Row{"tensorflow-message", "TensorFlow", "failedtoallocate%r(%r)fromdevice:", Asked::kDriver},
    Row{"tensorflow-message", "TensorFlow", "failedtoalloc%ronhost:", Asked::kPinned},
    Row{"tensorflow-message", "TensorFlow", "couldnotallocatepinnedhostmemoryofsize:%r", Asked::kPinned},
    // ONNX Runtime
    Row{"onnxruntime-message", "ONNX Runtime", "Availablememoryof%lissmallerthanrequestedbytesof%r", Asked::kLimit, 256},
    Row{"onnxruntime-message", "ONNX Runtime", "Failedtoallocatememoryforrequestedbufferofsize%r", Asked::kAllocator,
        256},
    // others
    Row{"cuda-jl-message", "CUDA.jl",
        "OutofGPUmemorytryingtoallocate%rEffectiveGPUmemoryusage:%n%%(%x/%c)Memorypoolusage:%i(%ureserved)",
        Asked::kAllocator},
    Row{"cuda-jl-message", "CUDA.jl", "EffectiveGPUmemoryusage:%n%%(%x/%c)Memorypoolusage:%i(%ureserved)",
        Asked::kAllocator},
    Row{"cuda-jl-message", "CUDA.jl", "OutofGPUmemorytryingtoallocate%r", Asked::kAllocator},
    Row{"paddle-message", "PaddlePaddle",
        "OutofmemoryerroronGPU%d.Cannotallocate%rmemoryonGPU%d,%nmemoryhasbeenallocatedandavailablememoryisonly%f",
        Asked::kDriver},
    Row{"nccl-message", "NCCL", "FailedtoCUDAcalloc%r", Asked::kDriver},
    Row{"nccl-message", "NCCL", "FailedtoCUDAmalloc%r", Asked::kDriver},
    Row{"nccl-message", "NCCL", "FailedtoCUDAhostalloc%r", Asked::kPinned},
    Row{"tensorrt-message", "TensorRT", "RequestedamountofGPUmemory(%r)couldnotbeallocated", Asked::kDriver},
    Row{"faiss-message", "Faiss", "StandardGpuResources:allocfail%*dev%d%*size%r(", Asked::kDriver},
    Row{"xgboost-message", "XGBoost", "-Freememory:%f-Requestedmemory:%r", Asked::kDriver},
    Row{"nvmap-message", "NvMap (Jetson)", "NvMapMemAllocInternalTagged:%rerror12", Asked::kDriver},
    Row{"memtest-message", "cuda_memtest", "driverreportedatleast%rarefreebutlargestpossibleallocationis%n",
        Asked::kDriver},
    // Last: CuPy's without what it holds, and whoever says the same.
    Row{"allocator-message", "an allocator", "Outofmemoryallocating%r", Asked::kAllocator},
};

const Interval kOpen{0, std::nullopt};

void put_device(const Row& row, const PatternAmounts& amounts, ImportedState& out) {
    ScenarioDevice& device = out.scenario.device;
    device.context = kOpen;
    device.other_processes = kOpen;
    device.capacity = amounts.capacity.value_or(Interval{});
    device.device_free = {0, device.capacity.high};
    if (amounts.device_free) device.device_free = *amounts.device_free;
    if (amounts.capacity && amounts.taken) device.device_free = less(*amounts.capacity, *amounts.taken);
    const bool host = row.asked == Asked::kPinned || row.asked == Asked::kHost;
    if (host) {
        if (amounts.host) device.commit_limit = *amounts.host;
        if (!amounts.host)
            out.not_in_source.emplace_back("What of the host's memory was available, and which limits it sets.");
        return;
    }
    if (!amounts.capacity) out.not_in_source.emplace_back("The capacity of the device.");
    if (!amounts.device_free && !amounts.taken)
        out.not_in_source.emplace_back("What of the device was held by nobody: the driver's word is not in it.");
    out.not_in_source.emplace_back("What other processes hold on the device, and this one outside of its allocator.");
}

void put_allocator(const Row& row, const PatternAmounts& amounts, ImportedState& out) {
    ScenarioRequest& request = out.scenario.request;
    request.kind = ScenarioRequest::Kind::kAllocator;
    request.block_rounding = row.rounding;
    request.gaps_refused = true;
    ScenarioSegment segment;
    segment.id = "segments";
    segment.several = true;
    segment.bytes = amounts.held.value_or(kOpen);
    if (amounts.in_blocks) segment.blocks.push_back({"live", std::nullopt, *amounts.in_blocks, std::nullopt, false});
    if (!amounts.in_blocks) {
        // Somewhere between all of it and nothing.
        segment.unused = Interval{0, segment.bytes.high};
        out.not_in_source.emplace_back("How much of what the allocator holds is in use, and where it is unused.");
    }
    if (!amounts.held) out.not_in_source.emplace_back("What the allocator holds.");
    out.scenario.segments.push_back(std::move(segment));
    if (amounts.limit) out.scenario.device.allocator_limit = *amounts.limit;
}

ImportedState state_of(const Row& row, const PatternAmounts& amounts, std::uint64_t line) {
    ImportedState out;
    out.kind = row.kind;
    out.in_words = fmt::format("a message of {}", row.who);
    out.line = line;
    Scenario& scenario = out.scenario;
    scenario.device_name = amounts.device ? fmt::format("GPU {}", *amounts.device) : std::string("the GPU");
    scenario.request.bytes = amounts.request.value_or(kOpen);
    scenario.title = fmt::format("{} could not get {}", row.who,
                                 amounts.request ? in_short(*amounts.request) : std::string("what it wanted"));
    if (!amounts.request) out.not_in_source.emplace_back("How much was asked for.");
    if (amounts.contradicts)
        out.warnings.emplace_back("The message states the request twice, and no number of bytes is both; the second is taken.");
    put_device(row, amounts, out);
    switch (row.asked) {
        case Asked::kDriver:
            scenario.request.kind = ScenarioRequest::Kind::kDriver;
            note_refusal(scenario);
            break;
        case Asked::kAllocator:
            put_allocator(row, amounts, out);
            break;
        case Asked::kLimit:
            put_allocator(row, amounts, out);
            scenario.refused_by = LimitKind::kAllocatorLimit;
            break;
        case Asked::kPinned:
        case Asked::kHost:
            scenario.request.kind = ScenarioRequest::Kind::kPinnedHost;
            break;
    }
    return out;
}

// Whether any row may begin with these two characters: nearly everywhere in a log none does.
class Beginnings {
  public:
    constexpr Beginnings() {
        for (const Row& row : kRows) set(row.pattern[0], row.pattern[1]);
    }
    bool test(std::string_view text) const {
        if (text.size() < 2) return false;
        const std::size_t bit = index(text[0], text[1]);
        return (bits_[bit / 64] >> (bit % 64) & 1U) != 0;
    }

  private:
    static constexpr std::size_t index(char a, char b) {
        // Squeezed text is ASCII.
        return (static_cast<std::size_t>(static_cast<unsigned char>(a)) & 127U) * 128 +
               (static_cast<std::size_t>(static_cast<unsigned char>(b)) & 127U);
    }
    constexpr void set(char a, char b) { bits_[index(a, b) / 64] |= std::uint64_t{1} << (index(a, b) % 64); }

    std::array<std::uint64_t, 256> bits_{};
};
constexpr Beginnings kBeginnings;

// Looks at the lines a few behind, so that a message that is wrapped is there to its end.
class RowReader final : public MessageReader {
  public:
    using MessageReader::MessageReader;

    void line(const TextPiece& piece) override {
        if (lines_ == kLines) {
            look(starts_[1]);
            cut(starts_[1]);
        }
        starts_[lines_] = text_.size();
        numbers_[lines_] = piece.line;
        begins_[lines_] = piece.begins;
        ++lines_;
        append_squeezed(text_, piece.begins ? without_log_prefix(piece.text) : piece.text);
    }

    void end() override { look(text_.size()); }

  private:
    static constexpr std::size_t kLines = 4;

    std::uint64_t line_at(std::size_t place) const {
        std::uint64_t line = numbers_[0];
        for (std::size_t i = 0; i < lines_; ++i)
            if (starts_[i] <= place) line = numbers_[i];
        return line;
    }

    // Drops the first line, and what is before `place`.
    void cut(std::size_t place) {
        text_.erase(0, place);
        for (std::size_t i = 1; i < lines_; ++i) {
            starts_[i - 1] = starts_[i] - std::min(starts_[i], place);
            numbers_[i - 1] = numbers_[i];
            begins_[i - 1] = begins_[i];
        }
        --lines_;
        passed_ -= std::min(passed_, place);
    }

    // Messages that begin before `end`.
    void look(std::size_t end) {
        const std::string_view text = text_;
        while (passed_ < end) {
            const std::size_t at = passed_++;
            if (!kBeginnings.test(text.substr(at))) continue;
            std::array<std::size_t, kLines> breaks{};
            std::size_t count = 0;
            for (std::size_t i = 0; i < lines_; ++i)
                if (starts_[i] > at && begins_[i]) breaks[count++] = starts_[i] - at;
            for (const Row& row : kRows) {
                PatternAmounts amounts;
                const auto bytes = match_pattern(row.pattern, text.substr(at), std::span(breaks).first(count), amounts);
                if (!bytes) continue;
                found().add({state_of(row, amounts, line_at(at)), FoundStates::Says::kRequest, row.pattern,
                             line_at(at + *bytes - 1)});
                passed_ = at + *bytes;
                break;
            }
        }
    }

    std::string text_;
    std::array<std::size_t, kLines> starts_{};
    std::array<std::uint64_t, kLines> numbers_{};
    std::array<bool, kLines> begins_{};  // a line; else more of a very long one
    std::size_t lines_ = 0;
    std::size_t passed_ = 0;
};

}  // namespace

constinit const MessageKind kAllocatorMessage{
    "allocator-message", "a message of an allocator or a library",
    "the wordings of XLA (JAX, TensorFlow), vLLM, llama.cpp, CuPy, RMM, ONNX Runtime, NCCL and others",
    [](FoundStates& found) -> std::unique_ptr<MessageReader> { return std::make_unique<RowReader>(found); }};

}  // namespace fragscope::analysis
