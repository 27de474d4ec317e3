#include "interpose/objects.h"

namespace fragscope::interpose {

bool describe(const dl_phdr_info& info, Object& object) {
    object = {};
    object.base = info.dlpi_addr;
    object.path = info.dlpi_name;
    object.begin = UINTPTR_MAX;
    const ElfW(Dyn)* dynamic = nullptr;
    for (int i = 0; i < info.dlpi_phnum; ++i) {
        const ElfW(Phdr)& segment = info.dlpi_phdr[i];
        const std::uintptr_t start = info.dlpi_addr + segment.p_vaddr;
        if (segment.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(start);
        if (segment.p_type != PT_LOAD) continue;
        if (start < object.begin) object.begin = start;
        if (start + segment.p_memsz > object.end) object.end = start + segment.p_memsz;
    }
    if (dynamic == nullptr) return false;
    std::size_t soname = 0;
    bool has_soname = false;
    for (const ElfW(Dyn)* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
        // The loader has made these addresses absolute on some machines and not on others.
        const std::uintptr_t raw = entry->d_un.d_ptr;
        const std::uintptr_t at = raw < info.dlpi_addr ? info.dlpi_addr + raw : raw;
        switch (entry->d_tag) {
            case DT_STRTAB:
                object.strings = reinterpret_cast<const char*>(at);
                break;
            case DT_STRSZ:
                object.string_bytes = entry->d_un.d_val;
                break;
            case DT_SYMTAB:
                object.symbols = reinterpret_cast<const ElfW(Sym)*>(at);
                break;
            case DT_GNU_HASH:
                object.gnu_hash = reinterpret_cast<const std::uint32_t*>(at);
                break;
            case DT_HASH:
                object.hash = reinterpret_cast<const std::uint32_t*>(at);
                break;
            case DT_FLAGS_1:
                object.flags_1 = entry->d_un.d_val;
                break;
            case DT_SONAME:
                soname = entry->d_un.d_val;
                has_soname = true;
                break;
            default:
                break;
        }
    }
    if (object.strings == nullptr || object.symbols == nullptr) return false;
    if (has_soname) object.soname = object.strings + soname;
    return true;
}

bool named(const char* soname, const char* stem) {
    const std::size_t length = std::strlen(stem);
    return std::strncmp(soname, stem, length) == 0 && (soname[length] == '\0' || soname[length] == '.');
}

namespace {

struct Search {
    const char* stem;
    Object object;
};

}  // namespace

bool find_object(const char* stem, Object& out) {
    Search search{stem, {}};
    const int found = dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            auto& wanted = *static_cast<Search*>(data);
            return describe(*info, wanted.object) && named(wanted.object.soname, wanted.stem) ? 1 : 0;
        },
        &search);
    out = search.object;
    return found != 0;
}

int count_objects(const char* stem) {
    struct Count {
        const char* stem;
        int found;
    } count{stem, 0};
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            auto& wanted = *static_cast<Count*>(data);
            Object object;
            if (describe(*info, object) && named(object.soname, wanted.stem)) ++wanted.found;
            return 0;
        },
        &count);
    return count.found;
}

bool needs(const dl_phdr_info& info, const Object& object, const char* name,
           bool (*same)(const char* needed, const char* name)) {
    for (int i = 0; i < info.dlpi_phnum; ++i) {
        if (info.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; ++entry)
            if (entry->d_tag == DT_NEEDED && same(object.strings + entry->d_un.d_val, name)) return true;
    }
    return false;
}

bool find_needing(const char* stem, Object& out) {
    Search search{stem, {}};
    const int found = dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            auto& wanted = *static_cast<Search*>(data);
            Object& object = wanted.object;
            if (!describe(*info, object) || named(object.soname, wanted.stem)) return 0;
            return needs(*info, object, wanted.stem, named) ? 1 : 0;
        },
        &search);
    out = search.object;
    return found != 0;
}

namespace {

bool exported(const ElfW(Sym) & symbol, bool function) {
    const unsigned type = symbol.st_info & 0xf;
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_value == 0) return false;
    return function ? type == STT_FUNC || type == STT_NOTYPE : type == STT_OBJECT;
}

