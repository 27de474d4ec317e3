#include "analysis/read/nsight_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "analysis/read/clean_text.h"

namespace fragscope::analysis {

namespace {

constexpr std::uint64_t kThreadBits = 0xffffff;
constexpr std::int64_t kMostDevice = 254;  // a trace holds no greater ordinal
// No machine has more address space: a greater size is no size.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 52;

// "Device Static", "CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC": whether that is DEVICE_STATIC.
bool means(std::string_view text, std::string_view value) {
    std::string upper(text);
    for (char& c : upper) c = c == ' ' ? '_' : (c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
    return upper == value || upper.ends_with("_" + std::string(value));
}

}  // namespace

std::int64_t nsight_pid(NsightProcess process) {
    return static_cast<std::int64_t>((process >> 24) & kThreadBits);
}

// The cells of one table's rows; the first one of a row that does not fit is remembered.
class NsightTables::Cells {
  public:
    template <std::size_t n>
    Cells(SqliteFile& file, const char* table, const std::array<const char*, n>& columns)
        : table_(table), columns_(columns.begin(), columns.end()), rows_(file, table, columns_) {}

    bool next() {
        wrong_.clear();
        return rows_.next();
    }
    bool has(std::size_t column) const { return rows_.has(column); }
    // A whole number that is not negative; nothing: NULL, or no such column.
    std::optional<std::uint64_t> number(std::size_t column) {
        const std::optional<std::int64_t> found = rows_.integer(column);
        if (found && *found < 0) say(column, *found, "a number from 0 on");
        return found && *found >= 0 ? std::optional(static_cast<std::uint64_t>(*found)) : std::nullopt;
    }
    std::uint64_t needed(std::size_t column) {
        const std::optional<std::uint64_t> found = number(column);
        if (!found && wrong_.empty() && rows_.wrong().empty())
            wrong_ = fmt::format("row {}: column {} holds nothing, expected a number", rows_.row(),
                                 columns_[column]);
        return found.value_or(0);
    }
    std::int16_t device(std::size_t column) {
        const std::uint64_t found = needed(column);
        if (found > kMostDevice) say(column, static_cast<std::int64_t>(found), "the number of a device");
        return static_cast<std::int16_t>(std::min<std::uint64_t>(found, kMostDevice));
    }
    std::uint64_t bytes(std::size_t column) {
        const std::uint64_t found = needed(column);
        if (found > kMostBytes) say(column, static_cast<std::int64_t>(found), "a number of bytes");
        return found;
    }
    NsightProcess process(std::size_t column) { return needed(column) & ~kThreadBits; }
    NsightPool pool(std::size_t address, std::size_t threshold, std::size_t size, std::size_t used) {
        NsightPool out;
        out.address = number(address).value_or(0);
        if (out.address == 0) return out;
        out.threshold = rows_.has(threshold) ? threshold_of(threshold) : std::nullopt;
        out.size = number(size);
        out.used = number(used);
        return out;
    }
    std::size_t value(std::size_t column, const std::map<std::int64_t, std::size_t>& values) {
        const auto found = static_cast<std::int64_t>(needed(column));
        const auto known = values.find(found);
        if (known == values.end()) say(column, found, "a value that is known");
        return known == values.end() ? 0 : known->second;
    }
    std::optional<std::int64_t> integer(std::size_t column) { return rows_.integer(column); }
    std::string text(std::size_t column) { return clean_text(rows_.text(column).value_or("")); }
    std::optional<std::string_view> raw_text(std::size_t column) { return rows_.text(column); }
    // Of this row; empty: nothing.
    const std::string& wrong() const { return rows_.wrong().empty() ? wrong_ : rows_.wrong(); }
    const char* table() const { return table_; }

  private:
    // The greatest threshold, "keep everything", comes out of SQLite's signed numbers as -1.
    std::optional<std::uint64_t> threshold_of(std::size_t column) {
        const std::optional<std::int64_t> found = rows_.integer(column);
        return found ? std::optional(static_cast<std::uint64_t>(*found)) : std::nullopt;
    }
    void say(std::size_t column, std::int64_t found, const char* expected) {
        if (wrong_.empty())
            wrong_ = fmt::format("row {}: column {} holds {}, expected {}", rows_.row(), columns_[column],
                                 found, expected);
    }

