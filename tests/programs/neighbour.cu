// Two processes share one device: the neighbour holds most of it, and the one that comes second fails
// although it would fit on an empty device. Needs the runtime only. A process that has used CUDA must not
// fork, so that the pair mode stays away from CUDA itself and starts this program again for each part.
#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "demo.h"

namespace {

constexpr char kHelp[] =
    "neighbour hold BYTES [READY-FILE] [SECONDS]\n"
    "    allocates BYTES, creates READY-FILE (\"-\": writes the line \"holding\" to stdout), and holds on "
    "until\n"
    "    SECONDS have passed, or without SECONDS until its standard input ends.\n"
    "neighbour need BYTES\n"
    "    allocates BYTES once. Exit code 0 when it got them, 1 when it is out of memory.\n"
    "neighbour pair\n"
    "    starts a neighbour that holds 3/4 of the device, then a process that needs 1/2 of it. Exit code 1 "
    "when\n"
    "    that one is out of memory, which is the plan.\n"
    "BYTES is a number of bytes, or a number followed by % for a share of the device's capacity.\n";

int usage() {
    std::fputs("neighbour: not understood; try --help\n", stderr);
    return demo::kBadUsage;
}

// Returns false for anything but a positive number of bytes or a percentage up to 100.
bool read_bytes(const char* text, std::size_t total, std::size_t* bytes) {
    char* end = nullptr;
    errno = 0;
    const unsigned long long number = std::strtoull(text, &end, 10);
    if (errno != 0 || end == text || number == 0 || text[0] == '-') return false;
    if (std::strcmp(end, "%") == 0 && number <= 100) {
        *bytes = demo::share(total, static_cast<unsigned>(number), 2 * demo::kMiB);
        return true;
    }
    *bytes = number;
    return *end == '\0';
}

int allocate(const char* who, const char* wanted, void** pointer) {
    demo::DeviceMemory memory;
    if (const cudaError_t error = demo::look(&memory)) return demo::no_scene("cudaMemGetInfo", error);
    std::size_t bytes = 0;
    if (!read_bytes(wanted, memory.total, &bytes)) return usage();
    demo::say("%s: wants %.2f GiB; the device has %.2f GiB, %.2f GiB of it free", who, demo::gib(bytes),
              demo::gib(memory.total), demo::gib(memory.free));
    const cudaError_t error = cudaMalloc(pointer, bytes);
    if (error == cudaErrorMemoryAllocation) {
        demo::say("%s: cudaMalloc failed: %s", who, cudaGetErrorString(error));
        return demo::kOutOfMemory;
    }
    if (error != cudaSuccess) return demo::no_scene("cudaMalloc", error);
    return demo::kFinished;
}

bool announce(const std::string& ready_file) {
    if (ready_file == "-") {
        demo::say("holding");
        return true;
    }
    if (ready_file.empty()) return true;
    std::FILE* file = std::fopen(ready_file.c_str(), "w");
    return file != nullptr && std::fclose(file) == 0;
}

int hold(const char* wanted, const std::string& ready_file, unsigned seconds) {
    void* pointer = nullptr;
    if (const int code = allocate("holder", wanted, &pointer)) return code;
    if (!announce(ready_file)) return demo::no_scene("ready file", std::strerror(errno));
    if (seconds != 0) {
        sleep(seconds);
    } else {
        char byte = 0;
        while (read(STDIN_FILENO, &byte, 1) > 0) {
        }
    }
    if (const cudaError_t error = cudaFree(pointer)) return demo::no_scene("cudaFree", error);
    return demo::kFinished;
}

int need(const char* wanted) {
    void* pointer = nullptr;
    if (const int code = allocate("worker", wanted, &pointer)) return code;
    if (const cudaError_t error = cudaFree(pointer)) return demo::no_scene("cudaFree", error);
    demo::say("worker: got it");
    return demo::kFinished;
}

int exit_code_of(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return demo::kNoScene;
    return WIFEXITED(status) ? WEXITSTATUS(status) : demo::kNoScene;
}

// Starts this program again. A descriptor of -1 leaves the standard one as it is; `parents_ends` are closed
// in the child, or it would keep itself waiting.
pid_t start(char* const arguments[], int stdin_fd, int stdout_fd, const int parents_ends[2]) {
    const pid_t child = fork();
    if (child != 0) return child;
    if (stdin_fd >= 0) dup2(stdin_fd, STDIN_FILENO);
    if (stdout_fd >= 0) dup2(stdout_fd, STDOUT_FILENO);
    close(parents_ends[0]);
    close(parents_ends[1]);
    execv("/proc/self/exe", arguments);
    _exit(demo::kNoScene);
}

// Passes the holder's lines on until it says that it holds its memory. False when it ended without saying so.
bool wait_until_holding(int from_holder) {
    std::string line;
    char byte = 0;
    while (read(from_holder, &byte, 1) == 1) {
        if (byte != '\n') {
            line += byte;
            continue;
        }
        if (line == "holding") return true;
        demo::say("%s", line.c_str());
        line.clear();
    }
    return false;
}

int pair(char* self) {
    int to_holder[2];
    int from_holder[2];
    if (pipe(to_holder) != 0 || pipe(from_holder) != 0) return demo::no_scene("pipe", std::strerror(errno));
    std::string words[] = {"hold", "75%", "-", "need", "50%"};
    char* const hold_arguments[] = {self, words[0].data(), words[1].data(), words[2].data(), nullptr};
    char* const need_arguments[] = {self, words[3].data(), words[4].data(), nullptr};
    const int parents_ends[2] = {to_holder[1], from_holder[0]};

    const pid_t holder = start(hold_arguments, to_holder[0], from_holder[1], parents_ends);
    if (holder < 0) return demo::no_scene("fork", std::strerror(errno));
    close(to_holder[0]);
    close(from_holder[1]);
    int worker_code = demo::kNoScene;
    if (wait_until_holding(from_holder[0])) {
        const pid_t worker = start(need_arguments, -1, -1, parents_ends);
        if (worker > 0) worker_code = exit_code_of(worker);
    }
    close(to_holder[1]);
    const int holder_code = exit_code_of(holder);
    close(from_holder[0]);
    if (holder_code != demo::kFinished)
        return demo::no_scene("holder", "it did not hold its memory to the end");
    if (worker_code == demo::kFinished) return demo::no_scene("worker", "it got its memory all the same");
    return worker_code;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "--help" && argc == 2) {
        std::fputs(kHelp, stdout);
        return demo::kFinished;
    }
    if (mode == "hold" && argc >= 3 && argc <= 5) {
        const std::string ready_file = argc > 3 ? argv[3] : "";
        const unsigned seconds = argc > 4 ? static_cast<unsigned>(std::strtoul(argv[4], nullptr, 10)) : 0;
        return hold(argv[2], ready_file, seconds);
    }
    if (mode == "need" && argc == 3) return need(argv[2]);
    if (mode == "pair" && argc == 2) return pair(argv[0]);
    return usage();
}
