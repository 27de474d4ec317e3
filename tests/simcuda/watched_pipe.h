// A descriptor that is handed out and watched: the write end of a pipe whose read end stays here. Its inode names
// what it stands for, and the kernel says when its last copy, in whatever process, is closed.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace fragscope::sim {

struct WatchedPipe {
    int watch = -1;  // read end; -1: none
    std::uint64_t inode = 0;

    // A new descriptor for the program, or -1. The first call makes the pipe.
    int hand_out() {
        if (watch >= 0) {
            char path[64];
            std::snprintf(path, sizeof path, "/proc/self/fd/%d", watch);
            return ::open(path, O_WRONLY | O_CLOEXEC);
        }
        int ends[2];
        struct stat status {};
        if (::pipe2(ends, O_CLOEXEC) != 0) return -1;
        ::fstat(ends[0], &status);
        watch = ends[0];
        inode = status.st_ino;
        return ends[1];
    }

    // Whether anybody has a descriptor. A program that closed the read end by its number ends the watch.
    bool open() const {
        if (!ours()) return false;
        pollfd poll{watch, POLLIN, 0};
        return ::poll(&poll, 1, 0) >= 0 && (poll.revents & POLLHUP) == 0;
    }

    void close() {
        if (ours()) ::close(watch);
        watch = -1;
    }

  private:
    bool ours() const {
        struct stat status {};
        return watch >= 0 && ::fstat(watch, &status) == 0 && status.st_ino == inode;
    }
};

}  // namespace fragscope::sim
