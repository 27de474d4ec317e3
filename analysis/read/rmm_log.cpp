// Reads the CSV log of RAPIDS RMM's logging_resource_adaptor: one line for each allocation, each failed
// allocation and each deallocation of one memory resource of one process, in the order in which they were
// logged.
//
//   Thread,Time,Action,Pointer,Size,Stream
//   4711,13:37:05.000123,allocate,0x7f2a00000000,1048576,0x0
//
// What RMM's versions write differently is all taken (read off their sources, 0.15 to 26.10, and off their
// logs): pointers and streams as 0x…, as bare hexadecimal digits, as (nil) or 0; times with '.' or ':' before
// the microseconds. Builds of November 2024 could print their format instead of the values
// ("allocate,%p,%zu,%s"): such a line is counted as lost. A line is logged after an allocation and before a
// deallocation, so the order of the lines is a possible order of the calls, like that of a recording's
// sequence numbers.
#include "analysis/read/rmm_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <optional>

#include "analysis/read/line_reader.h"

namespace fragscope::analysis {

namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kDay = 24 * 60 * 60 * kSecond;
constexpr std::size_t kMaxColumns = 16;

enum class Column : std::uint8_t { kThread, kTime, kAction, kPointer, kSize, kStream };
constexpr std::array<std::string_view, 6> kColumnNames{"Thread",  "Time", "Action",
                                                       "Pointer", "Size", "Stream"};
constexpr std::string_view kHeader = "Thread,Time,Action,Pointer,Size,Stream";

// In which field of a line a column lies.
struct Columns {
    std::array<std::optional<std::size_t>, kColumnNames.size()> at{0, 1, 2, 3, 4, 5};
    std::size_t fields = kColumnNames.size();
    bool has(Column column) const { return at.at(static_cast<std::size_t>(column)).has_value(); }
};

struct Fields {
    std::array<std::string_view, kMaxColumns> text;
    std::size_t count = 0;  // may be more than kMaxColumns
    std::string_view operator()(const Columns& columns, Column column) const {
        return text.at(columns.at.at(static_cast<std::size_t>(column)).value_or(0));
    }
};

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

Fields split(std::string_view line) {
    Fields out;
    for (;;) {
        const std::size_t comma = line.find(',');
        if (out.count < kMaxColumns) out.text.at(out.count) = trimmed(line.substr(0, comma));
        ++out.count;
        if (comma == std::string_view::npos) return out;
        line.remove_prefix(comma + 1);
    }
}

std::optional<std::uint64_t> number(std::string_view text, int base) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
    return value;
}

// A pointer or stream in any of RMM's spellings.
std::optional<std::uint64_t> pointer(std::string_view text) {
    if (text == "(nil)") return 0;
    if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
    return number(text, 16);
}

// Nanoseconds since midnight of HH:MM:SS.ffffff.
std::optional<std::uint64_t> time_of_day(std::string_view text) {
    if (text.size() < 10 || text.size() > 18 || text[2] != ':' || text[5] != ':' ||
        (text[8] != '.' && text[8] != ':'))
        return std::nullopt;
    const auto hours = number(text.substr(0, 2), 10);
    const auto minutes = number(text.substr(3, 2), 10);
    const auto seconds = number(text.substr(6, 2), 10);
    auto fraction = number(text.substr(9), 10);
    if (!hours || !minutes || !seconds || !fraction || *hours > 23 || *minutes > 59 || *seconds > 60)
        return std::nullopt;
    for (std::size_t digits = text.size() - 9; digits < 9; ++digits) *fraction *= 10;
    return ((*hours * 60 + *minutes) * 60 + *seconds) * kSecond + *fraction;
}

std::optional<Columns> columns_of(std::string_view line) {
    const Fields fields = split(line);
    if (fields.count > kMaxColumns) return std::nullopt;
    Columns out;
    out.fields = fields.count;
    for (std::size_t column = 0; column < kColumnNames.size(); ++column) {
        const auto* const end = fields.text.begin() + fields.count;
        const auto* const found = std::find(fields.text.begin(), end, kColumnNames.at(column));
        out.at.at(column).reset();
        if (found != end) out.at.at(column) = static_cast<std::size_t>(found - fields.text.begin());
    }
    if (!out.has(Column::kAction) || !out.has(Column::kPointer) || !out.has(Column::kSize))
        return std::nullopt;
    return out;
}

struct Row {
    wire::Kind kind = wire::Kind::kNone;
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint64_t stream = 0;
    bool stream_known = false;
    std::uint64_t time = 0;
    std::int32_t thread = 0;
};

struct Parsed {
    Row row;
    std::string wrong;          // what is wrong with the line; empty: `row` holds it
    bool unfilled = false;      // RMM printed its format
    std::string_view stream{};  // what the column holds where it is not known
};

