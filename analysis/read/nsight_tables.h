// What the tables of Nsight Systems' SQLite export say about memory, row by row and checked; nothing of
// traces yet. The columns are those of NVIDIA's "SQLite Export Schema Reference" and of exports of 2021 to
// 2026 (schema versions up to 3.2x): tables are there only if they hold something, columns came and went, and
// exporters of 2021 write 0 where later ones write NULL. Numbers of enumerations are read through the
// export's own ENUM_… tables; where these are not there, as all known exports have them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/read/sqlite_file.h"

namespace fragscope::analysis {

// Tables.
inline constexpr const char* kNsightMemory = "CUDA_GPU_MEMORY_USAGE_EVENTS";
inline constexpr const char* kNsightPools = "CUDA_GPU_MEMORY_POOL_EVENTS";
inline constexpr const char* kNsightCalls = "CUPTI_ACTIVITY_KIND_RUNTIME";
inline constexpr const char* kNsightDriverCalls = "CUPTI_ACTIVITY_KIND_DRIVER";
inline constexpr const char* kNsightSynchronizations = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";
inline constexpr const char* kNsightCallChains = "CUDA_CALLCHAINS";
inline constexpr const char* kNsightTexts = "StringIds";

// A process, as all tables name it: the serialized id with its thread's bits cleared.
using NsightProcess = std::uint64_t;
std::int64_t nsight_pid(NsightProcess process);

enum class NsightMemoryKind : std::uint8_t {
    kPageable,
    kPinned,
    kDevice,
    kArray,
    kManaged,
    kDeviceStatic,
    kManagedStatic,
    kUnknown,
};

// A pool as the driver described it at the event; absent: not told.
struct NsightPool {
    std::uint64_t address = 0;  // what names it; 0: none
    std::optional<std::uint64_t> threshold;
    std::optional<std::uint64_t> size;
    std::optional<std::uint64_t> used;
};

// Times in nanoseconds since the session's start.
struct NsightMemoryRow {
    std::uint64_t at = 0;
    NsightProcess process = 0;
    std::int16_t device = 0;
    std::uint64_t context = 0;
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    NsightMemoryKind kind = NsightMemoryKind::kUnknown;
    bool released = false;
    std::uint64_t stream = 0;                  // 0: not told
    std::optional<std::uint64_t> correlation;  // with a call of this process
    NsightPool pool;
    std::uint64_t imported_pool = 0;  // 0: it is not of one
};

enum class NsightPoolOperation : std::uint8_t { kCreated, kDestroyed, kTrimmed };

struct NsightPoolRow {
    std::uint64_t at = 0;
    NsightProcess process = 0;
    std::int16_t device = 0;
    NsightPoolOperation operation = NsightPoolOperation::kCreated;
    bool imported = false;
    std::optional<std::uint64_t> correlation;
    std::uint64_t keep = 0;
    NsightPool pool;
};

struct NsightCallRow {
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    NsightProcess process = 0;
    std::int32_t thread = 0;
    std::optional<std::uint64_t> correlation;
    std::int64_t name = 0;  // in StringIds
    std::int64_t result = 0;
    std::optional<std::int64_t> chain;  // in CUDA_CALLCHAINS
};

// A synchronisation that is over: everything before it in the stream, or in the whole context, is done.
struct NsightSynchronizationRow {
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    NsightProcess process = 0;
    std::int16_t device = 0;
    std::uint64_t context = 0;
    std::uint64_t stream = 0;  // 0: the whole context
};

struct NsightFrameRow {
    std::int64_t chain = 0;
    std::uint64_t depth = 0;             // 0: innermost
    std::optional<std::int64_t> symbol;  // in StringIds
    std::optional<std::int64_t> module;  // in StringIds
    std::uint64_t address = 0;           // 0: not told
};

struct NsightGpu {
    std::string name;
    std::optional<std::uint64_t> total_bytes;
    std::string uuid;  // as the export spells it; may be empty
};

// Rows that make no sense are counted and left out.
struct NsightBadRows {
    std::uint64_t count = 0;
    std::string first;  // "table …: row 7: column bytes holds a text, expected a whole number"
};

class NsightTables {
  public:
    explicit NsightTables(SqliteFile& file) : file_(file) {}

    // Each in the order in which the rows are stored; where a visit answers false, the table is left.
    // SqliteFile::problem() says whether all of it was read.
    void for_each_memory(const std::function<bool(const NsightMemoryRow&)>& visit);
    void for_each_pool(const std::function<bool(const NsightPoolRow&)>& visit);
    void for_each_call(const std::function<bool(const NsightCallRow&)>& visit);
    void for_each_synchronization(const std::function<bool(const NsightSynchronizationRow&)>& visit);
    void for_each_frame(const std::function<bool(const NsightFrameRow&)>& visit);
    void for_each_text(const std::function<bool(std::int64_t, std::string_view)>& visit);

    // By process: what PROCESSES says of it.
    struct Process {
        std::optional<std::int64_t> pid;
        std::string name;
    };
    std::map<NsightProcess, Process> processes();
    // What lies behind the devices' numbers. A number may mean another device in another process: by process
    // id, where the export has that, else by 0.
    struct Devices {
        std::map<std::int64_t, std::map<std::int64_t, NsightGpu>> by_pid;
        std::size_t gpus = 0;  // in the machine, as far as the export knows
        const std::map<std::int64_t, NsightGpu>* of(std::int64_t pid) const;
    };
    Devices devices();
    // The value of a name in META_DATA_EXPORT, empty if it is not there.
    std::string meta(std::string_view name);
    std::string host_name();
    std::optional<std::uint64_t> start_unix_ns();

    // Of the tables of events.
    const NsightBadRows& bad() const { return bad_; }
    // Whether the calls' tables say how calls ended.
    bool results_told() const { return results_told_; }

  private:
    class Cells;
    void note(const char* table, const std::string& wrong);
    // By number in the export: index in `names`.
    std::map<std::int64_t, std::size_t> values_of(const char* table, std::int64_t first,
                                                  std::initializer_list<const char*> names);

    SqliteFile& file_;
    NsightBadRows bad_;
    bool results_told_ = false;
};

}  // namespace fragscope::analysis
