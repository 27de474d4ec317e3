// Two optional text files: the call log and the ledger. Each line is one write() to a file opened O_APPEND, so
// that several processes can share a file and no line is lost or torn when a process is killed.
#pragma once

#include <cstdint>
#include <string>

#include "api.h"

namespace fragscope::sim {

// Opens what the settings name. Returns "" or what is wrong.
std::string open_logs(const std::string& log, const std::string& ledger);

bool log_open();

// "PID TID call NAME RESULT"
void log_call(const char* name, CUresult result);
// "PID TID lookup NAME VERSION FLAGS SYMBOL|- STATUS"
void log_lookup(const char* name, int version, std::uint64_t flags, const char* symbol, int status);
// "PID TID table UUID FOUND|NOT_FOUND"
void log_table(const char* uuid, bool found);
// "PID TID unsafe NAME": a call that a stream capture forbids; "doubtful": that it may forbid
void log_unsafe(const char* kind, const char* name);

// One change of memory state. README.md lists the operations.
struct LedgerEntry {
    const char* operation;
    std::uint64_t object;   // address or handle
    std::uint64_t bytes;    // as asked for
    std::int64_t charged;   // bytes by which the device's free memory fell (> 0) or rose (< 0)
    int device;             // -1: no device's memory
    std::uint64_t free;     // bytes free on the device afterwards; 0 when device is -1
    std::uint64_t other = 0;  // the object that this one lies in, refers to or comes from; 0: none
};
bool ledger_open();
// A line with a charge states the time when this thread's pages changed (pages_changed_ns), so that these times are in the
// order in which devices changed, however late a line is written.
void ledger(const LedgerEntry& entry);

}  // namespace fragscope::sim
