#include "analysis/read/symbol_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "proto/wire.h"

namespace fragscope::analysis {

namespace {

// Reading the debug information of the largest libraries takes some seconds.
constexpr int kPatienceMs = 30'000;
constexpr std::size_t kMaxMessageBytes = 64 * 1024;
constexpr std::size_t kMaxTextBytes = 1024;  // of a name in an answer
constexpr std::uint32_t kMaxPlaces = 24;     // so that an answer fits into a message
constexpr std::size_t kMaxFilesOpen = 64;
constexpr rlim_t kMaxMemoryBytes = rlim_t{16} << 30;  // most of it files that are mapped

// Messages are these fields one after the other; a text is its length and its bytes.
class Packer {
  public:
    template <typename Number>
    void number(Number value) {
        const auto* bytes = reinterpret_cast<const char*>(&value);
        bytes_.append(bytes, sizeof value);
    }
    void text(const std::string& value, std::size_t limit) {
        const auto length = static_cast<std::uint32_t>(std::min(value.size(), limit));
        number(length);
        bytes_.append(value, 0, length);
    }
    const std::string& bytes() const { return bytes_; }

  private:
    std::string bytes_;
};

class Unpacker {
  public:
    explicit Unpacker(std::string_view bytes) : left_(bytes) {}
    template <typename Number>
    Number number() {
        Number value{};
        if (left_.size() < sizeof value) {
            good_ = false;
            return value;
        }
        std::memcpy(&value, left_.data(), sizeof value);
        left_.remove_prefix(sizeof value);
        return value;
    }
    std::string text() {
        const auto length = number<std::uint32_t>();
        if (left_.size() < length) good_ = false;
        if (!good_) return "";
        std::string value(left_.substr(0, length));
        left_.remove_prefix(length);
        return value;
    }
    bool good() const { return good_; }

  private:
    std::string_view left_;
    bool good_ = true;
};

std::string answer(std::map<std::string, std::pair<std::unique_ptr<CodeFile>, std::string>>& files,
                   const std::string& debug_folder, std::string_view question) {
    Unpacker in(question);
    const std::string path = in.text();
    const std::string build_id = in.text();
    const auto address = in.number<std::uint64_t>();
    const std::string key = build_id + '\n' + path;
    auto file = files.find(key);
    if (file == files.end()) {
        if (files.size() >= kMaxFilesOpen) files.clear();
        auto code = std::make_unique<CodeFile>(debug_folder);
        std::string problem = code->open(path, build_id);
        file = files.emplace(key, std::pair(std::move(code), std::move(problem))).first;
    }
    const auto& [code, problem] = file->second;
    std::vector<CodePlace> places;
    if (problem.empty()) places = code->places(address);
    Packer out;
    out.text(problem, kMaxTextBytes);
    const auto count = std::min(static_cast<std::uint32_t>(places.size()), kMaxPlaces);
    out.number(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        out.text(places[i].function, kMaxTextBytes);
        out.text(places[i].file, kMaxTextBytes);
        out.number(places[i].line);
        out.number(places[i].into);
        out.number<std::uint8_t>(places[i].inlined ? 1 : 0);
        out.number<std::uint8_t>(places[i].symbol ? 1 : 0);
    }
    return out.bytes();
}

std::optional<SymbolProcess::Answer> unpack(std::string_view message) {
    Unpacker in(message);
    SymbolProcess::Answer out;
    out.problem = in.text();
    const auto count = in.number<std::uint32_t>();
    if (count > kMaxPlaces) return std::nullopt;
    for (std::uint32_t i = 0; i < count && in.good(); ++i) {
        CodePlace place;
        place.function = in.text();
        place.file = in.text();
        place.line = in.number<std::uint32_t>();
        place.into = in.number<std::uint64_t>();
        place.inlined = in.number<std::uint8_t>() != 0;
        place.symbol = in.number<std::uint8_t>() != 0;
        out.places.push_back(std::move(place));
    }
    if (!in.good()) return std::nullopt;
    return out;
}

void limit(__rlimit_resource resource, rlim_t value) {
    const struct rlimit both { value, value };
    (void)::setrlimit(resource, &both);
}

[[noreturn]] void serve(int socket, const std::string& debug_folder) {
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const int number : {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL})
        ::signal(number, SIG_DFL);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    limit(RLIMIT_AS, kMaxMemoryBytes);
#endif
    ::unsetenv("DEBUGINFOD_URLS");  // elfutils would ask there
    // The answer to a file that makes elfutils complain is silence: whose terminal this is has nothing to do
    // with it.
    if (socket > 3) (void)::syscall(SYS_close_range, 3u, static_cast<unsigned>(socket - 1), 0u);
    (void)::syscall(SYS_close_range, static_cast<unsigned>(socket + 1), UINT_MAX, 0u);
    std::map<std::string, std::pair<std::unique_ptr<CodeFile>, std::string>> files;
    std::vector<char> question(kMaxMessageBytes);
    try {
        for (;;) {
            const ssize_t length = ::recv(socket, question.data(), question.size(), 0);
            if (length < 0 && errno == EINTR) continue;
            if (length <= 0) break;
            const std::string out = answer(
                files, debug_folder, std::string_view(question.data(), static_cast<std::size_t>(length)));
            if (::send(socket, out.data(), out.size(), MSG_NOSIGNAL) < 0) break;
        }
    } catch (const std::bad_alloc&) {
        ::_exit(1);
    }
    ::_exit(0);
}

}  // namespace

bool SymbolProcess::begin() {
    if (pid_ > 0) return true;
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return false;
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(pair[0]);
        serve(pair[1], debug_folder_);
    }
    ::close(pair[1]);
    if (child < 0) {
        ::close(pair[0]);
        return false;
    }
    pid_ = child;
    socket_ = pair[0];
    return true;
}

void SymbolProcess::end() {
    if (pid_ <= 0) return;
    ::close(socket_);
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    socket_ = -1;
}

SymbolProcess::Answer SymbolProcess::places(const std::string& path, const std::string& build_id,
                                            std::uint64_t address) {
    // Longer paths than the kernel knows, or build-ids than the trace may hold, are none.
    if (path.size() >= PATH_MAX || build_id.size() > wire::kMaxBuildIdBytes ||
        path.find('\0') != std::string::npos)
        return {{}, "its path is none"};
    if (!begin()) return {{}, std::string("no process to read it in: ") + std::strerror(errno)};
    Packer question;
    question.text(path, PATH_MAX);
    question.text(build_id, wire::kMaxBuildIdBytes);
    question.number(address);
    struct pollfd answered {
        socket_, POLLIN, 0
    };
    int ready = -1;
    if (::send(socket_, question.bytes().data(), question.bytes().size(), MSG_NOSIGNAL) > 0) {
        do {
            ready = ::poll(&answered, 1, kPatienceMs);
        } while (ready < 0 && errno == EINTR);
    }
    if (ready > 0) {
        std::vector<char> message(kMaxMessageBytes);
        const ssize_t length = ::recv(socket_, message.data(), message.size(), 0);
        if (length > 0)
            if (std::optional<Answer> out = unpack({message.data(), static_cast<std::size_t>(length)}))
                return *out;
    }
    end();
    return {{},
            ready == 0 ? "reading its debug information took too long" : "its debug information is damaged"};
}

}  // namespace fragscope::analysis
