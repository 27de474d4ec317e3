// The symbolizer against a program that says where its calls are (known_places.cpp), whole, stripped,
// changed, gone and damaged. Expected lines come from the compiler's __LINE__ in it.
#include <doctest/doctest.h>
#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "analysis/read/symbolizer.h"

using namespace fragscope;
using analysis::FrameName;
using analysis::NameForm;
using analysis::Symbolizer;
namespace fs = std::filesystem;

namespace {

std::string program() {
    const char* path = std::getenv("KNOWN_PLACES");
    REQUIRE(path != nullptr);
    return path;
}

struct Known {
    std::uint64_t behind = 0;
    std::string function;
    std::uint32_t line = 0;
    std::string around;  // "-": it is not inlined
    std::uint32_t line_around = 0;
};

std::vector<Known> what_it_says() {
    FILE* out = ::popen(program().c_str(), "r");
    REQUIRE(out != nullptr);
    std::vector<Known> known;
    char line[1024];
    while (std::fgets(line, sizeof line, out) != nullptr) {
        Known one;
        std::istringstream words(line);
        words >> std::hex >> one.behind >> std::dec >> one.function >> one.line >> one.around >>
            one.line_around;
        known.push_back(one);
    }
    ::pclose(out);
    REQUIRE(known.size() == 3);
    return known;
}

std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// The GNU build-id note's bytes, by the section headers.
std::string build_id_of(const std::string& bytes) {
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof header);
    for (int i = 0; i < header.e_shnum; ++i) {
        Elf64_Shdr section;
        std::memcpy(&section, bytes.data() + header.e_shoff + static_cast<std::size_t>(i) * sizeof section,
                    sizeof section);
        if (section.sh_type != SHT_NOTE) continue;
        Elf64_Nhdr note;
        std::memcpy(&note, bytes.data() + section.sh_offset, sizeof note);
        if (note.n_type == NT_GNU_BUILD_ID)
            return bytes.substr(section.sh_offset + sizeof note + 4, note.n_descsz);
    }
    return "";
}

// A folder that is gone at the end, with a copy of the program in it.
struct Place {
    Place() {
        char name[] = "/tmp/fragscope-symbols-XXXXXX";
        REQUIRE(::mkdtemp(name) != nullptr);
        folder = name;
        copy = folder + "/program";
        fs::copy_file(program(), copy);
    }
    ~Place() { fs::remove_all(folder); }
    void shell(const std::string& command) {
        REQUIRE(std::system(("cd " + folder + " && " + command).c_str()) == 0);
    }
    std::string folder;
    std::string copy;
};

trace::Stack stack_of(const std::vector<std::uint64_t>& frames) {
    trace::Stack stack;
    stack.mutable_frames()->Add(frames.begin(), frames.end());
    return stack;
}

analysis::ProcessNames names_of(const std::string& path, const std::string& build_id) {
    analysis::ProcessNames names;
    trace::CodeModule& module = names.modules[1];
    module.set_path(path);
    module.set_build_id(build_id);
    return names;
}

std::vector<FrameName> at(Symbolizer& symbolizer, const std::string& path, const std::string& build_id,
                          std::uint64_t offset) {
    return symbolizer.frames(names_of(path, build_id), stack_of({wire::module_frame(1, offset)}));
}

// Parameters are known only of functions that are visible outside of their file.
std::string plain(const std::string& function) { return function.substr(0, function.find('(')); }

void check_sources(const std::vector<FrameName>& frames, const Known& known) {
    const bool inlined = known.around != "-";
    REQUIRE(frames.size() == (inlined ? 2 : 1));
    CHECK(frames[0].form == NameForm::kSource);
    CHECK(plain(frames[0].function) == known.function);
    CHECK(frames[0].file.find("tests/unit/symbols/known_places.cpp") != std::string::npos);
    CHECK(frames[0].line == known.line);
    CHECK(frames[0].inlined == inlined);
    if (!inlined) return;
    CHECK(plain(frames[1].function) == known.around);
    CHECK(frames[1].file.find("known_places.cpp") != std::string::npos);
    CHECK(frames[1].line == known.line_around);
    CHECK_FALSE(frames[1].inlined);
}

}  // namespace

TEST_CASE("functions, lines, and functions inlined into them") {
    Symbolizer symbolizer("/no/debug/files");
    const std::string id = build_id_of(content(program()));
    REQUIRE(id.size() == 20);
    for (const Known& known : what_it_says()) {
        CAPTURE(known.function);
        check_sources(at(symbolizer, program(), id, known.behind), known);
        check_sources(at(symbolizer, program(), "", known.behind), known);  // the recorder found no build-id
    }
}

TEST_CASE("a stack with frames of every form") {
    Symbolizer symbolizer("/no/debug/files");
    analysis::ProcessNames names = names_of("/no/such/file", "x");
    names.texts[7] = "train\n/home/me/train.py";
    names.texts[8] = "<module>";
    const std::vector<FrameName> frames = symbolizer.frames(
        names,
        stack_of({wire::python_frame(7, 12), wire::python_frame(8, 0), wire::python_frame(9, 1),
                  wire::address_frame(0x7000), wire::module_frame(1, 0x40), wire::module_frame(2, 0x50)}));
    REQUIRE(frames.size() == 6);
    CHECK(frames[0].form == NameForm::kPython);
    CHECK(frames[0].function == "train");
    CHECK(frames[0].file == "/home/me/train.py");
    CHECK(frames[0].line == 12);
    CHECK(frames[1].function == "<module>");
    CHECK(frames[1].file == "");
    CHECK(frames[2].function == "");
    CHECK(frames[3].form == NameForm::kAddress);
    CHECK(frames[3].offset == 0x7000);
    CHECK(frames[4].form == NameForm::kModule);
    CHECK(frames[4].module == "/no/such/file");
    CHECK(frames[4].offset == 0x40);
    CHECK(frames[4].why == "the file is gone");
    CHECK(frames[5].why == "which file it lies in was lost while recording");
}

