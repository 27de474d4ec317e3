#include "interpose/modules.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "interpose/emit.h"
#include "interpose/objects.h"
#include "interpose/session.h"
#include "interpose/state.h"

namespace fragscope::interpose {

constinit RuntimeRange runtime_range;

namespace {

enum State : std::uint32_t { kEmpty = 0, kFilling = 1, kKnown = 2 };
// Zero-initialised and therefore without memory behind it until used.
struct Entry {
    std::atomic<std::uint32_t> state;
    std::atomic<std::uint32_t> told_by;  // attachment
    std::atomic<bool> gone;              // what lies there now is something else
    std::atomic<std::uint64_t>
        as_of;  // where the loader only counts: its counts when this was last looked at
    unsigned char memory[sizeof(Module)];

    Module& module() { return *reinterpret_cast<Module*>(memory); }
};
constinit Entry entries[kMaxModules];
constinit std::atomic<std::uint32_t> entry_count{0};  // entries beyond are empty
static_assert(alignof(Module) <= 8 && offsetof(Entry, memory) % alignof(Module) == 0);

// -----------------------------------------------------------------------------------------------------
// asking the loader

// struct dl_find_object of glibc's <dlfcn.h>, 2.35 and newer, for x86-64 and aarch64.
struct FoundObject {
    unsigned long long flags;
    void* map_start;
    void* map_end;
    struct link_map* map;
    void* eh_frame;
    unsigned long long reserved[7];
};
using FindObject = int (*)(void*, FoundObject*);

constinit std::atomic<FindObject> find_object_function{nullptr};
constinit std::atomic<bool> loader_asked{false};

FindObject loader_function() {
    if (!loader_asked.load(std::memory_order_acquire)) {
        void* found = nullptr;
        dl_iterate_phdr(
            [](dl_phdr_info* info, std::size_t, void* out) {
                Object object;
                if (!describe(*info, object)) return 0;
                void* symbol = find_symbol(object, wanted("_dl_find_object"));
                *static_cast<void**>(out) = symbol;
                return symbol != nullptr ? 1 : 0;
            },
            &found);
        find_object_function.store(reinterpret_cast<FindObject>(found), std::memory_order_relaxed);
        loader_asked.store(true, std::memory_order_release);
    }
    return find_object_function.load(std::memory_order_relaxed);
}

// One loaded file as the loader tells of it.
struct Loaded {
    std::uintptr_t begin = 0, end = 0;
    dl_phdr_info info{};
    bool first = false;  // the program itself
};

void bounds_of(const dl_phdr_info& info, std::uintptr_t& begin, std::uintptr_t& end) {
    begin = UINTPTR_MAX;
    end = 0;
    for (int i = 0; i < info.dlpi_phnum; ++i) {
        const ElfW(Phdr)& segment = info.dlpi_phdr[i];
        if (segment.p_type != PT_LOAD) continue;
        const std::uintptr_t from = (info.dlpi_addr + segment.p_vaddr) & ~std::uintptr_t{4095};
        const std::uintptr_t to = info.dlpi_addr + segment.p_vaddr + segment.p_memsz;
        if (from < begin) begin = from;
        if (to > end) end = to;
    }
}

struct Search {
    std::uintptr_t address;
    Loaded found;
    bool first = true;
};

bool find_by_iteration(std::uintptr_t address, Loaded& out) {
    Search search{address, {}, true};
    const int found = dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            auto& wanted = *static_cast<Search*>(data);
            std::uintptr_t begin = 0, end = 0;
            bounds_of(*info, begin, end);
            const bool first = wanted.first;
            wanted.first = false;
            if (wanted.address < begin || wanted.address >= end) return 0;
            wanted.found = {begin, end, *info, first};
            return 1;
        },
        &search);
    out = search.found;
    return found != 0;
}

// The program headers of a file that is mapped from its beginning on, as nearly all are.
bool headers_at(std::uintptr_t begin, dl_phdr_info& info) {
    ElfW(Ehdr) header;
    std::memcpy(&header, reinterpret_cast<const void*>(begin), sizeof header);
    constexpr std::size_t kPage = 4096;
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(ElfW(Phdr)) ||
        header.e_phnum == 0 || header.e_phoff % alignof(ElfW(Phdr)) != 0 || header.e_phoff > kPage ||
        header.e_phnum > (kPage - header.e_phoff) / sizeof(ElfW(Phdr)))
        return false;
    info.dlpi_phdr = reinterpret_cast<const ElfW(Phdr)*>(begin + header.e_phoff);
    info.dlpi_phnum = header.e_phnum;
    return true;
}

