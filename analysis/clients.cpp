#include "analysis/clients.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace fragscope::analysis {
namespace {

// Beginnings of the names of files that only this software loads.
constexpr std::array<std::pair<std::string_view, ClientKind>, 8> kFiles = {{
    {"libc10_cuda.so", ClientKind::kPyTorch},
    {"libtorch_cuda", ClientKind::kPyTorch},
    {"libtensorflow", ClientKind::kTensorFlow},
    {"_pywrap_tensorflow", ClientKind::kTensorFlow},
    {"xla_extension", ClientKind::kJax},
    {"xla_cuda_plugin", ClientKind::kJax},
    {"libjax", ClientKind::kJax},
    {"librmm.so", ClientKind::kRmm},
}};

std::string_view file_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

void add(std::vector<Client>& out, ClientKind kind, std::string seen_by, bool tells_blocks) {
    const auto same =
        std::find_if(out.begin(), out.end(), [&](const Client& each) { return each.kind == kind; });
    if (same == out.end())
        out.push_back({kind, std::move(seen_by), tells_blocks});
    else
        same->tells_blocks = same->tells_blocks || tells_blocks;
}

}  // namespace

const char* client_name(ClientKind kind) {
    switch (kind) {
        case ClientKind::kPyTorch:
            return "PyTorch";
        case ClientKind::kTensorFlow:
            return "TensorFlow";
        case ClientKind::kJax:
            return "JAX";
        case ClientKind::kRmm:
            return "RMM";
    }
    return "";
}

BlockTellers::BlockTellers(const Trace& trace) : by_function_(trace.functions.size()) {
    for (std::size_t i = 0; i < trace.functions.size(); ++i) {
        const std::string_view name = trace.functions[i];
        if (name.starts_with("RMM "))
            by_function_[i] = ClientKind::kRmm;
        else if (name.find("reportMemoryUsageToProfiler") != std::string_view::npos ||
                 name.find("reportOutOfMemoryToProfiler") != std::string_view::npos)
            by_function_[i] = ClientKind::kPyTorch;
    }
}

void BlockTellers::add(const Event& event) {
    if (event.kind < wire::Kind::kBlockAcquired || event.kind > wire::Kind::kBlockStream || found_) return;
    if (event.function.value < by_function_.size()) found_ = by_function_[event.function.value];
}

std::vector<Client> clients_of(const Trace& trace, ProcessIndex process, const BlockTellers& tellers) {
    std::vector<Client> out;
    if (const auto kind = tellers.found())
        add(out, *kind, *kind == ClientKind::kRmm ? "its log" : "its allocator reports its blocks", true);
    if (process.value < trace.names.size()) {
        std::vector<std::string_view> files;
        for (const auto& [id, module] : trace.names[process.value].modules)
            files.push_back(file_of(module.path()));
        std::sort(files.begin(), files.end());
        for (const std::string_view file : files) {
            for (const auto& [begins, kind] : kFiles) {
                if (file.starts_with(begins)) add(out, kind, std::string(file) + " is loaded", false);
            }
        }
    }
    return out;
}

}  // namespace fragscope::analysis
