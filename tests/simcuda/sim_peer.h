// Tests with several processes on one simulated device.
#pragma once

#include <sys/socket.h>

#include "sim_test.h"

namespace sim_test {

// A child process at the far end of a socket, which is its standard input.
struct Peer {
    pid_t pid = -1;
    int socket = -1;
    Peer(const std::string& name, const std::vector<std::string>& settings) {
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        pid = start_child(name, settings, -1, ends[1]);
        ::close(ends[1]);
        socket = ends[0];
    }
    ~Peer() {
        if (socket >= 0) ::close(socket);
    }
};

inline char receive(int socket) {
    char byte = 0;
    return ::read(socket, &byte, 1) == 1 ? byte : '\0';
}
inline void send(int socket, char byte) { REQUIRE(::write(socket, &byte, 1) == 1); }

inline void send_descriptor(int socket, int fd) {
    char byte = 'd', control[CMSG_SPACE(sizeof fd)] = {};
    iovec data{&byte, 1};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    REQUIRE(::sendmsg(socket, &message, 0) == 1);
}

inline int receive_descriptor(int socket) {
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
    iovec data{&byte, 1};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    int fd = -1;
    if (::recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message) != nullptr) {
        std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    }
    return fd;
}

// Plain data, whole.
template <typename Data>
void send_data(int socket, const Data& data) {
    REQUIRE(::write(socket, &data, sizeof data) == static_cast<ssize_t>(sizeof data));
}
template <typename Data>
Data receive_data(int socket) {
    Data data{};
    REQUIRE(::recv(socket, &data, sizeof data, MSG_WAITALL) == static_cast<ssize_t>(sizeof data));
    return data;
}

// Settings of this test's own device, for itself and for peers.
inline std::vector<std::string> shared_settings() {
    return {"SHARED=" + std::string(std::getenv("FRAGSCOPE_SIM_SHARED")), "CAPACITY=64MiB", "CONTEXT_OVERHEAD=2MiB"};
}

inline std::string own_name(const char* subject) {
    return "SHARED=test-" + std::string(subject) + "-" + std::to_string(::getpid());
}

}  // namespace sim_test