bool find_loaded(std::uintptr_t address, Loaded& out) {
    const FindObject ask = loader_function();
    if (ask == nullptr) return find_by_iteration(address, out);
    FoundObject found{};
    if (ask(reinterpret_cast<void*>(address), &found) != 0) return false;
    out = {};
    out.info.dlpi_addr = found.map->l_addr;
    out.info.dlpi_name = found.map->l_name;
    out.first = found.map->l_prev == nullptr;
    if (!headers_at(reinterpret_cast<std::uintptr_t>(found.map_start), out.info))
        return find_by_iteration(address, out);
    out.begin = reinterpret_cast<std::uintptr_t>(found.map_start);
    out.end = reinterpret_cast<std::uintptr_t>(found.map_end);
    return true;
}

// Loadings and unloadings so far, where the loader only counts them.
std::uint64_t loader_counts() {
    std::uint64_t counts = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* out) {
            *static_cast<std::uint64_t*>(out) = info->dlpi_adds * 0x9e3779b97f4a7c15u + info->dlpi_subs;
            return 1;
        },
        &counts);
    return counts | 1;
}

// ------------------------------------------------------------------------------------------------- what a
// file is like

void find_build_id(const Loaded& loaded, const ElfW(Phdr) & notes, Module& out) {
    const auto* at = reinterpret_cast<const unsigned char*>(loaded.info.dlpi_addr + notes.p_vaddr);
    std::size_t left = notes.p_filesz;
    const std::size_t alignment = notes.p_align == 8 ? 8 : 4;
    const auto aligned = [alignment](std::size_t bytes) {
        return (bytes + alignment - 1) & ~(alignment - 1);
    };
    while (left >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        std::memcpy(&note, at, sizeof note);
        const std::size_t name_end = sizeof note + aligned(note.n_namesz);
        if (name_end + note.n_descsz > left) return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            std::memcmp(at + sizeof note, "GNU", 4) == 0 && note.n_descsz <= sizeof out.identity.build_id) {
            out.build_id = at + name_end;
            out.identity.build_id_bytes = note.n_descsz;
            std::memcpy(out.identity.build_id, out.build_id, note.n_descsz);
            return;
        }
        const std::size_t whole = name_end + aligned(note.n_descsz);
        if (whole > left) return;
        at += whole;
        left -= whole;
    }
}

bool readable(const UnwindTables& tables, const unsigned char* from, std::size_t bytes) {
    for (std::uint32_t i = 0; i < tables.span_count; ++i)
        if (tables.spans[i].holds(from)) return bytes <= static_cast<std::size_t>(tables.spans[i].end - from);
    return false;
}

std::uint32_t header_bytes(const dl_phdr_info& info) {
    const std::size_t all = info.dlpi_phnum * sizeof(ElfW(Phdr));
    return static_cast<std::uint32_t>(all < sizeof Identity::headers ? all : sizeof Identity::headers);
}

// The end of the name, as far as there is room for it.
std::uint32_t end_of_name(const char*& name) {
    const std::size_t all = std::strlen(name);
    if (all <= sizeof Identity::name) return static_cast<std::uint32_t>(all);
    name += all - sizeof Identity::name;
    return sizeof Identity::name;
}

