// SQLite files for tests: made by SQLite itself from statements, then imported.
#pragma once

#include <filesystem>
#include <string>

#include "analysis/read/importer.h"

namespace fragscope::test {

// A folder that is gone at the end.
class Folder {
  public:
    Folder();
    ~Folder();
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    std::string file(const std::string& name) const { return (path_ / name).string(); }
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

// Makes the file by these statements; throws with SQLite's message where they are wrong.
void make_sqlite(const std::string& path, const std::string& statements);
std::string bytes_of(const std::string& path);
void write_bytes(const std::string& path, const std::string& bytes);

analysis::ReadResult import_sqlite(const std::string& statements, const std::string& kind = "");

// The tables of an export of 2024 (schema 3.16), empty but for the enumerations, which have the numbers that
// all known exports have.
extern const std::string kNsightSchema;

}  // namespace fragscope::test