std::string expected(Column column, std::string_view found, const char* what) {
    return fmt::format("column {} holds {}, expected {}", kColumnNames.at(static_cast<std::size_t>(column)),
                       quoted_text(found), what);
}

Parsed parse(std::string_view line, const Columns& columns) {
    const Fields fields = split(line);
    Parsed out;
    if (fields.count != columns.fields) {
        out.wrong =
            fmt::format("{} fields, expected {}: {}", fields.count, columns.fields, quoted_text(line));
        return out;
    }
    const std::string_view action = fields(columns, Column::kAction);
    const std::string_view address = fields(columns, Column::kPointer);
    const std::string_view bytes = fields(columns, Column::kSize);
    if (action == "allocate") out.row.kind = wire::Kind::kBlockAcquired;
    if (action == "free") out.row.kind = wire::Kind::kBlockReleased;
    if (action == "allocate failure") out.row.kind = wire::Kind::kBlockRefused;
    if (out.row.kind == wire::Kind::kNone) {
        out.wrong = expected(Column::kAction, action, "allocate, allocate failure or free");
        return out;
    }
    const auto at = pointer(address);
    const auto size = number(bytes, 10);
    out.unfilled = (!at || !size) && (address.find_first_of("%{") != std::string_view::npos ||
                                      bytes.find_first_of("%{") != std::string_view::npos);
    if (!at) out.wrong = expected(Column::kPointer, address, "an address such as 0x7f2a00000000");
    if (at && !size) out.wrong = expected(Column::kSize, bytes, "a number of bytes");
    if (!out.wrong.empty()) return out;
    out.row.address = *at;
    out.row.bytes = *size;
    if (columns.has(Column::kThread)) {
        const std::string_view text = fields(columns, Column::kThread);
        const auto thread = number(text, 10);
        if (!thread || *thread > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max())) {
            out.wrong = expected(Column::kThread, text, "the number of a thread");
            return out;
        }
        out.row.thread = static_cast<std::int32_t>(*thread);
    }
    if (columns.has(Column::kTime)) {
        const std::string_view text = fields(columns, Column::kTime);
        const auto time = time_of_day(text);
        if (!time) {
            out.wrong = expected(Column::kTime, text, "a time such as 23:59:59.123456");
            return out;
        }
        out.row.time = *time;
    }
    if (columns.has(Column::kStream)) {
        const auto stream = pointer(fields(columns, Column::kStream));
        out.row.stream_known = stream.has_value();
        out.row.stream = stream.value_or(0);
        if (!stream) out.stream = fields(columns, Column::kStream);
    }
    return out;
}

// From times of day to times that grow. The log has no date: a time that falls by no more than an hour, also
// over midnight, is a line that others overtook, or a clock that was put back; any other one is the next of
// its kind, so that a fall is midnight. A gap of 23 hours or more is therefore taken for one that is shorter.
class Calendar {
  public:
    std::uint64_t time(std::uint64_t of_day) {
        constexpr std::uint64_t kOvertaken = kDay / 24;
        // Behind the first line there is room for lines that it overtook.
        if (latest_ == 0) first_ = latest_ = kDay + of_day;
        const std::uint64_t back = (latest_ + kDay - of_day % kDay) % kDay;
        if (back <= kOvertaken) return latest_ - back;
        latest_ += kDay - back;
        return latest_;
    }
    std::uint64_t midnights() const { return latest_ / kDay - first_ / kDay; }

  private:
    std::uint64_t first_ = 0;   // by the clock, since an unknown midnight; 0: no line yet
    std::uint64_t latest_ = 0;  // of all lines
};

// "log.dev3.csv", as RMM's Python package names the log of device 3.
std::optional<std::int16_t> device_in_name(std::string_view path) {
    const std::size_t slash = path.rfind('/');
    if (slash != std::string_view::npos) path.remove_prefix(slash + 1);
    const std::size_t at = path.rfind(".dev");
    if (at == std::string_view::npos) return std::nullopt;
    path.remove_prefix(at + 4);
    const auto device = number(path.substr(0, path.find('.')), 10);
    if (!device || *device > 127) return std::nullopt;
    return static_cast<std::int16_t>(*device);
}

class Log {
  public:
    Log(ImportSource& source, Trace& trace) : source_(source), lines_(source), trace_(trace) {}