TEST_CASE("without debug information: the nearest symbol; with a separate file of it: everything again") {
    Place place;
    const std::vector<Known> known = what_it_says();
    const std::string id = build_id_of(content(place.copy));
    const std::string hex = analysis::build_id_in_hex(id);
    place.shell(fmt::format(
        "mkdir -p debug/.build-id/{0} && objcopy --only-keep-debug program debug/.build-id/{0}/{1}.debug"
        " && strip --strip-debug program",
        hex.substr(0, 2), hex.substr(2)));
    {
        Symbolizer symbolizer("");
        const std::vector<FrameName> frames = at(symbolizer, place.copy, id, known[0].behind);
        REQUIRE(frames.size() == 1);
        CHECK(frames[0].form == NameForm::kSymbol);
        CHECK(frames[0].function == "known::plain()");
        CHECK(frames[0].line == 0);
        CHECK(frames[0].into > 0);
        CHECK(frames[0].into < 64);
    }
    {
        Symbolizer symbolizer(place.folder + "/debug");
        for (const Known& one : known) check_sources(at(symbolizer, place.copy, id, one.behind), one);
    }
    // What lies under that name is another program's.
    place.shell(fmt::format("cp /bin/true debug/.build-id/{}/{}.debug", hex.substr(0, 2), hex.substr(2)));
    Symbolizer symbolizer(place.folder + "/debug");
    CHECK(at(symbolizer, place.copy, id, known[0].behind).at(0).form == NameForm::kSymbol);
}

TEST_CASE("fully stripped: the file and the offset, and why no more") {
    Place place;
    place.shell("strip -s program");
    const std::string id = build_id_of(content(place.copy));
    Symbolizer symbolizer("");
    const std::uint64_t behind = what_it_says()[0].behind;
    const std::vector<FrameName> frames = at(symbolizer, place.copy, id, behind);
    REQUIRE(frames.size() == 1);
    CHECK(frames[0].form == NameForm::kModule);
    CHECK(frames[0].module == place.copy);
    CHECK(frames[0].offset == behind);
    CHECK(frames[0].why == "the file has no name for this place");
}

TEST_CASE("a file that was changed since is not used") {
    Place place;
    std::string bytes = content(place.copy);
    const std::string id = build_id_of(bytes);
    bytes[bytes.find(id)] ^= 1;
    write(place.copy, bytes);
    Symbolizer symbolizer("");
    const std::vector<FrameName> frames = at(symbolizer, place.copy, id, what_it_says()[0].behind);
    REQUIRE(frames.size() == 1);
    CHECK(frames[0].form == NameForm::kModule);
    CHECK(frames[0].why == "the file was changed since the recording (another build-id)");
}

TEST_CASE("what is no file on a disk is not opened") {
    Place place;
    Symbolizer symbolizer("");
    const auto why = [&](const std::string& path) { return at(symbolizer, path, "", 0x1000).at(0).why; };
    CHECK(why("/dev/zero") == "it is not a regular file");
    CHECK(why("/proc/self/maps") == "it is not a file on a disk");
    CHECK(why("/proc/self/mem") == "it is not a file on a disk");
    CHECK(why(place.folder) == "it is not a regular file");
    CHECK(why("") == "the file is gone");
    CHECK(why("[vdso]") == "the file is gone");
    REQUIRE(::mkfifo((place.folder + "/pipe").c_str(), 0600) == 0);
    CHECK(why(place.folder + "/pipe") == "it is not a regular file");
    write(place.folder + "/text", "hello");
    CHECK(why(place.folder + "/text") == "it is not an ELF program or library");
    CHECK(why(std::string("/bin/true\0x", 11)) == "its path is none");
    CHECK(why(std::string(5000, 'x')) == "its path is none");
}

TEST_CASE("damaged files: always an answer, and the next file is read as if nothing had been") {
    Place place;
    const std::string good = content(place.copy);
    const std::string id = build_id_of(good);
    const std::vector<Known> known = what_it_says();
    std::mt19937 random(17);
    for (int round = 0; round < 60; ++round) {
        CAPTURE(round);
        std::string bad = good;
        if (round % 3 == 0) {
            bad.resize(random() % bad.size());
        } else {
            // In the headers, in the section table at the end, or anywhere.
            for (int i = 0; i < 40; ++i) {
                const std::size_t where = round % 3 == 1
                                              ? random() % 512
                                              : bad.size() - 1 - random() % (i % 2 == 0 ? 4096 : bad.size());
                bad[where] = static_cast<char>(random());
            }
        }
        const std::string path = fmt::format("{}/bad{}", place.folder, round);
        write(path, bad);
        Symbolizer symbolizer("");
        for (const Known& one : known) CHECK(!at(symbolizer, path, "", one.behind).empty());
        CHECK(!at(symbolizer, path, id, 1).empty());
        CHECK(!at(symbolizer, path, id, (std::uint64_t{1} << 46) - 1).empty());
        if (round % 10 == 0) check_sources(at(symbolizer, place.copy, id, known[0].behind), known[0]);
    }
}
