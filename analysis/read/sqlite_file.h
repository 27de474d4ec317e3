// SQLite files of other tools, read and never written: tables of known names, row by row, in the order in
// which they are stored. For importers.
//
// The file is hostile. It is opened immutable, so that neither it nor anything beside it is written or
// locked; views, triggers, virtual tables, computed columns, extensions and functions of its schema are never
// run: only plain tables are read, by statements that are made of names known here. Row numbers must grow, so
// that a damaged tree cannot give rows without end. What SQLite itself holds is limited (kMaxHeapBytes), and
// so is what it may take for all (a number of steps that grows with the file's size).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace fragscope::analysis {

class ImportSource;

// Whether a file that begins so is SQLite's.
bool is_sqlite(std::string_view head);

class SqliteFile {
  public:
    static constexpr std::int64_t kMaxHeapBytes = std::int64_t{1} << 28;  // SQLite's, of the whole process
    static constexpr int kMaxCellBytes = 1 << 24;                         // also the most that a row may have

    SqliteFile();
    ~SqliteFile();
    SqliteFile(const SqliteFile&) = delete;
    SqliteFile& operator=(const SqliteFile&) = delete;

    // Empty: opened; else the reason, in one sentence. An importer's source has to be a file that is not gzipped.
    std::string open(const ImportSource& source);
    std::string open(const std::string& path);
    const std::string& path() const { return path_; }
    // Files beside it hold changes that are not in it (a write-ahead log or a journal): a sentence, or empty.
    const std::string& unfinished() const { return unfinished_; }
    bool has_table(std::string_view name) const { return names_.contains(name); }
    // Why reading ended before the end: one sentence; empty: it did not.
    const std::string& problem() const { return problem_; }

  private:
    friend class SqliteRows;
    struct Close {
        void operator()(sqlite3* database) const;
    };
    struct Steps {
        std::uint64_t left = 0;
    };
    void harden();
    std::string list_names();
    void fail(std::string why);
    std::string said() const;

    std::string path_;
    std::string unfinished_;
    std::string problem_;
    Steps steps_;
    std::unique_ptr<sqlite3, Close> database_;
    std::map<std::string, bool, std::less<>> names_;  // of tables and views; whether it is a plain table
};

// The rows of one table. Columns are named by constants; those that the table lacks hold nothing.
class SqliteRows {
  public:
    // A table that is not there has no rows. One statement at a time and file need not be the only one.
    SqliteRows(SqliteFile& file, const char* table, std::span<const char* const> columns);
    ~SqliteRows();
    SqliteRows(const SqliteRows&) = delete;
    SqliteRows& operator=(const SqliteRows&) = delete;

    bool has(std::size_t column) const { return there_[column]; }
    // False: there are no more rows, or SqliteFile::problem() says why they end.
    bool next();
    std::int64_t row() const { return row_; }  // its number in the table
    // Of the row: nothing where the cell holds NULL, or something else than asked for, and then wrong() says
    // so.
    std::optional<std::int64_t> integer(std::size_t column);
    // Valid until the next call of next().
    std::optional<std::string_view> text(std::size_t column);
    // Of the first cell of this row that holds another type than asked for: "row 7: column bytes holds a
    // text, expected a whole number". Empty: there was none.
    const std::string& wrong() const { return wrong_; }

  private:
    struct Finish {
        void operator()(sqlite3_stmt* statement) const;
    };
    void find_columns();
    int type_of(std::size_t column, const char* expected, int wanted);

    SqliteFile& file_;
    const char* table_;
    std::vector<const char*> columns_;
    std::vector<bool> there_;
    std::unique_ptr<sqlite3_stmt, Finish> statement_;
    std::int64_t row_ = 0;
    bool first_ = true;
    std::string wrong_;
};

}  // namespace fragscope::analysis
