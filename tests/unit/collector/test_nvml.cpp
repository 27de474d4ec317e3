// What the collector makes of the management library's answers: forms of lists that drivers were seen to
// give, and which process a number means, by folders in the form of /proc.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "collector/management.h"
#include "collector/nvml_library.h"
#include "collector/nvml_pids.h"

using namespace fragscope::collector;

namespace {

constexpr unsigned char kUntouched = 0xA5;

// A list as a library writes it: entries of `size` bytes, the rest of the room untouched.
std::vector<unsigned char> list_of(std::initializer_list<nvml::Process> processes, std::size_t size) {
    std::vector<unsigned char> buffer(8 * nvml::kProcessBytesMost, kUntouched);
    std::size_t at = 0;
    for (const nvml::Process& process : processes) {
        unsigned char entry[nvml::kProcessBytesMost] = {};
        std::memcpy(entry, &process, sizeof process);
        std::memcpy(buffer.data() + at, entry, size);
        at += size;
    }
    return buffer;
}

// A folder in the form of /proc.
class ProcFolder {
  public:
    // `own_numbers`: of the process that looks, as NSpid has them.
    ProcFolder(const std::string& pid_namespace, const std::string& own_numbers) {
        char name[] = "/tmp/fragscope-proc-XXXXXX";
        path_ = ::mkdtemp(name);
        std::filesystem::create_directories(path_ / "self" / "ns");
        std::filesystem::create_symlink("pid:[" + pid_namespace + "]", path_ / "self" / "ns" / "pid");
        std::ofstream(path_ / "self" / "status") << "Name:\tlooker\nNSpid:\t" << own_numbers << "\n";
    }
    ~ProcFolder() { std::filesystem::remove_all(path_); }
    ProcFolder(const ProcFolder&) = delete;
    ProcFolder& operator=(const ProcFolder&) = delete;

    // `maps` "": they cannot be read.
    void process(int pid, int leader, const std::string& name, const std::string& maps) const {
        const std::filesystem::path folder = path_ / std::to_string(pid);
        std::filesystem::create_directories(folder);
        std::ofstream(folder / "status")
            << "Name:\t" << name << "\nTgid:\t" << leader << "\nPid:\t" << pid << "\n";
        // Fields 3 to 21 of stat(5) are of no interest here; the name is as nasty as it may be.
        std::ofstream stat(folder / "stat");
        stat << pid << " (" << name << ") R) S";
        for (int i = 4; i < 22; ++i) stat << " 0";
        stat << ' ' << 1000 + leader << " 0\n";
        if (!maps.empty()) std::ofstream(folder / "maps") << maps;
    }
    std::string path() const { return path_; }

  private:
    std::filesystem::path path_;
};

constexpr char kInitial[] = "4026531836";  // the kernel's PROC_PID_INIT_INO
constexpr char kWithDriver[] = "7f00-7f01 r-xp 0 00:00 1 /usr/lib/libcuda.so.580.95\n";
constexpr char kWithout[] = "7f00-7f01 r-xp 0 00:00 1 /usr/lib/libc.so.6\n";

}  // namespace

TEST_CASE("lists of processes are read in whichever form the driver gives them") {
    std::vector<ProcessEntry> entries;
    for (const std::size_t size : {16U, 24U, 32U}) {
        // The third version is documented to have entries of 24 bytes.
        REQUIRE(read_process_list(list_of({{77, 5000, 1, 2}, {78, 6000, 1, 3}}, size), kUntouched, 2, 24,
                                  entries));
        REQUIRE(entries.size() == 2);
        CHECK((entries[0].pid == 77 && entries[0].bytes == 5000 && entries[1].pid == 78 &&
               entries[1].bytes == 6000));
        CHECK(entries[1].instances_known == (size != 16));
        if (size != 16) CHECK(entries[1].compute_instance == 3);
    }
    // A library that clears the whole room first is read as it is documented.
    std::vector<unsigned char> cleared(8 * nvml::kProcessBytesMost, 0);
    const std::vector<unsigned char> list = list_of({{77, 5000, ~0U, ~0U}}, 24);
    std::copy_n(list.begin(), 24, cleared.begin());
    REQUIRE(read_process_list(cleared, kUntouched, 1, 24, entries));
    CHECK((entries[0].pid == 77 && entries[0].bytes == 5000 && !entries[0].instances_known));
}

TEST_CASE("what is no list of processes is refused, and no bytes are not zero bytes") {
    std::vector<ProcessEntry> entries;
    CHECK(!read_process_list(list_of({{0, 5000, 0, 0}}, 24), kUntouched, 1, 24, entries));
    CHECK(!read_process_list(list_of({{~0U, 5000, 0, 0}}, 24), kUntouched, 1, 24, entries));
    CHECK(!read_process_list(std::vector<unsigned char>(16, 0), kUntouched, 4, 24,
                             entries));  // more than the room
    CHECK(read_process_list({}, kUntouched, 0, 24, entries));
    CHECK(entries.empty());
    for (const unsigned long long untold : {nvml::kNotAvailable, 0ULL}) {
        REQUIRE(read_process_list(list_of({{77, untold, ~0U, ~0U}}, 24), kUntouched, 1, 24, entries));
        CHECK(!entries[0].bytes_known);
    }
}

