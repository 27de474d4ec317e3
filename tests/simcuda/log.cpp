#include "log.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "activity.h"
#include "physical.h"

namespace fragscope::sim {
namespace {

std::atomic<int> log_file{-1};
std::atomic<int> ledger_file{-1};

std::string open_one(const char* what, const std::string& path, std::atomic<int>& file) {
    if (path.empty()) return "";
    const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return std::string(what) + ": cannot open " + path + ": " + std::strerror(errno);
    file.store(fd, std::memory_order_release);
    return "";
}

[[gnu::format(printf, 2, 3)]] void write_line(const std::atomic<int>& file, const char* format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0) return;
    if (length >= static_cast<int>(sizeof line)) {
        length = sizeof line - 1;
        line[length - 1] = '\n';
    }
    const int saved = errno;
    // A full disk loses lines; the program under test must not notice.
    [[maybe_unused]] const ssize_t written = ::write(file.load(std::memory_order_acquire), line,
                                                     static_cast<std::size_t>(length));
    errno = saved;
}

std::uint64_t now_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

int thread_number() { return static_cast<int>(::syscall(SYS_gettid)); }

}  // namespace

std::string open_logs(const std::string& log, const std::string& ledger_path) {
    std::string wrong = open_one("log", log, log_file);
    return wrong.empty() ? open_one("ledger", ledger_path, ledger_file) : wrong;
}

bool log_open() { return log_file.load(std::memory_order_relaxed) >= 0; }
bool ledger_open() { return ledger_file.load(std::memory_order_relaxed) >= 0; }

void log_call(const char* name, CUresult result) {
    if (!log_open()) return;
    write_line(log_file, "%d %d call %s %d\n", ::getpid(), thread_number(), name, static_cast<int>(result));
}

void log_lookup(const char* name, int version, std::uint64_t flags, const char* symbol, int status) {
    if (!log_open()) return;
    write_line(log_file, "%d %d lookup %s %d %" PRIu64 " %s %d\n", ::getpid(), thread_number(),
               name == nullptr || *name == '\0' ? "\"\"" : name, version, flags, symbol == nullptr ? "-" : symbol,
               status);
}

void log_table(const char* uuid, bool found) {
    if (!log_open()) return;
    write_line(log_file, "%d %d table %s %s\n", ::getpid(), thread_number(), uuid, found ? "FOUND" : "NOT_FOUND");
}

void log_unsafe(const char* kind, const char* name) {
    if (!log_open()) return;
    write_line(log_file, "%d %d %s %s\n", ::getpid(), thread_number(), kind, name);
}

void ledger(const LedgerEntry& e) {
    note_activity(e);
    if (!ledger_open()) return;
    const std::uint64_t time = e.charged != 0 && pages_changed_ns() != 0 ? pages_changed_ns() : now_ns();
    write_line(ledger_file, "%" PRIu64 "\t%d\t%d\t%s\t0x%" PRIx64 "\t%" PRIu64 "\t%" PRId64 "\t%d\t%" PRIu64
               "\t0x%" PRIx64 "\n",
               time, ::getpid(), thread_number(), e.operation, e.object,
               e.bytes, e.charged, e.device, e.free, e.other);
}

}  // namespace fragscope::sim
