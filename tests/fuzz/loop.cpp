// Drives a fuzz target without a compiler's help: seeds, changed at random, so many times or for a time. What made it crash, hang or
// grow is written to a file.
//
// Usage: TARGET INPUTS SEEDS_FOLDER [RANDOM_SEED]      the same inputs every time
//        TARGET SECONDSs SEEDS_FOLDER [RANDOM_SEED]
//        TARGET FILE…                one run of each file
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>

#include "tests/fuzz/fuzz.h"

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr unsigned kSecondsForOne = 20;
constexpr std::size_t kMostBytes = std::size_t{1} << 16;

Bytes current;  // what the target has now

// Only calls that are allowed in a signal handler.
void keep_and_die(int signal) {
    const int file = ::open("fuzz-failed-input", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file >= 0 && ::write(file, current.data(), current.size()) >= 0) ::close(file);
    constexpr char kSaid[] = "the input is in fuzz-failed-input\n";
    if (::write(STDERR_FILENO, kSaid, sizeof kSaid - 1) < 0) ::_exit(3);
    ::signal(signal, SIG_DFL);
    ::raise(signal);
}

Bytes read_file(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void run(const Bytes& input) {
    current = input;
    ::alarm(kSecondsForOne);
    LLVMFuzzerTestOneInput(current.data(), current.size());
    ::alarm(0);
}

class Changer {
  public:
    explicit Changer(std::uint64_t seed) : random_(seed) {}

    Bytes changed(const std::vector<Bytes>& seeds) {
        Bytes out = seeds[below(seeds.size())];
        for (std::size_t changes = 1 + below(6); changes > 0; --changes) change(out, seeds);
        if (out.size() > kMostBytes) out.resize(kMostBytes);
        return out;
    }

  private:
    std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }

    void change(Bytes& out, const std::vector<Bytes>& seeds) {
        constexpr std::array<std::uint8_t, 8> kTelling{0, 1, 0x7f, 0x80, 0xff, '(', '.', '\n'};
        const std::size_t at = below(out.size() + 1);
        const std::size_t bytes = std::min(out.size() - at, std::size_t{1} << below(9));
        const auto begin = out.begin() + static_cast<std::ptrdiff_t>(at);
        switch (below(8)) {
            case 0:
                if (at < out.size()) out[at] ^= static_cast<std::uint8_t>(1U << below(8));
                return;
            case 1:
                if (at < out.size()) out[at] = kTelling.at(below(kTelling.size()));
                return;
            case 2:
                if (at < out.size()) out[at] = static_cast<std::uint8_t>(below(256));
                return;
            case 3:
                out.erase(begin, begin + static_cast<std::ptrdiff_t>(bytes));
                return;
            case 4: {
                const Bytes again(begin, begin + static_cast<std::ptrdiff_t>(bytes));
                out.insert(begin, again.begin(), again.end());
                return;
            }
            case 5: {
                const Bytes& other = seeds[below(seeds.size())];
                const std::size_t from = below(other.size());
                const std::size_t part = std::min(other.size() - from, std::size_t{1} << below(9));
                out.insert(begin, other.begin() + static_cast<std::ptrdiff_t>(from),
                           other.begin() + static_cast<std::ptrdiff_t>(from + part));
                return;
            }
            case 6:
                out.resize(at);
                return;
            default:
                for (std::size_t i = 0; i < bytes; ++i)
                    out[at + i] = static_cast<std::uint8_t>(below(2) == 0 ? 0xff : below(256));
                return;
        }
    }

    std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char** argv) {
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM}) ::signal(signal, keep_and_die);
    const std::vector<std::string> words(argv + 1, argv + argc);
    char* end = nullptr;
    const std::uint64_t number = words.size() >= 2 ? std::strtoull(words[0].c_str(), &end, 10) : 0;
    const bool timed = end != nullptr && std::string(end) == "s";
    if (words.size() < 2 || end == nullptr || end == words[0].c_str() || (*end != '\0' && !timed)) {
        for (const std::string& file : words) run(read_file(file));
        return words.empty() ? 2 : 0;
    }
    std::vector<Bytes> seeds;
    for (const auto& entry : std::filesystem::directory_iterator(words[1]))
        if (entry.is_regular_file()) seeds.push_back(read_file(entry.path()));
    if (seeds.empty()) {
        std::fprintf(stderr, "no seeds in %s\n", words[1].c_str());
        return 2;
    }
    std::sort(seeds.begin(), seeds.end());
    for (const Bytes& seed : seeds) run(seed);
    Changer changer(words.size() > 2 ? std::strtoull(words[2].c_str(), nullptr, 0) : 1);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(timed ? number : 0);
    std::uint64_t runs = 0;
    while (timed ? std::chrono::steady_clock::now() < until : runs < number) {
        run(changer.changed(seeds));
        ++runs;
    }
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    std::printf("%llu inputs, at most %ld MiB\n", static_cast<unsigned long long>(runs), used.ru_maxrss / 1024);
    return 0;
}
