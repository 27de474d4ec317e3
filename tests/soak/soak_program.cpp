// A family of processes that use GPU memory at random and die at random, for the soak test. The program knows
// nothing of Fragscope; what it really did, the simulated driver writes into its own ledger.
//   soak_program family SEED PROCESSES AT_ONCE THREADS STEPS    starts PROCESSES workers, AT_ONCE at a time
//   soak_program worker SEED THREADS STEPS DEATH                is one, with about STEPS calls in each thread
// Every random choice follows from SEED; only what the kernel's scheduling decides differs from run to run.
// The first line that is printed on stdout by `family` counts what was started and how it ended.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/soak/steps.h"

using namespace fragscope::soak;

namespace {

// How a worker ends: in order of kDeathNames.
enum class Death { kReturns, kKillsItself, kIsKilled, kExits, kExitsAtOnce, kAborts, kExecs, kCount };
constexpr const char* kDeathNames[] = {"returned",     "killed itself", "killed from outside", "called exit",
                                       "called _exit", "aborted",       "called exec"};

// A random number below `limit`; with 0, any of 32 bits.
unsigned draw(std::mt19937& random, unsigned limit = 0) {
    const auto number = static_cast<unsigned>(random());
    return limit == 0 ? number : number % limit;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> out;
    for (std::string& word : words) out.push_back(word.data());
    out.push_back(nullptr);
    return out;
}

std::vector<std::string> worker_command(unsigned seed, int threads, int steps, Death death) {
    return {"/proc/self/exe",      "worker",
            std::to_string(seed),  std::to_string(threads),
            std::to_string(steps), std::to_string(static_cast<int>(death))};
}

// In the middle of the work, while the other threads go on.
void die(Death death, unsigned seed, int threads, int steps) {
    switch (death) {
        case Death::kKillsItself:
            kill(getpid(), SIGKILL);
            return;
        case Death::kExits:
            std::exit(0);
        case Death::kExitsAtOnce:
            _exit(0);
        case Death::kAborts:
            std::abort();
        case Death::kExecs: {
            // The new program in the same process lives to its end.
            std::vector<std::string> words = worker_command(seed + 1, threads, steps / 2, Death::kReturns);
            execv("/proc/self/exe", pointers(words).data());
            return;
        }
        default:
            return;
    }
}

int worker(unsigned seed, int threads, int steps, Death death) {
    std::mt19937 random(seed);
    Shared shared;
    if (!shared.start()) return 2;
    const int dying = static_cast<int>(draw(random, static_cast<unsigned>(threads)));
    const int last = 1 + static_cast<int>(draw(random, static_cast<unsigned>(steps)));
    const auto work = [&](int number, unsigned own_seed) {
        Steps mine(shared, own_seed, number == 0);
        for (int step = 0; step < steps; ++step) {
            mine.step();
            if (number == dying && step == last) die(death, seed, threads, steps);
        }
        mine.finish();
    };
    std::vector<std::thread> running;
    for (int i = 1; i < threads; ++i) running.emplace_back(work, i, draw(random));
    work(0, draw(random));
    for (std::thread& thread : running) thread.join();
    shared.stop();
    return 0;
}

int family(unsigned seed, int processes, int at_once, int threads, int steps) {
    std::mt19937 random(seed);
    std::map<pid_t, Death> running;
    int started = 0, by_signal = 0, bad = 0;
    int planned[static_cast<int>(Death::kCount)] = {};
    while (started < processes || !running.empty()) {
        while (started < processes && static_cast<int>(running.size()) < at_once) {
            const auto death = static_cast<Death>(draw(random, static_cast<unsigned>(Death::kCount)));
            const int wide = 1 + static_cast<int>(draw(random, static_cast<unsigned>(threads)));
            std::vector<std::string> words = worker_command(draw(random), wide, steps, death);
            const std::vector<char*> arguments = pointers(words);
            const pid_t child = fork();
            if (child < 0) return 2;
            if (child == 0) {
                execv("/proc/self/exe", arguments.data());
                _exit(127);
            }
            running.emplace(child, death);
            ++planned[static_cast<int>(death)];
            ++started;
        }
        // A random moment of at most a few tens of milliseconds, then one of those that are to be killed is.
        usleep(draw(random, 30'000));
        for (const auto& [pid, death] : running)
            if (death == Death::kIsKilled && draw(random, 4) == 0) kill(pid, SIGKILL);
        int status = 0;
        for (pid_t ended = 0; (ended = waitpid(-1, &status, WNOHANG)) > 0;) {
            if (WIFSIGNALED(status)) ++by_signal;
            if (WIFEXITED(status) && WEXITSTATUS(status) != 0) ++bad;
            running.erase(ended);
        }
    }
    std::printf("%d processes, %d ended by a signal, %d failed;", started, by_signal, bad);
    for (int i = 0; i < static_cast<int>(Death::kCount); ++i)
        std::printf(" %s: %d%s", kDeathNames[i], planned[i],
                    i + 1 < static_cast<int>(Death::kCount) ? "," : "\n");
    return bad == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const rlimit no_cores{0, 0};
    setrlimit(RLIMIT_CORE, &no_cores);
    const auto number = [&](int i) { return std::atoi(argv[i]); };
    if (argc == 7 && std::string_view(argv[1]) == "family")
        return family(static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)), number(3), number(4),
                      number(5), number(6));
    if (argc == 6 && std::string_view(argv[1]) == "worker")
        return worker(static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)), number(3), number(4),
                      static_cast<Death>(number(5)));
    std::fprintf(stderr, "usage: soak_program family SEED PROCESSES AT_ONCE THREADS STEPS\n");
    return 2;
}
