#include "analysis/contract.h"

#include <fmt/format.h>

#include <array>

namespace fragscope::analysis {
namespace {

using wire::Kind;

constexpr Shape kPhysical = report::Contract::physical;
constexpr Shape kVirtual = report::Contract::virtual_only;
constexpr Shape kSegmented = report::Contract::segmented;

// Larger: it demands more.
int demand(Shape shape) {
    switch (shape) {
        case report::Contract::physical:
            return 3;
        case report::Contract::virtual_only:
            return 2;
        case report::Contract::segmented:
            return 1;
        default:
            return 0;
    }
}

MadeBy kind_of(const RequestFacts& request) {
    switch (request.kind) {
        case Kind::kLinearAcquired:
        case Kind::kPitchAcquired:
        case Kind::kBlockRefused:
            return MadeBy::kLinear;
        case Kind::kHandleCreated:
            return MadeBy::kHandle;
        case Kind::kPoolAcquired:
            return MadeBy::kPool;
        case Kind::kManagedAcquired:
            return MadeBy::kManaged;
        default:
            return MadeBy::kAny;
    }
}

struct Rule {
    Use use;
    const char* id;
    const char* what;
    Shape demands;
    const char* why;
    bool one_allocation;
};

constexpr std::array<Rule, 11> kRules = {{
    {Use::kCopied, "copies", "copies and memsets that name an address inside such memory", kVirtual,
     "one address and a length: every byte between has to follow", false},
    {Use::kBlocks, "framework", "blocks that a framework's allocator cuts out of it", kVirtual,
     "each block is one range of addresses inside one segment", false},
    {Use::kIpcExported, "legacy_ipc", "exports to other processes (cuIpcGetMemHandle)", kVirtual,
     "only a block of cuMemAlloc can be exported so, and always as a whole", true},
    {Use::kRangeExported, "range_export", "exports of a range as a file (dma-buf), as for network cards",
     kVirtual,
     "the importer maps one range; what it pins goes through the device's BAR1 window, whose size is not in "
     "this trace",
     true},
    {Use::kHandleExported, "handle_export", "exports of handles to other processes", kSegmented,
     "each handle is exported and imported by itself: in pieces, every piece has to be", false},
    {Use::kPoolExported, "pool_export", "exports of pools or their pointers", kVirtual,
     "a pool's pointer names one allocation of that pool", true},
    {Use::kPeers, "peers", "access by other devices", kVirtual,
     "they use the same addresses; of memory that is put together of pieces, access to each piece has to be "
     "set",
     false},
    {Use::kMulticast, "multicast", "bindings to multicast objects", kVirtual,
     "memory is bound in units of the multicast granularity, which may be larger than the device's minimum: "
     "no "
     "piece may be smaller",
     false},
    {Use::kArrays, "arrays", "arrays and mipmaps with such memory behind them", kSegmented,
     "it is mapped tile by tile", false},
    {Use::kGraphs, "graphs", "launched graphs", kVirtual,
     "a graph keeps the addresses that it was made with: moving the memory leaves it with the old ones",
     false},
    {Use::kStitched, "stitched", "handles that the program itself mapped side by side", kSegmented,
     "it puts ranges together of pieces already", false},
}};

std::string function_named(const Trace& trace, FunctionId id) {
    return id.value < trace.functions.size() ? trace.functions[id.value] : "";
}

std::vector<std::string> not_visible_for(const RequestFacts& request) {
    std::vector<std::string> out;
    if (request.draws == Draws::kHost || request.draws == Draws::kContext) return out;
    if (request.draws != Draws::kAddressSpace) {
        out.emplace_back(
            "which kernels are given such addresses, and whether they step from one piece to the next: a "
            "launch's arguments are not recorded");
        out.emplace_back(
            "texture objects over such memory, and addresses that are handed to libraries (NCCL, cuBLAS, "
            "MPI, a "
            "network card's driver) inside the process: no call that is recorded tells of them");
    }
    if (request.kind == Kind::kHandleCreated)
        out.emplace_back(
            "whether the handle was asked to be gpuDirectRDMACapable or compressible: the record of "
            "cuMemCreate "
            "holds its size, its place and what it may be exported as");
    return out;
}

// What cuMemCreate was asked to be exportable as, by the bits of CUmemAllocationHandleType.
std::string handle_types_in_words(std::uint32_t types) {
    struct Type {
        std::uint32_t bit;
        const char* name;
    };
    constexpr std::array<Type, 4> kTypes = {{{1, "a POSIX file descriptor"},
                                             {2, "a Windows handle"},
                                             {4, "a Windows KMT handle"},
                                             {8, "a fabric handle"}}};
    std::string out;
    for (const Type& type : kTypes) {
        if ((types & type.bit) != 0) out += (out.empty() ? "" : ", ") + std::string(type.name);
    }
    return out.empty() ? "a kind that is not known here" : out;
}

void declare(Contract& out, std::optional<Shape> declared) {
    out.shape = out.inferred;
    if (!declared) return;
    out.declared = true;
    out.shape = *declared;
}

Shape inferred_shape(const RequestFacts& request) {
    switch (request.contiguity) {
        case report::Request::physical:
            return kPhysical;
        case report::Request::virtual_only:
            return kVirtual;
        case report::Request::segmented:
            return kSegmented;
        default:
            return report::Contract::shape_unspecified;
    }
}

}  // namespace

std::optional<Shape> shape_named(const std::string& name) {
    if (name == "physical") return kPhysical;
    if (name == "virtual") return kVirtual;
    if (name == "segmented") return kSegmented;
    return std::nullopt;
}

Contract contract_of(const RequestFacts& request, std::optional<Shape> declared) {
    Contract out;
    out.inferred = inferred_shape(request);
    out.reasoning = request.contiguity_reason;
    out.not_visible = not_visible_for(request);
    if (request.handle_types != 0) {
        out.consumers.push_back({"exportable",
                                 "other processes, for whom this very handle was asked to be exportable as " +
                                     handle_types_in_words(request.handle_types),
                                 1,
                                 kSegmented,
                                 "each handle is imported and mapped by itself",
                                 true,
                                 {}});
    }
    declare(out, declared);
    return out;
}

Contract contract_of(const RequestFacts& request, std::optional<Shape> declared, const ConsumerRecorder& seen,
                     const Trace& trace, ProcessIndex process) {
    Contract out = contract_of(request, declared);
    const MadeBy kind = kind_of(request);
    if (kind == MadeBy::kAny) return out;
    const std::uint64_t launches =
        process.value < trace.losses.size() ? trace.losses[process.value].kernel_launches() : 0;
    if (launches != 0) {
        out.consumers.push_back(
            {"kernels",
             "kernels, any of which may be given the address",
             launches,
             kVirtual,
             "a kernel steps from one address to the next, unless it was written to follow "
             "pieces",
             false,
             {}});
    }
    for (const Rule& rule : kRules) {
        // A framework's segment may be of either kind: what it demands holds for its blocks' request, too.
        const ConsumerRecorder::Seen* found = seen.seen(rule.use, kind);
        if (found == nullptr && rule.use == Use::kGraphs) found = seen.seen(rule.use, MadeBy::kAny);
        if (found == nullptr) continue;
        Consumer one{rule.id, rule.what, found->count, rule.demands, rule.why, rule.one_allocation, {}};
        for (const FunctionId function : found->functions) {
            if (std::string name = function_named(trace, function); !name.empty())
                one.functions.push_back(std::move(name));
        }
        out.consumers.push_back(std::move(one));
    }
    // Somebody who demands more than the call itself does decides.
    for (const Consumer& one : out.consumers) {
        if (demand(one.demands) <= demand(out.inferred)) continue;
        out.inferred = one.demands;
        out.reasoning += "; " + one.what + ": " + one.why;
    }
    declare(out, declared);
    return out;
}

std::vector<std::string> to_be_checked(const Contract& contract, Shape weaker) {
    std::vector<std::string> out;
    if (demand(weaker) >= demand(contract.inferred)) return out;
    for (const Consumer& one : contract.consumers) {
        if (demand(one.demands) <= demand(weaker) && !one.one_allocation) continue;
        std::string functions;
        for (const std::string& function : one.functions)
            functions += (functions.empty() ? "" : ", ") + function;
        out.push_back(fmt::format("{} ({}{}): {}", one.what,
                                  one.count == 1 ? std::string("once") : fmt::format("{} times", one.count),
                                  functions.empty() ? "" : "; " + functions, one.why));
    }
    for (const std::string& hidden : contract.not_visible) out.push_back("not in this trace: " + hidden);
    return out;
}

report::Contract message_of(const Contract& contract) {
    report::Contract out;
    out.set_shape(contract.shape);
    out.set_inferred(contract.inferred);
    out.set_reasoning(contract.reasoning);
    out.set_declared(contract.declared);
    for (const Consumer& one : contract.consumers) {
        report::Consumer& message = *out.add_consumers();
        message.set_id(one.id);
        message.set_what(one.what);
        message.set_count(one.count);
        message.set_demands(one.demands);
        message.set_why(one.why);
        message.set_one_allocation(one.one_allocation);
        for (const std::string& function : one.functions) message.add_functions(function);
    }
    if (demand(contract.shape) < demand(contract.inferred)) {
        for (const std::string& who : to_be_checked(contract, contract.shape)) out.add_to_be_checked(who);
    }
    for (const std::string& hidden : contract.not_visible) out.add_not_visible(hidden);
    return out;
}

}  // namespace fragscope::analysis