// Calls `visit(index)` for the symbols that may be called `name` until it returns true (GNU hash table, or
// the older one).
template <typename Visit>
void visit_candidates(const Object& object, const Wanted& symbol, Visit&& visit) {
    if (object.gnu_hash != nullptr) {
        const std::uint32_t h = symbol.hash;
        const std::uint32_t buckets = object.gnu_hash[0], first = object.gnu_hash[1],
                            bloom = object.gnu_hash[2], shift = object.gnu_hash[3];
        constexpr std::uint32_t kBits = sizeof(std::uintptr_t) * 8;
        const auto* filter = reinterpret_cast<const std::uintptr_t*>(object.gnu_hash + 4);
        const auto* bucket = reinterpret_cast<const std::uint32_t*>(filter + bloom);
        if (buckets == 0 || bloom == 0) return;
        const std::uintptr_t word = filter[(h / kBits) % bloom];
        if (((word >> (h % kBits)) & (word >> ((h >> shift) % kBits)) & 1) == 0) return;
        std::uint32_t index = bucket[h % buckets];
        if (index < first) return;
        for (const std::uint32_t* chain = bucket + buckets;; ++index) {
            const std::uint32_t link = chain[index - first];
            if ((link | 1) == (h | 1) && visit(index)) return;
            if ((link & 1) != 0) return;
        }
    }
    if (object.hash == nullptr) return;
    std::uint32_t h = 0;
    for (const char* c = symbol.name; *c != '\0'; ++c) {
        h = (h << 4) + static_cast<unsigned char>(*c);
        h = (h ^ ((h & 0xf0000000u) >> 24)) & 0x0fffffffu;
    }
    const std::uint32_t buckets = object.hash[0];
    if (buckets == 0) return;
    for (std::uint32_t index = object.hash[2 + h % buckets]; index != 0;
         index = object.hash[2 + buckets + index])
        if (visit(index)) return;
}

const ElfW(Sym) * find(const Object& object, const Wanted& symbol, bool function) {
    const ElfW(Sym)* found = nullptr;
    visit_candidates(object, symbol, [&](std::uint32_t index) {
        const ElfW(Sym)& candidate = object.symbols[index];
        if (!exported(candidate, function) ||
            std::strcmp(object.strings + candidate.st_name, symbol.name) != 0)
            return false;
        found = &candidate;
        return true;
    });
    return found;
}

// How many symbols there are, which the tables by hash only tell indirectly.
std::uint32_t symbol_count(const Object& object) {
    if (object.hash != nullptr) return object.hash[1];
    if (object.gnu_hash == nullptr) return 0;
    const std::uint32_t buckets = object.gnu_hash[0], first = object.gnu_hash[1], bloom = object.gnu_hash[2];
    const auto* bucket = reinterpret_cast<const std::uint32_t*>(
        reinterpret_cast<const std::uintptr_t*>(object.gnu_hash + 4) + bloom);
    const std::uint32_t* chain = bucket + buckets;
    std::uint32_t last = 0;
    for (std::uint32_t i = 0; i < buckets; ++i)
        if (bucket[i] > last) last = bucket[i];
    if (last < first) return first;
    while ((chain[last - first] & 1) == 0) ++last;
    return last + 1;
}

}  // namespace

void* find_symbol(const Object& object, const Wanted& symbol) {
    const ElfW(Sym)* found = find(object, symbol, true);
    return found != nullptr ? reinterpret_cast<void*>(object.base + found->st_value) : nullptr;
}

const void* find_datum(const Object& object, const Wanted& symbol) {
    const ElfW(Sym)* found = find(object, symbol, false);
    return found != nullptr ? reinterpret_cast<const void*>(object.base + found->st_value) : nullptr;
}

std::size_t size_of_symbol(const Object& object, const Wanted& symbol) {
    const ElfW(Sym)* found = find(object, symbol, true);
    return found != nullptr ? found->st_size : 0;
}

const char* function_at(const Object& object, std::uintptr_t address) {
    const std::uint32_t count = symbol_count(object);
    const char* best = nullptr;
    for (std::uint32_t i = 0; i < count; ++i) {
        const ElfW(Sym)& symbol = object.symbols[i];
        if (!exported(symbol, true) || address - object.base - symbol.st_value >= symbol.st_size ||
            (object.string_bytes != 0 && symbol.st_name >= object.string_bytes))
            continue;
        const char* name = object.strings + symbol.st_name;
        if (best == nullptr || (best[0] == '_' && name[0] != '_')) best = name;
    }
    return best;
}

bool has_unique_symbol(const Object& object, const char* part) {
    const std::uint32_t count = symbol_count(object);
    for (std::uint32_t i = 0; i < count; ++i) {
        const ElfW(Sym)& symbol = object.symbols[i];
        if (symbol.st_info >> 4 == STB_GNU_UNIQUE && symbol.st_shndx != SHN_UNDEF &&
            (object.string_bytes == 0 || symbol.st_name < object.string_bytes) &&
            std::strstr(object.strings + symbol.st_name, part) != nullptr)
            return true;
    }
    return false;
}

}  // namespace fragscope::interpose
