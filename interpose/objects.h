// Loaded objects as their dynamic sections describe them, and their exported symbols: read in place, so that
// nothing is loaded, allocated, or left for the program's dlerror() to find. What the loader has accepted is
// taken to be sound.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fragscope::interpose {

struct Object {
    std::uintptr_t base = 0;
    std::uintptr_t begin = 0, end = 0;
    const char* path = "";
    const char* soname = "";
    const char* strings = nullptr;
    std::size_t string_bytes = 0;  // 0: not stated
    const ElfW(Sym) * symbols = nullptr;
    const std::uint32_t* gnu_hash = nullptr;
    const std::uint32_t* hash = nullptr;
    std::uint64_t flags_1 = 0;  // DF_1_…
};

// False: it has no symbols to be found by.
bool describe(const dl_phdr_info& info, Object& object);

// Is `soname` `stem` itself, or `stem` with a version?
bool named(const char* soname, const char* stem);

// The first loaded object with that name. A search takes the loader's own lock for its length, as unwinding
// does.
bool find_object(const char* stem, Object& out);
// How many loaded objects have that name.
int count_objects(const char* stem);
// Whether the object names one among those that it needs which is the `same` as `name`: named(), or by every
// letter.
bool needs(const dl_phdr_info& info, const Object& object, const char* name,
           bool (*same)(const char* needed, const char* name));
// The first loaded object that names one of that name among those it needs, and is not one itself.
bool find_needing(const char* stem, Object& out);

constexpr std::uint32_t gnu_hash_of(const char* name) {
    std::uint32_t h = 5381;
    for (const char* c = name; *c != '\0'; ++c) h = h * 33 + static_cast<unsigned char>(*c);
    return h;
}

// A name with its hash.
struct Wanted {
    const char* name;
    std::uint32_t hash;
};
constexpr Wanted wanted(const char* name) { return {name, gnu_hash_of(name)}; }

// Of objects in the order of their loading: whether they stand behind the shim, which is none of these.
class BehindUs {
  public:
    bool holds(const Object& object) {
        const auto here = reinterpret_cast<std::uintptr_t>(&describe);
        const bool ours = here >= object.begin && here < object.end;
        met_ = met_ || ours;
        return met_ && !ours;
    }

  private:
    bool met_ = false;
};

// What the object exports by that name; nullptr: nothing.
void* find_symbol(const Object& object, const Wanted& symbol);
const void* find_datum(const Object& object, const Wanted& symbol);
// Bytes of the exported symbol at exactly that address and name; 0: none.
std::size_t size_of_symbol(const Object& object, const Wanted& symbol);

// Whether it defines a symbol that is to be the same in the whole process (STB_GNU_UNIQUE) and has `part` in its
// name. Looks at every symbol.
bool has_unique_symbol(const Object& object, const char* part);

// Name of the exported function whose code `address` lies in; nullptr: none. Of several names for the same
// place, one without a leading underscore. Looks at every symbol.
const char* function_at(const Object& object, std::uintptr_t address);

}  // namespace fragscope::interpose
