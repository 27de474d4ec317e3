#include "interpose/python_frames.h"

#include <atomic>
#include <cstring>

#include "interpose/intern.h"
#include "interpose/modules.h"
#include "interpose/objects.h"
#include "interpose/unwind.h"

namespace fragscope::interpose {

namespace {

// Where things lie, in bytes. From CPython's headers:
// Include/cpython/{pystate,code,unicodeobject,bytesobject}.h, Include/internal/pycore_frame.h; the same for
// all releases of a minor version on 64-bit Linux, not debug and not free-threaded.
struct Layout {
    // PyThreadState: the current frame, or (3.11, 3.12) a _PyCFrame on the stack that has it
    std::uint32_t thread_frame, cframe_frame;
    bool through_cframe;
    // _PyInterpreterFrame
    std::uint32_t code, previous, instruction, owner, is_entry;
    bool entry_flag;  // 3.11: a frame says that it began an evaluation loop; later ones have a frame of its
                      // own for that
    // PyCodeObject
    std::uint32_t file_name, qualified_name, line_table, first_line, first_traceable, bytecode;
    // PyASCIIObject, PyCompactUnicodeObject, PyBytesObject, PyObject
    std::uint32_t text_length, text_state, ascii_size, compact_size, bytes_size, bytes_data, type;
};

constexpr Layout kLayout311 = {56,  8,  true, 32,  48, 56, 69, 68, true, 112, 128,
                               136, 72, 168,  184, 16, 32, 48, 72, 16,   32,  8};
constexpr Layout kLayout312 = {56,  0,  true, 0,   8,  56, 70, 0,  false, 112, 128,
                               136, 68, 176,  192, 16, 32, 40, 56, 16,    32,  8};

// From 3.13 on the runtime describes itself at its beginning: struct _Py_DebugOffsets of pycore_runtime.h,
// whose own layout is that of the minor version. False: not as this code knows it.
bool layout_313(const unsigned char* runtime, std::uint64_t version, Layout& out) {
    const auto at = [runtime](std::size_t offset) {
        std::uint64_t value = 0;
        std::memcpy(&value, runtime + offset, sizeof value);
        return value;
    };
    constexpr std::size_t kVersion = 8, kFreeThreaded = 16;
    if (std::memcmp(runtime, "xdebugpy", 8) != 0 || at(kVersion) != version || at(kFreeThreaded) != 0)
        return false;
    std::uint64_t largest = 0;
    const auto offset = [&](std::size_t from) {
        const std::uint64_t value = at(from);
        if (value > largest) largest = value;
        return static_cast<std::uint32_t>(value);
    };
    out = {};
    out.thread_frame = offset(184);
    out.previous = offset(232);
    out.code = offset(240);
    out.instruction = offset(248);
    out.owner = offset(264);
    out.file_name = offset(280);
    out.qualified_name = offset(296);
    out.line_table = offset(304);
    out.first_line = offset(312);
    out.bytecode = offset(344);
    out.first_traceable = out.bytecode - 16;
    out.type = offset(360);
    out.bytes_size = offset(520);
    out.bytes_data = offset(528);
    out.text_state = offset(544);
    out.text_length = offset(552);
    out.ascii_size = offset(560);
    out.compact_size = out.ascii_size + 16;
    return largest <= 4096 && out.bytecode >= 16;
}

using GetThread = const unsigned char* (*)();
using IsEnding = int (*)();

// A Python in this process.
struct Python {
    std::atomic<std::uint32_t> module;  // whose it is; 0: a free place
    std::atomic<bool> ready;
    bool known;  // its version is
    Layout layout;
    GetThread attached_thread;  // 3.12 and newer: the state that this thread runs in now
    GetThread own_thread;       // the state that was made for this thread
    IsEnding ending;
    const void *code_type, *text_type, *bytes_type;
};
constexpr std::uint32_t kPythons = 4;
constinit Python pythons[kPythons];
// Frames that were read and found to be what they should be. Until there were some, every pointer is tried
// before it is followed: this Python may have been built with another layout than its version has.
constinit std::atomic<std::uint32_t> frames_read{0};
constexpr std::uint32_t kFramesToTrust = 64;

void look_for_functions(std::uint32_t number, Python& out) {
    Object object;
    if (!object_of(number, object)) return;
    const auto function = [&object](const Wanted& name) { return find_symbol(object, name); };
    out.own_thread = reinterpret_cast<GetThread>(function(wanted("PyGILState_GetThisThreadState")));
    void* ending = function(wanted("Py_IsFinalizing"));
    if (ending == nullptr) ending = function(wanted("_Py_IsFinalizing"));
    out.ending = reinterpret_cast<IsEnding>(ending);
    out.code_type = find_datum(object, wanted("PyCode_Type"));
    out.text_type = find_datum(object, wanted("PyUnicode_Type"));
    out.bytes_type = find_datum(object, wanted("PyBytes_Type"));
    const void* version_at = find_datum(object, wanted("Py_Version"));  // since 3.11
    const void* runtime = find_datum(object, wanted("_PyRuntime"));
    if (version_at == nullptr || out.own_thread == nullptr || out.ending == nullptr ||
        out.code_type == nullptr || out.text_type == nullptr || out.bytes_type == nullptr)
        return;
    unsigned long version = 0;
    std::memcpy(&version, version_at, sizeof version);
    switch (version >> 16) {
        case 0x030b:
            out.layout = kLayout311;
            out.known = true;
            break;
        case 0x030c:
            out.layout = kLayout312;
            out.attached_thread =
                reinterpret_cast<GetThread>(function(wanted("_PyThreadState_UncheckedGet")));
            out.known = true;
            break;
        case 0x030d:
            out.attached_thread = reinterpret_cast<GetThread>(function(wanted("PyThreadState_GetUnchecked")));
            out.known = runtime != nullptr &&
                        layout_313(static_cast<const unsigned char*>(runtime), version, out.layout);
            break;
        default:
            break;
    }
}

// Looked for once; a thread that comes meanwhile does without.
const Python* python_of(std::uint32_t number) {
    for (Python& each : pythons) {
        std::uint32_t owner = each.module.load(std::memory_order_acquire);
        if (owner == 0 && each.module.compare_exchange_strong(owner, number, std::memory_order_acq_rel)) {
            look_for_functions(number, each);
            each.ready.store(true, std::memory_order_release);
            return &each;
        }
        if (owner == number) return each.ready.load(std::memory_order_acquire) ? &each : nullptr;
    }
    return nullptr;
}

// Follows pointers of the interpreter.
class Memory {
  public:
    explicit Memory(bool try_first) : try_first_(try_first) {}

