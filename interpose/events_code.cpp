// Events of what takes device memory without saying how much: code, streams, contexts, limits.
#include <elf.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "interpose/call.h"
#include "interpose/hot.h"

namespace fragscope::interpose {

namespace {

// Leading words of what nvcc embeds for the runtime (fatbinary_section.h) and of the fat binary that it
// points to.
constexpr std::uint32_t kWrapperMagic = 0x466243b1;
constexpr std::uint32_t kFatBinaryMagic = 0xba55ed50;
struct Wrapper {
    std::uint32_t magic, version;
    const void* data;
    const void* file;
};
struct FatBinary {
    std::uint32_t magic;
    std::uint16_t version, header_bytes;
    std::uint64_t bytes;  // after the header
};
constexpr std::uint64_t kMaxImage = std::uint64_t{1} << 36;

std::uint64_t elf_bytes(const unsigned char* image) {
    Elf64_Ehdr header;
    std::memcpy(&header, image, sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr) ||
        header.e_shnum == 0)
        return 0;
    if (header.e_shoff > kMaxImage || header.e_phoff > kMaxImage) return 0;
    // The driver has just read these tables.
    std::uint64_t end = header.e_shoff + std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr);
    end = std::max(end, header.e_phoff + std::uint64_t{header.e_phnum} * header.e_phentsize);
    for (std::uint32_t i = 0; i < header.e_shnum; ++i) {
        Elf64_Shdr section;
        std::memcpy(&section, image + header.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL) continue;
        if (section.sh_offset > kMaxImage || section.sh_size > kMaxImage) return 0;
        end = std::max(end, section.sh_offset + section.sh_size);
    }
    return end <= kMaxImage ? end : 0;
}

// Of an image that the driver has just loaded: its size where its form says it, else 0.
std::uint64_t image_bytes(const void* image) {
    const auto* bytes = static_cast<const unsigned char*>(image);
    if (image == nullptr) return 0;
    std::uint32_t word = 0;
    std::memcpy(&word, bytes, sizeof word);
    if (word == kWrapperMagic) {
        Wrapper wrapper;
        std::memcpy(&wrapper, bytes, sizeof wrapper);
        bytes = static_cast<const unsigned char*>(wrapper.data);
        if (wrapper.version != 1 || bytes == nullptr) return 0;
        std::memcpy(&word, bytes, sizeof word);
    }
    if (word == kFatBinaryMagic) {
        FatBinary binary;
        std::memcpy(&binary, bytes, sizeof binary);
        return binary.bytes <= kMaxImage ? binary.header_bytes + binary.bytes : 0;
    }
    if (std::memcmp(bytes, ELFMAG, SELFMAG) == 0) return elf_bytes(bytes);
    // PTX: text that ends with a NUL.
    const bool text =
        bytes[0] == '.' || bytes[0] == '/' || bytes[0] == '\n' || bytes[0] == '\r' || bytes[0] == ' ';
    return text ? std::strlen(reinterpret_cast<const char*>(bytes)) : 0;
}

std::uint64_t file_bytes(const char* path) {
    const int saved = errno;
    struct stat status;
    const bool known = path != nullptr && stat(path, &status) == 0 && S_ISREG(status.st_mode);
    errno = saved;
    return known ? static_cast<std::uint64_t>(status.st_size) : 0;
}

}  // namespace

// -------------------------------------------------------------------------------------- code

void Call::code_loaded(bool library, std::uint64_t object, std::uint64_t bytes) {
    const Place at = place();
    // A library belongs to no context: its code is loaded in those that use it.
    record(Kind::kModuleLoaded, library ? 1 : 0, bytes, object, library ? 0 : at.context);
}

void Call::module_loaded(const CUmodule* out, const void* image) {
    code_loaded(false, succeeded() && out != nullptr ? number_of(*out) : 0,
                succeeded() ? image_bytes(image) : 0);
}

void Call::module_loaded_from(const CUmodule* out, const char* path) {
    code_loaded(false, succeeded() && out != nullptr ? number_of(*out) : 0,
                succeeded() ? file_bytes(path) : 0);
}

void Call::library_loaded(const CUlibrary* out, const void* image) {
    code_loaded(true, succeeded() && out != nullptr ? number_of(*out) : 0,
                succeeded() ? image_bytes(image) : 0);
}

void Call::library_loaded_from(const CUlibrary* out, const char* path) {
    code_loaded(true, succeeded() && out != nullptr ? number_of(*out) : 0,
                succeeded() ? file_bytes(path) : 0);
}

void Call::module_unloaded(const void* object, bool library) {
    unplaced_inline(Kind::kModuleUnloaded, library ? 1 : 0, 0, number_of(object), 0);
}

void Call::global_found_at(std::uint64_t address, const std::size_t* bytes, const void* object,
                           bool managed) {
    place();
    const std::uint64_t size = succeeded() && bytes != nullptr ? *bytes : 0;
    record(Kind::kGlobalFound, address, size, number_of(object), managed ? 1 : 0);
}

// ----------------------------------------------------------------- limits, streams, contexts

void Call::limit_set(CUlimit limit, std::size_t value) {
    const Place at = place();
    record(Kind::kLimitSet, static_cast<std::uint64_t>(limit), value, at.context, 0);
}

void Call::stream_created(const CUstream* out) {
    const Place at = place();
    record(Kind::kStreamCreated, 0, 0, succeeded() && out != nullptr ? number_of(*out) : 0, at.context);
}

// Of a green context's device, which need not be the current one.
void Call::green_stream_created(const CUstream* out) {
    unplaced_inline(Kind::kStreamCreated, 0, 0, succeeded() && out != nullptr ? number_of(*out) : 0, 0);
}

void Call::green_context_created(const CUgreenCtx* out, CUdevice device, unsigned flags) {
    at_ordinal(device);
    record(Kind::kGreenContextCreated, 0, flags, succeeded() && out != nullptr ? number_of(*out) : 0, 0);
}

void Call::checkpoint(unsigned step, int process) {
    unplaced_inline(Kind::kCheckpoint, step, 0,
                    static_cast<std::uint64_t>(static_cast<std::int64_t>(process)), 0);
}

}  // namespace fragscope::interpose