    const char* table_;
    std::vector<const char*> columns_;
    SqliteRows rows_;
    std::string wrong_;
};

void NsightTables::note(const char* table, const std::string& wrong) {
    if (bad_.count++ == 0) bad_.first = fmt::format("table {}: {}", table, wrong);
}

std::map<std::int64_t, std::size_t> NsightTables::values_of(const char* table, std::int64_t first,
                                                            std::initializer_list<const char*> names) {
    std::map<std::int64_t, std::size_t> out;
    if (!file_.has_table(table)) {
        for (std::size_t i = 0; i < names.size(); ++i) out[first + static_cast<std::int64_t>(i)] = i;
        return out;
    }
    Cells cells(file_, table, std::array{"id", "name", "label"});
    while (cells.next()) {
        const std::optional<std::int64_t> id = cells.integer(0);
        const std::string name = cells.text(1);
        const std::string label = cells.text(2);
        if (!id || !cells.wrong().empty()) continue;
        for (std::size_t i = 0; i < names.size(); ++i)
            if (means(name, names.begin()[i]) || means(label, names.begin()[i])) out[*id] = i;
    }
    return out;
}

void NsightTables::for_each_memory(const std::function<bool(const NsightMemoryRow&)>& visit) {
    enum : std::size_t {
        kStart,
        kProcess,
        kDevice,
        kContext,
        kAddress,
        kBytes,
        kKind,
        kOperation,
        kCorrelation,
        kStream,
        kPool,
        kThreshold,
        kSize,
        kUsed,
        kImported,
    };
    const auto kinds = values_of(
        "ENUM_CUDA_MEM_KIND", 0,
        {"PAGEABLE", "PINNED", "DEVICE", "ARRAY", "MANAGED", "DEVICE_STATIC", "MANAGED_STATIC", "UNKNOWN"});
    const auto operations = values_of("ENUM_CUDA_DEV_MEM_EVENT_OPER", 0, {"ALLOCATION", "DEALLOCATION"});
    Cells cells(file_, kNsightMemory,
                std::array{"start", "globalPid", "deviceId", "contextId", "address", "bytes", "memKind",
                           "memoryOperationType", "correlationId", "streamId", "localMemoryPoolAddress",
                           "localMemoryPoolReleaseThreshold", "localMemoryPoolSize",
                           "localMemoryPoolUtilizedSize", "importedMemoryPoolAddress"});
    while (cells.next()) {
        NsightMemoryRow row;
        row.at = cells.needed(kStart);
        row.process = cells.process(kProcess);
        row.device = cells.device(kDevice);
        row.context = cells.number(kContext).value_or(0);
        row.address = cells.needed(kAddress);
        row.bytes = cells.bytes(kBytes);
        row.kind = static_cast<NsightMemoryKind>(cells.value(kKind, kinds));
        row.released = cells.value(kOperation, operations) == 1;
        row.correlation = cells.number(kCorrelation);
        row.stream = cells.number(kStream).value_or(0);
        row.pool = cells.pool(kPool, kThreshold, kSize, kUsed);
        row.imported_pool = cells.number(kImported).value_or(0);
        if (!cells.wrong().empty()) {
            note(kNsightMemory, cells.wrong());
        } else if (!visit(row)) {
            return;
        }
    }
}

void NsightTables::for_each_pool(const std::function<bool(const NsightPoolRow&)>& visit) {
    enum : std::size_t {
        kStart,
        kProcess,
        kDevice,
        kOperation,
        kType,
        kCorrelation,
        kKeep,
        kAddress,
        kThreshold,
        kSize,
        kUsed
    };
    const auto operations = values_of("ENUM_CUDA_MEMPOOL_OPER", 1, {"CREATED", "DESTROYED", "TRIMMED"});
    const auto types = values_of("ENUM_CUDA_MEMPOOL_TYPE", 1, {"LOCAL", "IMPORTED"});
    Cells cells(file_, kNsightPools,
                std::array{"start", "globalPid", "deviceId", "operationType", "poolType", "correlationId",
                           "minBytesToKeep", "address", "localMemoryPoolReleaseThreshold",
                           "localMemoryPoolSize", "localMemoryPoolUtilizedSize"});
    while (cells.next()) {
        NsightPoolRow row;
        row.at = cells.needed(kStart);
        row.process = cells.process(kProcess);
        row.device = cells.device(kDevice);
        row.operation = static_cast<NsightPoolOperation>(cells.value(kOperation, operations));
        row.imported = cells.value(kType, types) == 1;
        row.correlation = cells.number(kCorrelation);
        row.keep = cells.number(kKeep).value_or(0);
        cells.needed(kAddress);
        row.pool = cells.pool(kAddress, kThreshold, kSize, kUsed);
        if (!cells.wrong().empty()) {
            note(kNsightPools, cells.wrong());
        } else if (!visit(row)) {
            return;
        }
    }
}

void NsightTables::for_each_call(const std::function<bool(const NsightCallRow&)>& visit) {
    enum : std::size_t { kStart, kEnd, kThread, kCorrelation, kName, kResult, kChain };
    for (const char* table : {kNsightCalls, kNsightDriverCalls}) {
        Cells cells(
            file_, table,
            std::array{"start", "end", "globalTid", "correlationId", "nameId", "returnValue", "callchainId"});
        results_told_ = results_told_ || cells.has(kResult);
        while (cells.next()) {
            NsightCallRow row;
            row.from = cells.needed(kStart);
            row.to = cells.needed(kEnd);
            const std::uint64_t thread = cells.needed(kThread);
            row.process = thread & ~kThreadBits;
            row.thread = static_cast<std::int32_t>(thread & kThreadBits);
            row.correlation = cells.number(kCorrelation);
            row.name = cells.integer(kName).value_or(0);
            row.result = cells.integer(kResult).value_or(0);
            row.chain = cells.integer(kChain);
            if (!cells.wrong().empty()) {
                note(table, cells.wrong());
            } else if (row.to < row.from) {
                note(table,
                     fmt::format("a call that begins at {} ns and ends at {} ns, expected an end behind it",
                                 row.from, row.to));
            } else if (!visit(row)) {
                return;
            }
        }
    }
}

void NsightTables::for_each_synchronization(
    const std::function<bool(const NsightSynchronizationRow&)>& visit) {
    enum : std::size_t { kStart, kEnd, kProcess, kDevice, kContext, kStream, kType };
    const auto types =
        values_of("ENUM_CUPTI_SYNC_TYPE", 1,
                  {"EVENT_SYNCHRONIZE", "STREAM_WAIT_EVENT", "STREAM_SYNCHRONIZE", "CONTEXT_SYNCHRONIZE"});
    Cells cells(file_, kNsightSynchronizations,
                std::array{"start", "end", "globalPid", "deviceId", "contextId", "streamId", "syncType"});
    while (cells.next()) {
        const std::optional<std::int64_t> type = cells.integer(kType);
        const auto known = types.find(type.value_or(-1));
        // Of events it is not known what they stand behind.
        if (cells.wrong().empty() && (known == types.end() || known->second < 2)) continue;
        NsightSynchronizationRow row;
        row.from = cells.needed(kStart);
        row.to = cells.needed(kEnd);
        row.process = cells.process(kProcess);
        row.device = cells.device(kDevice);
        row.context = cells.number(kContext).value_or(0);
        row.stream = known != types.end() && known->second == 2 ? cells.needed(kStream) : 0;
        if (!cells.wrong().empty()) {
            note(kNsightSynchronizations, cells.wrong());
        } else if (row.to >= row.from && !visit(row)) {
            return;
        }
    }
}

void NsightTables::for_each_frame(const std::function<bool(const NsightFrameRow&)>& visit) {
    enum : std::size_t { kChain, kDepth, kSymbol, kModule, kAddress };
    Cells cells(file_, kNsightCallChains, std::array{"id", "stackDepth", "symbol", "module", "originalIP"});
    while (cells.next()) {
        NsightFrameRow row;
        row.chain = cells.integer(kChain).value_or(0);
        row.depth = cells.needed(kDepth);
        row.symbol = cells.integer(kSymbol);
        row.module = cells.integer(kModule);
        row.address = static_cast<std::uint64_t>(cells.integer(kAddress).value_or(0));
        if (!cells.wrong().empty()) {
            note(kNsightCallChains, cells.wrong());
        } else if (!visit(row)) {
            return;
        }
    }
}

void NsightTables::for_each_text(const std::function<bool(std::int64_t, std::string_view)>& visit) {
    Cells cells(file_, kNsightTexts, std::array{"id", "value"});
    while (cells.next()) {
        const std::optional<std::int64_t> id = cells.integer(0);
        const std::optional<std::string_view> text = cells.raw_text(1);
        if (id && text && !visit(*id, *text)) return;
    }
}

std::map<NsightProcess, NsightTables::Process> NsightTables::processes() {
    std::map<NsightProcess, Process> out;
    Cells cells(file_, "PROCESSES", std::array{"globalPid", "pid", "name"});
    while (cells.next()) {
        const NsightProcess process = cells.process(0);
        Process said;
        said.pid = cells.integer(1);
        said.name = cells.text(2);
        if (cells.wrong().empty()) out.emplace(process, std::move(said));
    }
    return out;
}

NsightTables::Devices NsightTables::devices() {
    Devices out;
    std::map<std::int64_t, NsightGpu> gpus;
    {
        Cells cells(file_, "TARGET_INFO_GPU", std::array{"id", "name", "totalMemory", "uuid", "cuDevice"});
        while (cells.next()) {
            NsightGpu gpu;
            const std::optional<std::int64_t> id = cells.integer(0);
            gpu.name = cells.text(1);
            gpu.total_bytes = cells.number(2);
            if (gpu.total_bytes == 0u) gpu.total_bytes.reset();
            gpu.uuid = cells.text(3);
            const std::optional<std::int64_t> device = cells.integer(4);
            if (!id || !cells.wrong().empty()) continue;
            gpus.emplace(*id, gpu);
            // A number of CUDA's where there is one. -1: the device is none for CUDA.
            if (!cells.has(4)) out.by_pid[0].emplace(*id, gpu);
            if (device && *device >= 0) out.by_pid[0].emplace(*device, gpu);
        }
    }
    out.gpus = gpus.size();
    Cells cells(file_, "TARGET_INFO_CUDA_DEVICE", std::array{"gpuId", "cudaId", "pid", "uuid"});
    while (cells.next()) {
        const std::optional<std::int64_t> id = cells.integer(0);
        const std::optional<std::int64_t> device = cells.integer(1);
        const std::optional<std::int64_t> pid = cells.integer(2);
        const std::string uuid = cells.text(3);
        if (!cells.wrong().empty() || !device || !pid || *pid <= 0) continue;
        const auto known = gpus.find(id.value_or(-1));
        NsightGpu gpu = known == gpus.end() ? NsightGpu{} : known->second;
        if (!uuid.empty()) gpu.uuid = uuid;
        out.by_pid[*pid].emplace(*device, gpu);
    }
    return out;
}

const std::map<std::int64_t, NsightGpu>* NsightTables::Devices::of(std::int64_t pid) const {
    auto found = by_pid.find(pid);
    if (found == by_pid.end()) found = by_pid.find(0);
    return found == by_pid.end() ? nullptr : &found->second;
}

std::string NsightTables::meta(std::string_view name) {
    Cells cells(file_, "META_DATA_EXPORT", std::array{"name", "value"});
    while (cells.next())
        if (cells.text(0) == name) return cells.text(1);
    return "";
}

std::string NsightTables::host_name() {
    Cells cells(file_, "TARGET_INFO_SYSTEM_ENV", std::array{"name", "value"});
    while (cells.next())
        if (cells.text(0) == "Hostname") return cells.text(1);
    return "";
}

std::optional<std::uint64_t> NsightTables::start_unix_ns() {
    Cells cells(file_, "TARGET_INFO_SESSION_START_TIME", std::array{"utcEpochNs"});
    if (!cells.next()) return std::nullopt;
    return cells.number(0);
}

}  // namespace fragscope::analysis