// What of the file the loader maps readable, where its unwind tables are, and its build-id: no symbols are
// needed.
void survey(const Loaded& loaded, Module& out) {
    const dl_phdr_info& info = loaded.info;
    UnwindTables& tables = out.tables;
    Identity& identity = out.identity;
    for (int i = 0; i < info.dlpi_phnum; ++i) {
        const ElfW(Phdr)& segment = info.dlpi_phdr[i];
        const auto* from = reinterpret_cast<const unsigned char*>(info.dlpi_addr + segment.p_vaddr);
        if (segment.p_type == PT_LOAD && (segment.p_flags & PF_R) != 0 && tables.span_count < kMaxSpans)
            tables.spans[tables.span_count++] = {from, from + segment.p_filesz};
    }
    for (int i = 0; i < info.dlpi_phnum; ++i) {
        const ElfW(Phdr)& segment = info.dlpi_phdr[i];
        const auto* from = reinterpret_cast<const unsigned char*>(info.dlpi_addr + segment.p_vaddr);
        if (!readable(tables, from, segment.p_filesz)) continue;
        if (segment.p_type == PT_NOTE && out.build_id == nullptr) find_build_id(loaded, segment, out);
        if (segment.p_type != PT_GNU_EH_FRAME) continue;
        tables.header = from;
        identity.table_bytes = static_cast<std::uint32_t>(
            segment.p_filesz < sizeof identity.tables ? segment.p_filesz : sizeof identity.tables);
        std::memcpy(identity.tables, from, identity.table_bytes);
    }
    identity.header_bytes = header_bytes(info);
    std::memcpy(identity.headers, info.dlpi_phdr, identity.header_bytes);
    const char* name = info.dlpi_name;
    identity.name_bytes = end_of_name(name);
    std::memcpy(identity.name, name, identity.name_bytes);
}

// With equal program headers, the rest is readable where it was.
bool same_file(const Module& known, const Loaded& loaded) {
    const Identity& before = known.identity;
    if (known.begin != loaded.begin || known.end != loaded.end || known.bias != loaded.info.dlpi_addr ||
        before.header_bytes != header_bytes(loaded.info) ||
        std::memcmp(before.headers, loaded.info.dlpi_phdr, before.header_bytes) != 0)
        return false;
    const char* name = loaded.info.dlpi_name;
    return before.name_bytes == end_of_name(name) && std::memcmp(before.name, name, before.name_bytes) == 0 &&
           (known.build_id == nullptr ||
            std::memcmp(before.build_id, known.build_id, before.build_id_bytes) == 0) &&
           (known.tables.header == nullptr ||
            std::memcmp(before.tables, known.tables.header, before.table_bytes) == 0);
}

bool is_loader_or_libc(const char* soname) {
    return named(soname, "libc.so") || std::strncmp(soname, "ld-linux", 8) == 0;
}

void look_at(const Loaded& loaded, Module& out) {
    out = {};
    out.begin = loaded.begin;
    out.end = loaded.end;
    out.bias = loaded.info.dlpi_addr;
    out.name = loaded.info.dlpi_name;
    out.main_program = loaded.first;
    survey(loaded, out);
    Object object;
    const bool has_symbols = describe(loaded.info, object);
    // What the program was started with is kept; of that, what tells without the loader's own records. So are the files of
    // a framework that define unique symbols of its own, of whom blocks make us ask often.
    out.permanent =
        loaded.first ||
        (has_symbols && (is_loader_or_libc(object.soname) || (object.flags_1 & DF_1_NODELETE) != 0 ||
                         (std::strncmp(object.soname, "libc10", 6) == 0 && has_unique_symbol(object, "3c10"))));
    if (!has_symbols) return;
    out.runtime = named(object.soname, "libcudart.so");
    out.go_between = is_loader_or_libc(object.soname) || named(object.soname, "libstdc++.so") ||
                     named(object.soname, "libpthread.so");
    constexpr Wanted kEvaluation = wanted("_PyEval_EvalFrameDefault");
    if (const void* evaluation = find_symbol(object, kEvaluation); evaluation != nullptr) {
        out.evaluation_begin = reinterpret_cast<std::uintptr_t>(evaluation);
        out.evaluation_end = out.evaluation_begin + size_of_symbol(object, kEvaluation);
    }
}

std::uint32_t find_known(const Loaded& loaded) {
    const std::uint32_t count = entry_count.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < count && i < kMaxModules; ++i) {
        Entry& entry = entries[i];
        if (entry.state.load(std::memory_order_acquire) != kKnown ||
            entry.gone.load(std::memory_order_relaxed) || entry.module().begin != loaded.begin)
            continue;
        if (same_file(entry.module(), loaded)) return i + 1;
        entry.gone.store(true, std::memory_order_relaxed);
    }
    return 0;
}

