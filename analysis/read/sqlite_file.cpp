#include "analysis/read/sqlite_file.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "analysis/read/importer.h"

namespace fragscope::analysis {

namespace {

constexpr std::string_view kMagic{"SQLite format 3\0", 16};
constexpr int kStepsAtOnce = 100'000;  // steps of SQLite's machine between two looks at what is left
constexpr std::uint64_t kStepsAnyway = 50'000'000;
constexpr std::uint64_t kStepsPerByte = 16;  // a row of ten cells takes some 15 steps and some 30 bytes

// What a statement of ours may do: read. `what`: SQLite's number of the action.
int allow(void*, int what, const char* argument, const char*, const char*, const char*) {
    if (what == SQLITE_SELECT || what == SQLITE_READ) return SQLITE_OK;
    if (what == SQLITE_PRAGMA && argument != nullptr && std::strcmp(argument, "table_xinfo") == 0)
        return SQLITE_OK;
    return SQLITE_DENY;
}

std::string uri_of(const std::string& path) {
    constexpr std::string_view kPlain = "/._-";
    std::string out = "file://";
    for (const char c : path) {
        const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           kPlain.find(c) != std::string_view::npos;
        out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
    return out + "?mode=ro&immutable=1";
}

std::uint64_t size_of(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)
               ? static_cast<std::uint64_t>(status.st_size)
               : 0;
}

}  // namespace

bool is_sqlite(std::string_view head) { return head.starts_with(kMagic); }

void SqliteFile::Close::operator()(sqlite3* database) const { sqlite3_close_v2(database); }
void SqliteRows::Finish::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

SqliteFile::SqliteFile() = default;
SqliteFile::~SqliteFile() = default;
SqliteRows::~SqliteRows() = default;

std::string SqliteFile::said() const {
    const int code = sqlite3_errcode(database_.get());
    if (code == SQLITE_NOMEM) return "SQLite needs more memory for it than it is given";
    if (code == SQLITE_INTERRUPT) return "SQLite takes more steps than a file of this size can need";
    return sqlite3_errmsg(database_.get());
}

void SqliteFile::fail(std::string why) {
    if (problem_.empty()) problem_ = fmt::format("cannot read {}: {}", path_, why);
}

void SqliteFile::harden() {
    sqlite3* database = database_.get();
    // Options that an older library does not know are refused by it, and so is what they would forbid: it has
    // no such thing, or `allow` and the reading of plain tables alone keep it out.
    for (const auto& [option, value] :
         {std::pair{SQLITE_DBCONFIG_DEFENSIVE, 1}, std::pair{SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
          std::pair{SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0}, std::pair{SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
          std::pair{SQLITE_DBCONFIG_ENABLE_VIEW, 0}, std::pair{SQLITE_DBCONFIG_ENABLE_FKEY, 0},
          std::pair{SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0}, std::pair{SQLITE_DBCONFIG_DQS_DML, 0},
          std::pair{SQLITE_DBCONFIG_DQS_DDL, 0}})
        sqlite3_db_config(database, option, value, nullptr);
    for (const auto& [limit, value] :
         {std::pair{SQLITE_LIMIT_LENGTH, kMaxCellBytes}, std::pair{SQLITE_LIMIT_ATTACHED, 0},
          std::pair{SQLITE_LIMIT_TRIGGER_DEPTH, 1}, std::pair{SQLITE_LIMIT_EXPR_DEPTH, 100},
          std::pair{SQLITE_LIMIT_COMPOUND_SELECT, 4}, std::pair{SQLITE_LIMIT_VDBE_OP, 100'000},
          std::pair{SQLITE_LIMIT_FUNCTION_ARG, 8}, std::pair{SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 64},
          std::pair{SQLITE_LIMIT_VARIABLE_NUMBER, 4}, std::pair{SQLITE_LIMIT_WORKER_THREADS, 0}})
        sqlite3_limit(database, limit, value);
    sqlite3_progress_handler(
        database, kStepsAtOnce,
        [](void* given) {
            auto& steps = *static_cast<Steps*>(given);
            if (steps.left < static_cast<std::uint64_t>(kStepsAtOnce)) return 1;
            steps.left -= static_cast<std::uint64_t>(kStepsAtOnce);
            return 0;
        },
        &steps_);
    // No memory that another program may cut off under us; pages are checked as they are read; nothing beside
    // the file.
    sqlite3_exec(
        database,
        "PRAGMA mmap_size=0; PRAGMA cell_size_check=1; PRAGMA temp_store=MEMORY; PRAGMA query_only=1; "
        "PRAGMA cache_size=-8192",
        nullptr, nullptr, nullptr);
    sqlite3_set_authorizer(database, allow, nullptr);
}

std::string SqliteFile::open(const ImportSource& source) {
    constexpr const char* kWhy = "cannot read {}: an SQLite file is read here and there, and {}";
    if (source.is_input()) return fmt::format(kWhy, source.path(), "this one has no name: save it first");
    if (source.gzipped()) return fmt::format(kWhy, source.path(), "this one is gzipped: unpack it first");
    return open(source.path());
}

std::string SqliteFile::open(const std::string& path) {
    path_ = path;
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0)
        return fmt::format("cannot open {}: {}", path, std::strerror(errno));
    if (!S_ISREG(status.st_mode))
        return fmt::format(
            "cannot read {}: an SQLite file is read here and there, so it must be a regular file", path);
    const std::unique_ptr<char, decltype(&std::free)> whole(::realpath(path.c_str(), nullptr), &std::free);
    if (whole == nullptr) return fmt::format("cannot open {}: {}", path, std::strerror(errno));
    steps_.left = kStepsAnyway + kStepsPerByte * static_cast<std::uint64_t>(status.st_size);
    for (const char* beside : {"-wal", "-journal"}) {
        if (size_of(whole.get() + std::string(beside)) != 0)
            unfinished_ = fmt::format(
                "Beside {0} lies {0}{1}, with changes that had not reached the file: they are not read.",
                path, beside);
    }
    sqlite3_hard_heap_limit64(kMaxHeapBytes);
    sqlite3* opened = nullptr;
    const int result = sqlite3_open_v2(uri_of(whole.get()).c_str(), &opened,
                                       SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
    database_.reset(opened);
    if (opened == nullptr) throw std::bad_alloc();
    if (result != SQLITE_OK) return fmt::format("cannot open {}: {}", path, said());
    sqlite3_extended_result_codes(opened, 0);
    harden();
    return list_names();
}

std::string SqliteFile::list_names() {
    sqlite3_stmt* made = nullptr;
    const int prepared = sqlite3_prepare_v2(
        database_.get(), "SELECT name, type, rootpage FROM sqlite_master WHERE type IN ('table', 'view')", -1,
        &made, nullptr);
    const std::unique_ptr<sqlite3_stmt, decltype(&sqlite3_finalize)> statement(made, &sqlite3_finalize);
    if (prepared == SQLITE_OK) {
        int result = SQLITE_ROW;
        while ((result = sqlite3_step(made)) == SQLITE_ROW) {
            const auto* name = reinterpret_cast<const char*>(sqlite3_column_text(made, 0));
            const auto* type = reinterpret_cast<const char*>(sqlite3_column_text(made, 1));
            if (name == nullptr || type == nullptr) continue;
            // Virtual tables have no page of their own.
            names_[name] = std::strcmp(type, "table") == 0 && sqlite3_column_int64(made, 2) > 0;
        }
        if (result == SQLITE_DONE) return "";
    }
    fail(fmt::format("its list of tables cannot be read ({})", said()));
    return problem_;
}

SqliteRows::SqliteRows(SqliteFile& file, const char* table, std::span<const char* const> columns)
    : file_(file), table_(table), columns_(columns.begin(), columns.end()), there_(columns.size(), false) {
    if (!file.problem().empty()) return;
    const auto found = file.names_.find(table);
    if (found == file.names_.end()) return;
    if (!found->second) {
        file.fail(fmt::format("what it calls {} is no plain table, expected one that holds rows", table));
        return;
    }
    find_columns();
    if (!file.problem().empty()) return;
    std::string sql = "SELECT rowid";
    for (std::size_t column = 0; column < columns_.size(); ++column)
        sql += there_[column] ? fmt::format(", \"{}\"", columns_[column]) : ", NULL";
    sql += fmt::format(" FROM \"{}\" NOT INDEXED", table);
    sqlite3_stmt* made = nullptr;
    if (sqlite3_prepare_v2(file.database_.get(), sql.c_str(), -1, &made, nullptr) != SQLITE_OK)
        file.fail(fmt::format("table {} cannot be read ({})", table, file.said()));
    statement_.reset(made);
}

void SqliteRows::find_columns() {
    sqlite3_stmt* made = nullptr;
    const std::string sql = fmt::format("PRAGMA table_xinfo(\"{}\")", table_);
    const int prepared = sqlite3_prepare_v2(file_.database_.get(), sql.c_str(), -1, &made, nullptr);
    const std::unique_ptr<sqlite3_stmt, Finish> statement(made);
    constexpr int kName = 1;
    constexpr int kHidden = 6;
    if (prepared == SQLITE_OK) {
        int result = SQLITE_ROW;
        while ((result = sqlite3_step(made)) == SQLITE_ROW) {
            const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(made, kName));
            if (text == nullptr) continue;
            const std::string_view name = text;
            const auto found = std::find(columns_.begin(), columns_.end(), name);
            const bool computed = sqlite3_column_int(made, kHidden) != 0;
            // A column of this name would stand in the way of the row's number.
            if (sqlite3_stricmp(text, "rowid") == 0 || (found != columns_.end() && computed))
                return file_.fail(
                    fmt::format("column {} of table {} is not one that an exporter makes", name, table_));
            if (found != columns_.end()) there_[static_cast<std::size_t>(found - columns_.begin())] = true;
        }
        if (result == SQLITE_DONE) return;
    }
    file_.fail(fmt::format("the columns of table {} cannot be read ({})", table_, file_.said()));
}

bool SqliteRows::next() {
    wrong_.clear();
    if (statement_ == nullptr || !file_.problem().empty()) return false;
    const int result = sqlite3_step(statement_.get());
    if (result == SQLITE_ROW) {
        const std::int64_t row = sqlite3_column_int64(statement_.get(), 0);
        if (!first_ && row <= row_) {
            file_.fail(fmt::format("table {} is damaged: row {} comes after row {}", table_, row, row_));
            return false;
        }
        first_ = false;
        row_ = row;
        return true;
    }
    if (result != SQLITE_DONE)
        file_.fail(
            first_ ? fmt::format("table {} cannot be read at its first row ({})", table_, file_.said())
                   : fmt::format("table {} cannot be read behind row {} ({})", table_, row_, file_.said()));
    statement_.reset();
    return false;
}

// Whether the cell is of the type wanted: 1; NULL: 0; another one: -1.
int SqliteRows::type_of(std::size_t column, const char* expected, int wanted) {
    const int type = sqlite3_column_type(statement_.get(), static_cast<int>(column) + 1);
    if (type == wanted) return 1;
    if (type == SQLITE_NULL) return 0;
    if (wrong_.empty()) {
        const char* found = type == SQLITE_INTEGER ? "a whole number"
                            : type == SQLITE_FLOAT ? "a number with a fraction"
                            : type == SQLITE_TEXT  ? "a text"
                                                   : "bytes";
        wrong_ =
            fmt::format("row {}: column {} holds {}, expected {}", row_, columns_[column], found, expected);
    }
    return -1;
}

std::optional<std::int64_t> SqliteRows::integer(std::size_t column) {
    if (type_of(column, "a whole number", SQLITE_INTEGER) != 1) return std::nullopt;
    return sqlite3_column_int64(statement_.get(), static_cast<int>(column) + 1);
}

std::optional<std::string_view> SqliteRows::text(std::size_t column) {
    if (type_of(column, "a text", SQLITE_TEXT) != 1) return std::nullopt;
    const auto* text =
        reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), static_cast<int>(column) + 1));
    if (text == nullptr) throw std::bad_alloc();
    return std::string_view(
        text, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), static_cast<int>(column) + 1)));
}

}  // namespace fragscope::analysis
