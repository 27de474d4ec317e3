#include <doctest/doctest.h>
#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "collector/launch.h"
#include "collector/program_file.h"

using namespace fragscope;
using collector::examine_program;

namespace {

std::filesystem::path make_file(const std::string& name, const std::string& content, mode_t mode) {
    const std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("fragscope-test-" + std::to_string(::getpid()) + name);
    std::ofstream(path, std::ios::binary) << content;
    ::chmod(path.c_str(), mode);
    return path;
}

std::string elf(unsigned char file_class, bool with_interpreter) {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = file_class;
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 1;
    Elf64_Phdr segment{};
    segment.p_type = with_interpreter ? PT_INTERP : PT_LOAD;
    std::string bytes(sizeof header + sizeof segment, '\0');
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, &segment, sizeof segment);
    return bytes;
}

}  // namespace

TEST_CASE("programs are found as the shell finds them") {
    CHECK(examine_program("sh", "/no-such-folder:/bin").path == "/bin/sh");
    CHECK(examine_program("/bin/sh", "").path == "/bin/sh");
    const collector::ProgramFile missing = examine_program("no-such-program", "/bin:/usr/bin");
    CHECK(missing.error_status == 127);
    CHECK(missing.error == "cannot start no-such-program: there is no such program");
    CHECK(examine_program("", "/bin").error_status == 127);
    CHECK(examine_program("/etc/passwd", "").error_status == 126);
    CHECK(examine_program("/tmp", "").error == "cannot start /tmp: it is a directory");
    CHECK(examine_program("/etc/passwd/x", "").error_status == 127);
}

TEST_CASE("programs into which nothing can be preloaded are named before they start") {
    const auto warning = [](const std::filesystem::path& path) {
        const std::string text = examine_program(path.string(), "").warning;
        std::filesystem::remove(path);
        return text;
    };
    CHECK(warning(make_file("-dynamic", elf(ELFCLASS64, true), 0755)) == "");
    CHECK(warning(make_file("-static", elf(ELFCLASS64, false), 0755)).find("statically linked") !=
          std::string::npos);
    CHECK(warning(make_file("-32", elf(ELFCLASS32, true), 0755)).find("32-bit") != std::string::npos);
    CHECK(warning(make_file("-script", "#!/bin/sh\n", 0755)) == "");
    CHECK(warning(make_file("-short", "\177ELF", 0755)) == "");
    if (::geteuid() == 0) {
        const std::filesystem::path path = make_file("-setuid", elf(ELFCLASS64, true), 0755);
        REQUIRE(::chown(path.c_str(), 1234, 1234) == 0);
        REQUIRE(::chmod(path.c_str(), 04755) == 0);
        CHECK(warning(path).find("setuid") != std::string::npos);
    }
}

TEST_CASE("the program's environment: the shim first, everything else as it was") {
    ::setenv("LD_PRELOAD", "/other/shim.so /old/one.so", 1);  // the first one: of a session around this one
    ::setenv("FRAGSCOPE_SESSION", "/stale", 1);
    ::setenv("NVTX_INJECTION64_PATH", "/other/shim.so", 1);
    ::setenv("FRAGSCOPE_NVTX_CHAIN", "/tool.so", 1);
    ::setenv("UNRELATED", "kept", 1);
    const std::vector<std::string> environment =
        collector::traced_environment("/new/shim.so", "/fresh", true);
    ::unsetenv("LD_PRELOAD");
    ::unsetenv("NVTX_INJECTION64_PATH");
    ::unsetenv("FRAGSCOPE_NVTX_CHAIN");
    ::unsetenv("FRAGSCOPE_SESSION");
    const auto count = [&](const std::string& entry) {
        return std::count(environment.begin(), environment.end(), entry);
    };
    CHECK(count("LD_PRELOAD=/new/shim.so:/old/one.so") == 1);
    CHECK(count("FRAGSCOPE_SESSION=/fresh") == 1);
    CHECK(count("FRAGSCOPE_SESSION=/stale") == 0);
    CHECK(count("NVTX_INJECTION64_PATH=/new/shim.so") == 1);
    CHECK(count("NVTX_INJECTION64_PATH=/other/shim.so") == 0);
    CHECK(count("FRAGSCOPE_NVTX_CHAIN=/tool.so") == 1);
    CHECK(count("UNRELATED=kept") == 1);
}