// The number below `place` that the file has got meanwhile, 0: none. An entry that is being filled in is waited for, which
// is a copy of some hundred bytes; in a forked child perhaps in vain, and not for long.
std::uint32_t find_before(std::uint32_t place, const Loaded& loaded) {
    for (std::uint32_t i = 0; i < place; ++i) {
        Entry& entry = entries[i];
        constexpr int kTurns = 200;
        for (int turn = 0; turn < kTurns && entry.state.load(std::memory_order_acquire) != kKnown; ++turn)
            sched_yield();
        if (entry.state.load(std::memory_order_acquire) == kKnown &&
            !entry.gone.load(std::memory_order_relaxed) && entry.module().begin == loaded.begin &&
            same_file(entry.module(), loaded))
            return i + 1;
    }
    return 0;
}

}  // namespace

void find_modules_by_iteration() {
    find_object_function.store(nullptr, std::memory_order_relaxed);
    loader_asked.store(true, std::memory_order_release);
}

const Module& module(std::uint32_t number) { return entries[number - 1].module(); }

std::uint32_t module_at(std::uintptr_t address) {
    Loaded loaded;
    if (!find_loaded(address, loaded)) return 0;
    if (const std::uint32_t known = find_known(loaded); known != 0) return known;
    Module fresh;
    look_at(loaded, fresh);
    const std::uint32_t place = entry_count.fetch_add(1, std::memory_order_acq_rel);
    if (place >= kMaxModules) {
        entry_count.store(kMaxModules, std::memory_order_relaxed);
        return 0;
    }
    Entry& entry = entries[place];
    entry.state.store(kFilling, std::memory_order_relaxed);
    std::memcpy(entry.memory, &fresh, sizeof fresh);
    entry.state.store(kKnown, std::memory_order_release);
    // Of threads that meet a file at the same time all use the lowest number, so that equal stacks stay equal.
    const std::uint32_t first = find_before(place, loaded);
    if (first == 0) return place + 1;
    entry.gone.store(true, std::memory_order_relaxed);
    return first;
}

// ------------------------------------------------------------------------------------------------------------
// changes

LoaderState::LoaderState() : counts_(loader_function() == nullptr ? loader_counts() : 0) {}

bool LoaderState::look(std::uint32_t number, std::uintptr_t address) {
    if (number != 0) {
        bool same = module(number).permanent ||
                    (counts_ != 0 && entries[number - 1].as_of.load(std::memory_order_relaxed) == counts_);
        for (const std::uint16_t seen : seen_) same = same || seen == number;
        if (same) {
            last_ = number;
            return true;
        }
    }
    Loaded loaded;
    const bool found = find_loaded(address, loaded);
    if (number == 0) return !found;
    if (!found || !same_file(module(number), loaded)) return false;
    seen_[next_++ % kSeen] = static_cast<std::uint16_t>(number);
    last_ = number;
    entries[number - 1].as_of.store(counts_, std::memory_order_relaxed);
    return true;
}

// -------------------------------------------------------------------------------------------------------------
// telling

namespace {

// The file that the module was loaded from, without NUL; returns its length.
std::size_t path_of(const Module& known, char* out, std::size_t size) {
    const char* name = known.name;
    if (known.main_program) {
        const ssize_t length = readlink("/proc/self/exe", out, size);
        return length > 0 ? static_cast<std::size_t>(length) : 0;
    }
    if (name[0] == '\0' || std::strchr(name, '/') == nullptr) name = "[vdso]";  // all else has a path
    std::size_t length = 0;
    // A path that was relative when it was loaded.
    if (name[0] != '/' && name[0] != '[' && getcwd(out, size) != nullptr) {
        length = std::strlen(out);
        if (length < size) out[length++] = '/';
    }
    const std::size_t bytes = std::strlen(name);
    const std::size_t fits = bytes < size - length ? bytes : size - length;
    std::memcpy(out + length, name, fits);
    return length + fits;
}

}  // namespace

bool tell_module(std::uint32_t number) {
    Entry& entry = entries[number - 1];
    const std::uint32_t attachment = generation();
    // Until it is out every thread sends it, so that no stack can be ahead of it.
    if (entry.told_by.load(std::memory_order_relaxed) == attachment) return true;
    const Module& known = entry.module();
    char text[wire::kMaxTextBytes];
    wire::ModuleText head{};
    head.begin = known.begin;
    head.end = known.end;
    head.bias = known.bias;
    head.build_id_bytes = known.identity.build_id_bytes;
    std::memcpy(text, &head, sizeof head);
    std::memcpy(text + sizeof head, known.identity.build_id, head.build_id_bytes);
    const std::size_t before = sizeof head + head.build_id_bytes;
    const std::size_t path = path_of(known, text + before, sizeof text - before);
    if (!emit_text(wire::TextKind::kModule, 0, text, before + path, number)) return false;
    entry.told_by.store(attachment, std::memory_order_relaxed);
    return true;
}

