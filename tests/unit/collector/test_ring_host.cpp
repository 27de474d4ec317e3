#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>

#include "collector/liveness.h"
#include "collector/ring_host.h"

using namespace fragscope;
using collector::RingHost;

namespace {

collector::SessionOptions small() {
    collector::SessionOptions options;
    options.bytes = std::uint64_t{16} << 20;
    return options;
}

bool exists(const std::string& name) { return ::access(("/dev/shm" + name).c_str(), F_OK) == 0; }

}  // namespace

TEST_CASE("a session is laid out as the agreement says, private to its user, and gone at the end") {
    std::string name;
    {
        RingHost::Created created = RingHost::create(small());
        REQUIRE(created.host);
        CHECK(created.problem == "");
        RingHost& host = *created.host;
        name = host.name();
        CHECK(host.ring_records() == 512);
        const wire::SessionHeader& header = host.header();
        CHECK(header.magic == wire::kMagic);
        CHECK(header.layout_version == wire::kLayoutVersion);
        CHECK(header.total_bytes == host.bytes());
        CHECK(header.collector_pid == ::getpid());
        CHECK(header.collector_state.load() == wire::CollectorState::kRunning);
        CHECK(wire::session_bytes(header.rings_offset, header.ring_count, header.ring_records) ==
              host.bytes());
        const char* base = reinterpret_cast<const char*>(&header);
        CHECK(reinterpret_cast<const char*>(host.records(header.ring_count - 1)) +
                  header.ring_records * sizeof(wire::Record) ==
              base + host.bytes());
        struct stat status {};
        REQUIRE(::stat(("/dev/shm" + name).c_str(), &status) == 0);
        CHECK((status.st_mode & 0777) == 0600);
        CHECK(static_cast<std::uint64_t>(status.st_blocks) * 512 >=
              host.bytes());  // reserved, not only promised
    }
    CHECK_FALSE(exists(name));
}

TEST_CASE("too little shared memory: smaller buffers, said in one sentence") {
    int calls = 0;
    RingHost::Created created = RingHost::create(small(), [&](int fd, std::uint64_t bytes) {
        ++calls;
        return bytes > (std::uint64_t{6} << 20) ? ENOSPC : RingHost::reserve_by_fallocate(fd, bytes);
    });
    REQUIRE(created.host);
    CHECK(calls == 3);
    CHECK(created.host->ring_records() == collector::kMinRingRecords);
    CHECK(created.host->header().ring_records == collector::kMinRingRecords);
    CHECK(created.problem ==
          "/dev/shm has no room for 17 MiB of buffers: recording with 5 MiB, so bursts may be lost");
    std::memset(const_cast<wire::Record*>(created.host->records(collector::kRings - 1)), 1,
                sizeof(wire::Record));
}

TEST_CASE("what is taken is said where it is much less than what was asked for") {
    collector::SessionOptions options = small();
    options.bytes = std::uint64_t{15} << 20;
    CHECK(RingHost::create(options).problem ==
          "of the 15 MiB of buffers asked for 9 MiB are taken, as a thread's part is a power of two");
}

TEST_CASE("no shared memory at all: one sentence, and nothing left behind") {
    RingHost::Created created = RingHost::create(small(), [](int, std::uint64_t) { return ENOSPC; });
    CHECK_FALSE(created.host);
    CHECK(created.problem ==
          "cannot reserve 5 MiB of shared memory in /dev/shm (No space left on device); free some there, or "
          "make it "
          "larger (in Docker: --shm-size)");
}

TEST_CASE("sessions of killed collectors are taken away, others are not") {
    RingHost::Created mine = RingHost::create(small());
    REQUIRE(mine.host);
    int names[2];
    REQUIRE(::pipe(names) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        RingHost::Created session = RingHost::create(small());
        char name[256] = {};
        std::strncpy(name, session.host->name().c_str(), sizeof name - 1);
        const bool written = ::write(names[1], name, sizeof name) == sizeof name;
        ::kill(::getpid(), written ? SIGKILL : SIGTERM);
    }
    char name[256] = {};
    REQUIRE(::read(names[0], name, sizeof name) == sizeof name);
    ::close(names[0]);
    ::close(names[1]);
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    CHECK(exists(name));
    CHECK(collector::remove_stale_sessions() >= 1);
    CHECK_FALSE(exists(name));
    CHECK(exists(mine.host->name()));
}

TEST_CASE("whether a collector is gone is told by its number, its start time and its lock") {
    char folder[] = "/tmp/fragscope-test-XXXXXX";
    REQUIRE(::mkdtemp(folder) != nullptr);
    const std::uint64_t start = collector::process_start_time(::getpid());
    REQUIRE(start != 0);
    const auto make = [&](const std::string& name) {
        const int fd = ::open((std::string(folder) + "/" + name).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        REQUIRE(fd >= 0);
        return fd;
    };
    const std::string own = "fragscope-" + std::to_string(::getpid()) + "-";
    ::close(make(own + std::to_string(start) + "-0123"));      // this process, which may be just making it
    ::close(make(own + std::to_string(start - 1) + "-0123"));  // an earlier process of this number
    ::close(make("fragscope-99999999-5-0123"));                // no process has such a number
    ::close(make("fragscope-sim-99999999-5"));                 // somebody else's
    ::close(make("fragscope-99999999"));
    const int locked = make("fragscope-99999998-5-0123");  // of another PID namespace, and alive
    REQUIRE(::flock(locked, LOCK_EX | LOCK_NB) == 0);
    CHECK(collector::remove_stale_sessions(folder) == 2);
    std::set<std::string> left;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        left.insert(entry.path().filename());
    CHECK(left == std::set<std::string>{own + std::to_string(start) + "-0123", "fragscope-sim-99999999-5",
                                        "fragscope-99999999", "fragscope-99999998-5-0123"});
    ::close(locked);
    std::filesystem::remove_all(folder);
}