    std::string read() {
        trace_.functions = {"RMM allocate", "RMM free"};
        trace_.processes.emplace_back().set_index(0);
        trace_.losses.emplace_back().set_process(0);
        trace_.events.emplace_back();
        trace_.names.emplace_back();
        device_ = device_in_name(source_.path());
        while (lines_.next())
            if (std::string refused = take_line(); !refused.empty()) return refused;
        if (lines_.endless())
            return fmt::format(
                "cannot read {} as RMM's CSV log: line {} has no end, expected one within {} bytes",
                source_.path(), lines_.number(), LineReader::kMaxSkippedBytes);
        if (!source_.problem().empty()) return source_.problem();
        if (rows_ == 0 && (bad_ != 0 || !header_seen_))
            return fmt::format(
                "cannot read {} as RMM's CSV log: {}", source_.path(),
                bad_ != 0 ? first_bad_ : fmt::format("it is empty, expected the line {}", kHeader));
        finish();
        return "";
    }

  private:
    // Empty: go on.
    std::string take_line() {
        std::string_view line = lines_.line();
        if (lines_.number() == 1 && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
        if (trimmed(line).empty()) return "";
        if (const auto columns = columns_of(line)) {
            if (header_seen_ || rows_ != 0)
                return fmt::format(
                    "cannot read {}: line {} is a second header: these are several logs in one file, "
                    "import each by itself",
                    source_.path(), lines_.number());
            header_seen_ = true;
            columns_ = *columns;
            return "";
        }
        const Parsed parsed = parse(line, columns_);
        if (!parsed.wrong.empty() || lines_.cut()) {
            return take_bad(parsed.wrong.empty() ? "it is too long" : parsed.wrong, parsed.unfilled);
        }
        if (trace_.events[0].size() >= kMaxRmmEvents)
            return fmt::format(
                "cannot read {}: line {}: more than {} events, expected fewer: cut the log into pieces",
                source_.path(), lines_.number(), kMaxRmmEvents);
        take_row(parsed);
        return "";
    }

    std::string take_bad(const std::string& wrong, bool unfilled) {
        if (!lines_.ended()) {  // the file breaks off here: no line of its own
            broken_off_ = lines_.number();
            return "";
        }
        ++bad_;
        if (unfilled) ++unfilled_;
        if (first_bad_.empty()) first_bad_ = fmt::format("line {}: {}", lines_.number(), wrong);
        constexpr std::uint64_t kMaxBad = 1000;
        if (bad_ > kMaxBad && bad_ > rows_ && unfilled_ != bad_)
            return fmt::format(
                "cannot read {} as RMM's CSV log: most of its first {} lines are no rows of it, the first "
                "being {}",
                source_.path(), lines_.number(), first_bad_);
        return "";
    }

    void take_row(const Parsed& parsed) {
        const Row& row = parsed.row;
        ++rows_;
        if (!lines_.ended()) broken_off_ = lines_.number();
        if (!row.stream_known && columns_.has(Column::kStream)) {
            if (unreadable_streams_++ == 0)
                first_stream_ = fmt::format("line {}: {}", lines_.number(),
                                            expected(Column::kStream, parsed.stream, "a stream such as 0x2"));
        }
        const std::uint64_t time = columns_.has(Column::kTime) ? calendar_.time(row.time) : 0;
        earliest_ = std::min(earliest_, time);
        // Nothing asked for is no block: RMM answers the null pointer, and takes it back.
        if (row.bytes == 0 && row.kind != wire::Kind::kBlockRefused) return;
        Event event;
        event.thread = row.thread;
        event.start = {time};
        event.device = device_.value_or(kNoDevice);
        if (!device_) event.flags = wire::kUnknownDevice;
        // Where the file breaks off, the stream may be only the beginning of one.
        if (row.stream_known && lines_.ended()) say_stream(event, row.stream);
        event.function = {row.kind == wire::Kind::kBlockReleased ? 1u : 0u};
        event.kind = row.kind;
        event.result = row.kind == wire::Kind::kBlockRefused ? kOutOfMemoryResult : std::uint16_t{0};
        event.address = {row.kind == wire::Kind::kBlockRefused ? 0 : row.address};
        event.bytes = {row.bytes};
        event.object = {wire::kTotalNotTold};
        event.extra = wire::kTotalNotTold;
        add(event);
    }

    // Where the thread's stream is another one than before.
    void say_stream(Event event, std::uint64_t stream) {
        const auto [known, added] = streams_.try_emplace(event.thread, stream);
        if (!added && known->second == stream) return;
        known->second = stream;
        event.kind = wire::Kind::kBlockStream;
        event.object = {stream};
        add(event);
    }

    void add(Event& event) {
        event.sequence = {trace_.events[0].size() + 1};
        trace_.events[0].push_back(event);
    }

    void finish() {
        trace::Loss& loss = trace_.losses[0];
        loss.set_acquisitions(0);
        loss.set_releases(0);
        loss.set_others(0);
        loss.set_records_refused(bad_);
        trace_.session.set_start_ns(rows_ == 0 ? 0 : earliest_);
        std::uint64_t end = trace_.session.start_ns();
        std::uint64_t failures = 0;
        for (const Event& event : trace_.events[0]) {
            end = std::max(end, event.start.value);
            if (event.failed()) ++failures;
        }
        trace_.end.set_end_ns(end);
        trace_.end.set_reason("imported");
        trace_.end.set_events(trace_.events[0].size());
        trace_.end.set_failures(failures);
        trace_.end.set_processes(1);
        add_warnings();
        add_unknown();
    }

    void add_warnings() {
        if (unfilled_ != 0)
            trace_.end.add_warnings(
                fmt::format("{} lines of the log hold RMM's format instead of its values (a fault of its "
                            "builds of November 2024): "
                            "what they said is lost.",
                            unfilled_));
        if (bad_ != 0)
            trace_.end.add_warnings(
                fmt::format("{} of the log's lines could not be read. The first is {}.", bad_, first_bad_));
        if (unreadable_streams_ != 0)
            trace_.end.add_warnings(
                fmt::format("The stream of {} of the log's lines could not be read. The first is {}.",
                            unreadable_streams_, first_stream_));
        if (broken_off_ != 0)
            trace_.end.add_warnings(fmt::format(
                "The log breaks off inside line {}, expected a line end: what came after it is not there.",
                broken_off_));
        if (rows_ == 0)
            trace_.end.add_warnings(
                "The log holds no rows, only its header: either nothing was allocated, or the program ended "
                "before RMM "
                "wrote what it had logged.");
    }

    void add_unknown() {
        trace::Provenance& provenance = *trace_.session.mutable_provenance();
        provenance.add_unknown(
            "Memory that was not taken through this resource, and what the resource itself holds of the "
            "driver's.");
        provenance.add_unknown("The capacity of the device, and what was free on it.");
        if (device_)
            provenance.add_unknown(
                fmt::format("The device: its number, {}, is taken from the file's name.", *device_));
        else
            provenance.add_unknown("The device.");
        if (columns_.has(Column::kTime)) {
            std::string times = "The date: times are local times of day.";
            if (calendar_.midnights() != 0)
                times +=
                    fmt::format(" That midnight passed {} is taken from times that fall.",
                                calendar_.midnights() == 1 ? std::string("once")
                                                           : fmt::format("{} times", calendar_.midnights()));
            provenance.add_unknown(
                times +
                " A gap of 23 hours or more between two lines is not seen: it reads as a shorter one, or as "
                "lines that overtook each other.");
        } else {
            provenance.add_unknown("The times.");
        }
        if (!columns_.has(Column::kThread)) provenance.add_unknown("The threads.");
        if (!columns_.has(Column::kStream)) provenance.add_unknown("The streams.");
        provenance.add_unknown("How long a call took, and from where it was made.");
        provenance.add_unknown("The program and its process.");
        provenance.add_unknown(
            "Whether the log goes to the program's end: RMM writes it in pieces and leaves no mark at its "
            "end.");
    }

    static constexpr std::uint16_t kOutOfMemoryResult = 2;  // CUDA_ERROR_OUT_OF_MEMORY of cuda.h

    ImportSource& source_;
    LineReader lines_;
    Trace& trace_;
    Columns columns_;
    Calendar calendar_;
    std::optional<std::int16_t> device_;
    std::map<std::int32_t, std::uint64_t> streams_;  // by thread
    bool header_seen_ = false;
    std::uint64_t rows_ = 0;
    std::uint64_t bad_ = 0;
    std::uint64_t unfilled_ = 0;  // of them
    std::string first_bad_;
    std::uint64_t unreadable_streams_ = 0;
    std::string first_stream_;
    std::uint64_t broken_off_ = 0;  // number of the line; 0: the file ends with a line end
    std::uint64_t earliest_ = std::numeric_limits<std::uint64_t>::max();
};

std::string read(ImportSource& source, Trace& trace) { return Log(source, trace).read(); }

// A header, or a row where the beginning is missing: of the first lines only the very first may be a part of
// one.
bool recognizes(std::string_view head) {
    if (head.starts_with("\xef\xbb\xbf")) head.remove_prefix(3);
    for (int line = 0; line < 2; ++line) {
        const std::size_t end = head.find('\n');
        std::string_view text = head.substr(0, end);
        if (text.ends_with('\r')) text.remove_suffix(1);
        if (columns_of(text)) return true;
        const Parsed parsed = parse(text, Columns{});
        if (parsed.wrong.empty() || parsed.unfilled) return true;
        if (end == std::string_view::npos) return false;
        head.remove_prefix(end + 1);
    }
    return false;
}

}  // namespace

const Importer kRmmLog{"rmm-csv", "the CSV log of RAPIDS RMM", recognizes, read};

}  // namespace fragscope::analysis
