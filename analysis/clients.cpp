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

std::vector<Client> clients_of(const Trace& trace, ProcessIndex process) {
    std::vector<Client> out;
    if (process.value < trace.events.size()) {
        std::vector<bool> blocks(trace.functions.size());
        bool any = false;
        for (std::size_t i = 0; i < trace.functions.size(); ++i) {
            const std::string_view name = trace.functions[i];
            blocks[i] = name.find("reportMemoryUsageToProfiler") != std::string_view::npos ||
                        name.find("reportOutOfMemoryToProfiler") != std::string_view::npos ||
                        name.starts_with("RMM ");
            any = any || blocks[i];
        }
        // The names are of all processes: what this one called is in its events.
        if (any) {
            for (const Event& event : trace.events[process.value]) {
                if (event.kind < wire::Kind::kBlockAcquired || event.kind > wire::Kind::kBlockStream)
                    continue;
                if (event.function.value >= blocks.size() || !blocks[event.function.value]) continue;
                const bool rmm = trace.functions[event.function.value].starts_with("RMM ");
                add(out, rmm ? ClientKind::kRmm : ClientKind::kPyTorch,
                    rmm ? "its log" : "its allocator reports its blocks", true);
                break;
            }
        }
    }
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