    bool has(std::uintptr_t at, std::size_t bytes) {
        constexpr std::uintptr_t kPage = 4096;
        if (at < kPage || at + bytes < at) return false;
        if (!try_first_) return true;
        for (std::uintptr_t page = at / kPage; page <= (at + bytes - 1) / kPage; ++page) {
            bool known = false;
            for (const std::uintptr_t tried : tried_) known = known || tried == page;
            if (known) continue;
            if (!can_read(page * kPage)) return false;
            tried_[next_++ % kTried] = page;
        }
        return true;
    }
    template <typename Number>
    bool read(std::uintptr_t at, Number& out) {
        if (!has(at, sizeof out)) return false;
        std::memcpy(&out, reinterpret_cast<const void*>(at), sizeof out);
        return true;
    }
    bool is(std::uintptr_t object, const Layout& layout, const void* type) {
        std::uintptr_t found = 0;
        return object % 8 == 0 && read(object + layout.type, found) &&
               found == reinterpret_cast<std::uintptr_t>(type);
    }

  private:
    static constexpr std::uint32_t kTried = 8;
    const bool try_first_;
    std::uintptr_t tried_[kTried] = {};
    std::uint32_t next_ = 0;
};

// -------------------------------------------------------------------------------------------------------------
// texts

struct Text {
    std::uintptr_t data = 0;
    std::uint64_t characters = 0;
    std::uint32_t width = 0;  // bytes a character
    bool ascii = false;
};

bool find_text(Memory& memory, const Python& python, std::uintptr_t object, Text& out) {
    const Layout& layout = python.layout;
    std::uint32_t state = 0;
    if (!memory.is(object, layout, python.text_type) ||
        !memory.read(object + layout.text_length, out.characters) ||
        !memory.read(object + layout.text_state, state))
        return false;
    // Bits of the state: interned (2), kind (3), compact, ascii.
    out.width = (state >> 2) & 7;
    out.ascii = (state & 0x40) != 0;
    const bool compact = (state & 0x20) != 0;
    out.data = object + (out.ascii ? layout.ascii_size : layout.compact_size);
    constexpr std::uint64_t kMost = 1u << 16;
    return compact && (out.width == 1 || out.width == 2 || out.width == 4) && out.characters < kMost &&
           memory.has(out.data, out.characters * out.width + 1);
}

std::uint32_t character_at(const Text& text, std::uint64_t index) {
    const auto* at = reinterpret_cast<const unsigned char*>(text.data + index * text.width);
    std::uint32_t character = 0;
    std::memcpy(&character, at, text.width);  // little-endian
    return character;
}

// UTF-8, at most `size` bytes; a surrogate, which stands for a byte that is no text, becomes '?'.
std::size_t encode(const Text& text, char* out, std::size_t size) {
    if (text.ascii) {
        const std::size_t bytes = text.characters < size ? text.characters : size;
        std::memcpy(out, reinterpret_cast<const void*>(text.data), bytes);
        return bytes;
    }
    std::size_t length = 0;
    for (std::uint64_t i = 0; i < text.characters; ++i) {
        std::uint32_t character = character_at(text, i);
        if ((character >= 0xd800 && character < 0xe000) || character > 0x10ffff) character = '?';
        const std::size_t bytes = character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
        if (length + bytes > size) break;
        if (bytes == 1) {
            out[length++] = static_cast<char>(character);
            continue;
        }
        constexpr unsigned kLead[] = {0, 0, 0xc0, 0xe0, 0xf0};
        for (std::size_t part = 0; part < bytes; ++part) {
            const std::uint32_t bits = character >> (6 * (bytes - 1 - part));
            out[length++] = static_cast<char>(part == 0 ? kLead[bytes] | bits : 0x80 | (bits & 0x3f));
        }
    }
    return length;
}

constexpr std::size_t kMaxName = 512, kMaxFile = 1024;

// The string of a code object's place is kept by the object's address, and held against what it says now: an
// object may be another one's successor.
struct KeptPlace {
    std::atomic<std::uint64_t> key;  // address ^ place, so that a pair of two writers matches nothing
    std::atomic<std::uint64_t> place;
};
constexpr std::uint32_t kKeptPlaces = 2048;
constinit KeptPlace kept_places[kKeptPlaces];

bool is_place(std::uint32_t place, const Text& name, const Text& file) {
    const StringText known = string_text(place);
    if (!name.ascii || !file.ascii || known.bytes != name.characters + 1 + file.characters) return false;
    return std::memcmp(known.text, reinterpret_cast<const void*>(name.data), name.characters) == 0 &&
           known.text[name.characters] == '\n' &&
           std::memcmp(known.text + name.characters + 1, reinterpret_cast<const void*>(file.data),
                       file.characters) == 0;
}

bool find_place(Memory& memory, const Python& python, std::uintptr_t code, std::uint32_t& out) {
    std::uintptr_t name_object = 0, file_object = 0;
    Text name, file;
    if (!memory.read(code + python.layout.qualified_name, name_object) ||
        !memory.read(code + python.layout.file_name, file_object) ||
        !find_text(memory, python, name_object, name) || !find_text(memory, python, file_object, file))
        return false;
    KeptPlace& kept = kept_places[(code * 0x9e3779b97f4a7c15u) >> (64 - __builtin_ctz(kKeptPlaces))];
    const std::uint64_t place = kept.place.load(std::memory_order_relaxed);
    if ((kept.key.load(std::memory_order_relaxed) ^ place) == code &&
        is_place(static_cast<std::uint32_t>(place), name, file)) {
        out = static_cast<std::uint32_t>(place);
        return true;
    }
    char text[kMaxName + 1 + kMaxFile];
    std::size_t length = encode(name, text, kMaxName);
    text[length++] = '\n';
    length += encode(file, text + length, kMaxFile);
    out = intern(text, length);
    kept.place.store(out, std::memory_order_relaxed);
    kept.key.store(code ^ out, std::memory_order_relaxed);
    return true;
}

// -------------------------------------------------------------------------------------------------------------
// lines

// The line of a code unit, by the table of locations (CPython, Objects/locations.md, unchanged from 3.11
// to 3.13); 0: none is stated.
std::uint32_t line_of(const unsigned char* table, std::size_t bytes, std::int64_t first_line,
                      std::int64_t unit) {
    std::int64_t line = first_line, begin = 0;
    for (std::size_t at = 0; at < bytes;) {
        const unsigned head = table[at++];
        const unsigned form = (head >> 3) & 15;
        std::int64_t delta = 0;
        if (form == 13 || form == 14) {
            // A signed number in groups of six bits, its sign in the lowest.
            std::uint64_t value = 0;
            for (unsigned shift = 0; at < bytes; shift += 6) {
                const unsigned part = table[at++];
                if (shift < 60) value |= static_cast<std::uint64_t>(part & 63) << shift;
                if ((part & 64) == 0) break;
            }
            delta = static_cast<std::int64_t>(value >> 1);
            if ((value & 1) != 0) delta = -delta;
        } else if (form >= 10 && form <= 12) {
            delta = form - 10;
        }
        line += delta;
        begin += (head & 7) + 1;
        if (unit < begin)
            return form == 15 || line <= 0 || line > 0xffffff ? 0 : static_cast<std::uint32_t>(line);
        while (at < bytes && (table[at] & 0x80) == 0) ++at;  // columns; each entry begins with this bit
    }
    return 0;
}

bool find_line(Memory& memory, const Python& python, std::uintptr_t code, std::int64_t unit,
               std::uint32_t& out) {
    const Layout& layout = python.layout;
    std::int32_t first_line = 0;
    std::uintptr_t table = 0;
    std::uint64_t bytes = 0;
    if (!memory.read(code + layout.first_line, first_line) || !memory.read(code + layout.line_table, table) ||
        !memory.is(table, layout, python.bytes_type) || !memory.read(table + layout.bytes_size, bytes) ||
        bytes > 1u << 24 || !memory.has(table + layout.bytes_data, bytes))
        return false;
    out = unit < 0 ? static_cast<std::uint32_t>(first_line) & 0xffffffu
                   : line_of(reinterpret_cast<const unsigned char*>(table + layout.bytes_data), bytes,
                             first_line, unit);
    return true;
}

// ------------------------------------------------------------------------------------------------------------
// frames

constexpr std::uint32_t kMostFrames = 4096;  // looked at, which includes those that are not told
constexpr std::uint8_t kOwnedByGenerator = 1, kOwnedByNativeStack = 3;

bool read_frame(Memory& memory, const Python& python, std::uintptr_t frame, std::uintptr_t code,
                std::uint8_t owner, PythonFrame& out, bool& complete) {
    const Layout& layout = python.layout;
    std::uintptr_t instruction = 0;
    std::int32_t first_traceable = 0;
    if (!memory.is(code, layout, python.code_type) || !memory.read(frame + layout.instruction, instruction) ||
        !memory.read(code + layout.first_traceable, first_traceable))
        return false;
    const auto unit = static_cast<std::int64_t>(instruction - (code + layout.bytecode)) / 2;
    // One that is still being set up is not shown by tracebacks either (_PyFrame_IsIncomplete).
    complete = owner == kOwnedByGenerator || unit >= first_traceable;
    return !complete ||
           (find_place(memory, python, code, out.place) && find_line(memory, python, code, unit, out.line));
}

bool walk_frames(Memory& memory, const Python& python, std::uintptr_t frame, PythonFrames& out) {
    const Layout& layout = python.layout;
    std::uint32_t run = 0;
    for (std::uint32_t i = 0; frame != 0 && i < kMostFrames; ++i) {
        std::uintptr_t code = 0, previous = 0;
        std::uint8_t owner = 0, entry = 0;
        if (frame % 8 != 0 || !memory.read(frame + layout.code, code) ||
            !memory.read(frame + layout.previous, previous) || !memory.read(frame + layout.owner, owner) ||
            !memory.read(frame + layout.is_entry, entry))
            return false;
        if (!layout.entry_flag && owner == kOwnedByNativeStack) {
            ++run;
            frame = previous;
            continue;
        }
        PythonFrame read{0, 0, run};
        bool complete = false;
        if (!read_frame(memory, python, frame, code, owner, read, complete)) return false;
        if (complete) {
            if (out.count == wire::kMaxFrames) {
                out.cut = true;
                return true;
            }
            out.frames[out.count++] = read;
        }
        if (layout.entry_flag && entry != 0) ++run;
        frame = previous;
    }
    return true;
}

}  // namespace

bool python_frames(std::uint32_t number, std::uintptr_t low, std::uintptr_t high, PythonFrames& out) {
    const Python* python = python_of(number);
    if (python == nullptr || !python->known || python->ending() != 0) return false;
    const Layout& layout = python->layout;
    const unsigned char* attached = python->attached_thread != nullptr ? python->attached_thread() : nullptr;
    const unsigned char* thread = attached != nullptr ? attached : python->own_thread();
    // Of a thread that does not hold the interpreter, somebody else may be about to end it: look before each
    // step.
    Memory memory(attached == nullptr || frames_read.load(std::memory_order_relaxed) < kFramesToTrust);
    const auto at = reinterpret_cast<std::uintptr_t>(thread);
    std::uintptr_t frame = 0;
    if (thread == nullptr || !memory.read(at + layout.thread_frame, frame)) return false;
    if (layout.through_cframe) {
        // Of the innermost evaluation loop, which keeps it on the native stack. Elsewhere: not this stack's
        // state.
        const std::uintptr_t cframe = frame;
        if (cframe < low || cframe >= high || !memory.read(cframe + layout.cframe_frame, frame)) return false;
    }
    if (!walk_frames(memory, *python, frame, out)) return false;
    frames_read.fetch_add(out.count, std::memory_order_relaxed);
    return true;
}

}  // namespace fragscope::interpose