// -------------------------------------------------------------------------------------------------------------
// runtime

namespace {

// Where somebody was found not to be a runtime; look-ups come by the hundred from one place.
constinit std::atomic<std::uintptr_t> other_begin{0}, other_end{0};

void widen_runtime(std::uintptr_t begin, std::uintptr_t end) {
    // A reader between the two stores sees too little or too much, of which the walk makes sure.
    const std::uintptr_t old_begin = runtime_range.begin.load(std::memory_order_relaxed);
    const std::uintptr_t old_bytes = runtime_range.bytes.load(std::memory_order_relaxed);
    if (old_bytes != 0) {
        if (old_begin < begin) begin = old_begin;
        if (old_begin + old_bytes > end) end = old_begin + old_bytes;
    }
    runtime_range.begin.store(begin, std::memory_order_relaxed);
    runtime_range.bytes.store(end - begin, std::memory_order_relaxed);
}

}  // namespace

void note_caller(const void* address) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (may_be_runtime(address) ||
        (at >= other_begin.load(std::memory_order_relaxed) && at < other_end.load(std::memory_order_relaxed)))
        return;
    Loaded loaded;
    Object object;
    if (!find_loaded(at, loaded)) return;
    if (describe(loaded.info, object) && named(object.soname, "libcudart.so")) {
        widen_runtime(loaded.begin, loaded.end);
        return;
    }
    other_begin.store(loaded.begin, std::memory_order_relaxed);
    other_end.store(loaded.end, std::memory_order_relaxed);
}

bool object_of(std::uint32_t number, Object& out) {
    const Module& known = module(number);
    Loaded loaded;
    return find_loaded(known.begin, loaded) && loaded.begin == known.begin && describe(loaded.info, out);
}

std::uintptr_t target_of_call(std::uint32_t number, std::uintptr_t pc) {
#if defined(__x86_64__)
    const UnwindTables& tables = module(number).tables;
    const auto read = [&tables](std::uintptr_t at, void* out, std::size_t bytes) {
        const auto* from = reinterpret_cast<const unsigned char*>(at);
        if (!readable(tables, from, bytes)) return false;
        std::memcpy(out, from, bytes);
        return true;
    };
    // The word in a table that an instruction ending at `end` names by its last four bytes.
    const auto through = [&read](std::uintptr_t end) -> std::uintptr_t {
        std::int32_t offset = 0;
        std::uintptr_t target = 0;
        const bool known =
            read(end - 4, &offset, sizeof offset) &&
            read(end + static_cast<std::uintptr_t>(std::int64_t{offset}), &target, sizeof target);
        return known ? target : 0;
    };
    unsigned char code[6] = {};
    if (!read(pc - 6, code, sizeof code)) return 0;
    if (code[0] == 0xff && code[1] == 0x15) return through(pc);  // call *offset(%rip)
    if (code[1] != 0xe8) return 0;
    std::int32_t offset = 0;
    std::memcpy(&offset, code + 2, sizeof offset);
    std::uintptr_t stub = pc + static_cast<std::uintptr_t>(std::int64_t{offset});
    // A stub of .plt: [endbr64] [bnd] jmp *offset(%rip). Else it is the function.
    const unsigned char landing[] = {0xf3, 0x0f, 0x1e, 0xfa};
    unsigned char head[4] = {};
    const std::uintptr_t function = stub;
    if (read(stub, head, sizeof head) && std::memcmp(head, landing, sizeof head) == 0) stub += sizeof landing;
    if (!read(stub, head, sizeof head)) return function;
    if (head[0] == 0xf2) {
        if (head[1] == 0xff && head[2] == 0x25) return through(stub + 7);
    } else if (head[0] == 0xff && head[1] == 0x25) {
        return through(stub + 6);
    }
    return function;
#else
    (void)number;
    (void)pc;
    return 0;
#endif
}

const char* exported_function(std::uint32_t number, std::uintptr_t address) {
    Object object;
    return object_of(number, object) ? function_at(object, address) : nullptr;
}

}  // namespace fragscope::interpose