TEST_CASE("the bytes of a UUID") {
    const std::string bytes = uuid_bytes("GPU-00112233-4455-6677-8899-aabbccddeeFF");
    REQUIRE(bytes.size() == 16);
    CHECK((bytes[0] == 0 && bytes[1] == 0x11 && static_cast<unsigned char>(bytes[15]) == 0xFF));
    CHECK(uuid_bytes("MIG-00112233-4455-6677-8899-aabbccddeeff").size() == 16);
    // Before driver 470 an instance was named by its device and its numbers.
    CHECK(uuid_bytes("MIG-GPU-00112233-4455-6677-8899-aabbccddeeff/1/0").empty());
    CHECK(uuid_bytes("GPU-00112233-4455-6677-8899-aabbccddeefg").empty());
    CHECK(uuid_bytes("GPU-00112233445566778899aabbccddeeff0000").empty());
    CHECK(uuid_bytes("").empty());
}

TEST_CASE("in the initial namespace a number is what it says, and one that is not seen is not known") {
    const ProcFolder proc(kInitial, "4");
    proc.process(77, 77, "train", kWithout);
    const auto resolved = NvmlPids(proc.path()).resolve({77, 78});
    CHECK(resolved.problem.empty());
    REQUIRE(resolved.here[0]);
    CHECK((resolved.here[0]->pid == 77 && resolved.here[0]->name == "train" &&
           resolved.here[0]->start_time == 1077));
    CHECK(!resolved.here[1]);
}

TEST_CASE("elsewhere numbers are this namespace's where all of them say so together") {
    const ProcFolder proc("4026539999", "4");
    proc.process(77, 77, "train", kWithDriver);
    proc.process(79, 77, "train", kWithDriver);  // a thread of it
    proc.process(80, 80, "serve", "");
    proc.process(81, 81, "shell", kWithout);
    const NvmlPids pids(proc.path());

    const auto thread = pids.resolve({79, 80});
    CHECK(thread.problem.empty());
    REQUIRE((thread.here[0] && thread.here[1]));
    CHECK((thread.here[0]->pid == 77 && thread.here[0]->start_time == 1077 && thread.here[1]->pid == 80));

    // One that is none here, one that cannot hold device memory, or none with the driver: another
    // namespace's.
    for (const std::vector<std::int64_t>& numbers :
         {std::vector<std::int64_t>{77, 500}, std::vector<std::int64_t>{77, 81},
          std::vector<std::int64_t>{80}}) {
        const auto resolved = pids.resolve(numbers);
        CHECK(!resolved.problem.empty());
        for (const auto& here : resolved.here) CHECK(!here);
    }
    CHECK(pids.resolve({}).problem.empty());
}

TEST_CASE("a process file system of another namespace says nothing of this one") {
    const ProcFolder proc("4026539999", "5004 4");
    proc.process(77, 77, "train", kWithDriver);
    const auto resolved = NvmlPids(proc.path()).resolve({77});
    CHECK(!resolved.problem.empty());
    CHECK(!resolved.here[0]);
}

TEST_CASE("a library that is not there, or is another one, is said and not asked") {
    Management missing(1'000'000'000, "libfragscope-no-such-library.so.1");
    CHECK(missing.state().find("libfragscope-no-such-library.so.1") != std::string::npos);
    missing.start();
    missing.finish(1'000'000'000);
    CHECK(missing.take().empty());
    Management other(1'000'000'000, "libc.so.6");
    CHECK(other.state().find("nvmlInit_v2") != std::string::npos);
    CHECK(Management(0).state() == "off");
}

TEST_CASE(
    "readings that are too long for a chunk are cut after names are known, and what was said before stays") {
    const ProcFolder proc(kInitial, "4");
    const std::string name(64, 'n');
    proc.process(77, 77, name, kWithout);
    proc.process(78, 78, "serve", kWithout);
    Management::Taken taken;
    taken.readings.set_problem("Not told: a UUID.");
    for (int device = 0; device < 3; ++device) {
        fragscope::trace::DeviceReading& reading = *taken.readings.add_devices();
        reading.set_processes_known(true);
        // Without the names all of it would fit.
        for (int i = 0; i < (device == 0 ? 1 : 4500); ++i)
            reading.add_processes()->set_pid(device == 0 ? 78 : 77);
    }
    REQUIRE(taken.readings.ByteSizeLong() < 300'000);
    complete(NvmlPids(proc.path()), taken);
    const auto& devices = taken.readings.devices();
    CHECK(taken.readings.ByteSizeLong() <= (std::size_t{512} << 10));
    CHECK((devices[0].processes_known() && devices[1].processes_known() && !devices[2].processes_known()));
    CHECK((devices[1].processes_size() == 4500 && devices[2].processes_size() == 0));
    // One for each process that is left, in their order: 1000 + the number, as the folder has it.
    REQUIRE(taken.start_times.size() == 4501);
    CHECK((taken.start_times[0] == 1078 && taken.start_times[4500] == 1077));
    CHECK(taken.readings.problem() ==
          "Not told: a UUID. There were too many processes to write them all down.");
}
