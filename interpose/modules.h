// The loaded files that code lies in, by number. A file that is unloaded keeps its number; another one at the
// same place gets a new one, and so the same code by the same number is always the same code. Numbers hold
// for the life of the process and in its forked children; the collector is told of a module once by each
// attachment.
//
// Found by the loader's _dl_find_object where there is one (glibc 2.35 and newer), which takes no lock; else
// by dl_iterate_phdr. Own memory, no lock of its own, nothing that a fork can leave half-done for others.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "interpose/unwind_tables.h"
#include "proto/wire.h"

namespace fragscope::interpose {

inline constexpr std::uint32_t kMaxModules =
    2048;  // files loaded over the life of a process; further ones have none

// What a module is recognised by as long as it may have been replaced: copies of what the loaded file says of
// itself.
struct Identity {
    unsigned char headers[16 * 56];  // program headers
    unsigned char tables[64];        // the beginning of .eh_frame_hdr
    char name[192];                  // the end of the loader's name for it
    unsigned char build_id[wire::kMaxBuildIdBytes];
    std::uint32_t header_bytes, table_bytes, name_bytes, build_id_bytes;
};

struct Module {
    std::uintptr_t begin = 0, end = 0;  // of its mapping
    std::uintptr_t bias = 0;            // what its file's addresses were moved by
    UnwindTables tables;
    const unsigned char* build_id = nullptr;
    const char* name = nullptr;  // the loader's, of the loaded file
    bool permanent = false;      // is never unloaded
    bool main_program = false;
    bool runtime = false;  // a shared libcudart
    bool go_between =
        false;  // of the C or C++ library: it may stand between two functions of one other file (call_once)
    // Of Python's evaluation loop, if the file has one.
    std::uintptr_t evaluation_begin = 0, evaluation_end = 0;
    Identity identity{};

    bool holds(std::uintptr_t address) const { return address >= begin && address < end; }
};

// The number of the module that `address` lies in now; 0: in none, or it cannot have a number.
std::uint32_t module_at(std::uintptr_t address);
const Module& module(std::uint32_t number);

// What may have changed since it was looked at. One for each walk: each module is then looked at once.
class LoaderState {
  public:
    LoaderState();
    // Whether `address` is still what was said of it: in module `number`, or for 0 in none.
    bool unchanged(std::uint32_t number, std::uintptr_t address) {
        return (number == last_ && number != 0) || look(number, address);
    }

  private:
    bool look(std::uint32_t number, std::uintptr_t address);

    static constexpr std::uint32_t kSeen = 16;
    std::uint16_t seen_[kSeen] = {};
    std::uint32_t next_ = 0;
    std::uint32_t last_ = 0;
    std::uint64_t counts_;  // the loader's, if it only counts; else 0
};

// Sends the text of the module into this thread's ring unless this attachment has it. To be called while code
// of it is running. False: it could not be sent.
bool tell_module(std::uint32_t number);

// For tests: as if this machine's loader were an older one.
void find_modules_by_iteration();

// --------------------------------------------------------------------------------------------------------------
// runtime

// The shared libcudart that calls the driver: the mapping of the only one, or what encloses all of them.
struct RuntimeRange {
    std::atomic<std::uintptr_t> begin{0};
    std::atomic<std::uintptr_t> bytes{0};
};
extern constinit RuntimeRange runtime_range;
inline bool may_be_runtime(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) - runtime_range.begin.load(std::memory_order_relaxed) <
           runtime_range.bytes.load(std::memory_order_relaxed);
}
// Somebody at `address` has looked a driver function up: it may be a runtime that was not known yet.
void note_caller(const void* address);

// The module as the loader tells of it, for its symbols. To be called while code of it is running.
struct Object;
bool object_of(std::uint32_t number, Object& out);
// Where the call that ends before `pc`, in code of the module, has gone to: one that names its function, or
// goes through a linker's stub or table; 0: by another way.
std::uintptr_t target_of_call(std::uint32_t number, std::uintptr_t pc);
// The name of the exported function of the module that the code at `address` belongs to; nullptr: of none.
const char* exported_function(std::uint32_t number, std::uintptr_t address);

}  // namespace fragscope::interpose
