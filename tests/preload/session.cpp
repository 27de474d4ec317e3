#include "session.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <stdexcept>

extern char** environ;

namespace fragscope::preload_test {

namespace {

// Runs `command` with `variables` added to the environment, calling `turn` every millisecond until it ends.
Outcome run_program(const std::vector<std::string>& command, const std::vector<std::string>& variables,
                    const std::function<void()>& turn) {
    int pipe_ends[2];
    if (pipe2(pipe_ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 2);
    std::vector<std::string> environment = variables;
    // Ours in place of inherited ones: of two of the same name the loader takes the last, others the first.
    for (char** variable = environ; *variable != nullptr; ++variable) {
        const std::string name(*variable, std::strcspn(*variable, "=") + 1);
        if (std::none_of(variables.begin(), variables.end(),
                         [&](const std::string& each) { return each.compare(0, name.size(), name) == 0; }))
            environment.emplace_back(*variable);
    }
    std::vector<char*> arguments, values;
    for (const std::string& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
    for (const std::string& each : environment) values.push_back(const_cast<char*>(each.c_str()));
    arguments.push_back(nullptr);
    values.push_back(nullptr);
    pid_t child = 0;
    if (posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), values.data()) != 0)
        throw std::runtime_error("cannot start " + command[0]);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_ends[1]);

    Outcome outcome;
    int status = 0;
    bool open = true;
    while (open) {
        pollfd readable{pipe_ends[0], POLLIN, 0};
        if (poll(&readable, 1, 1) > 0) {
            char text[4096];
            const ssize_t got = read(pipe_ends[0], text, sizeof text);
            if (got > 0) outcome.output.append(text, static_cast<std::size_t>(got));
            open = got > 0;
        }
        turn();
    }
    close(pipe_ends[0]);
    waitpid(child, &status, 0);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return outcome;
}

std::vector<std::string> with_driver(std::vector<std::string> variables) {
    const bool given = std::any_of(variables.begin(), variables.end(), [](const std::string& each) {
        return each.rfind("LD_LIBRARY_PATH=", 0) == 0;
    });
    if (!given) variables.push_back("LD_LIBRARY_PATH=" + paths().driver);
    return variables;
}

SentModule module_of(const std::string& text) {
    SentModule module;
    if (text.size() < sizeof module.head) throw std::runtime_error("a module's text is too short");
    std::memcpy(&module.head, text.data(), sizeof module.head);
    const std::size_t begin = sizeof module.head, end = begin + module.head.build_id_bytes;
    if (text.size() < end) throw std::runtime_error("a module's build-id is cut");
    module.build_id = text.substr(begin, end - begin);
    module.path = text.substr(end);
    return module;
}

SentStack stack_of(const std::string& text) {
    SentStack stack;
    if (text.size() < sizeof stack.head) throw std::runtime_error("a stack's text is too short");
    std::memcpy(&stack.head, text.data(), sizeof stack.head);
    stack.frames.resize(stack.head.frames);
    if (text.size() != sizeof stack.head + stack.frames.size() * 8) throw std::runtime_error("a stack's text is cut");
    std::memcpy(stack.frames.data(), text.data() + sizeof stack.head, stack.frames.size() * 8);
    return stack;
}

}  // namespace

Paths& paths() {
    static Paths all;
    return all;
}

Outcome run_plain(const std::vector<std::string>& command, const std::vector<std::string>& variables) {
    return run_program(command, with_driver(variables), [] {});
}

Outcome run_with_shim(const std::string& session, const std::vector<std::string>& command,
                      const std::vector<std::string>& variables) {
    std::vector<std::string> all = with_driver(variables);
    all.push_back("LD_PRELOAD=" + paths().shim);
    if (!session.empty()) all.push_back(std::string(wire::kSessionVariable) + "=" + session);
    return run_program(command, all, [] {});
}

std::vector<wire::Record> Sent::of(wire::Kind kind) const {
    std::vector<wire::Record> found;
    for (const wire::Record& record : records)
        if (record.kind == kind) found.push_back(record);
    return found;
}

Session::Session(const Options& options) : options_(options) {
    static std::atomic<int> sessions{0};
    name_ = "/fragscope-test-" + std::to_string(getpid()) + "-" + std::to_string(sessions++);
    const std::uint64_t processes_offset = 4096;
    const std::uint64_t rings_offset = processes_offset + options.process_slots * sizeof(wire::ProcessSlot);
    size_ = wire::session_bytes(rings_offset, options.ring_count, options.ring_records);
    const int file = shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0 || posix_fallocate(file, 0, static_cast<off_t>(size_)) != 0)
        throw std::runtime_error("shared memory");
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap");
    memory_ = static_cast<unsigned char*>(memory);
    header_ = reinterpret_cast<wire::SessionHeader*>(memory_);
    processes_ = reinterpret_cast<wire::ProcessSlot*>(memory_ + processes_offset);
    rings_ = reinterpret_cast<wire::RingHeader*>(memory_ + rings_offset);
    header_->layout_version = wire::kLayoutVersion;
    header_->header_bytes = sizeof(wire::SessionHeader);
    header_->total_bytes = size_;
    header_->processes_offset = processes_offset;
    header_->rings_offset = rings_offset;
    header_->process_slots = options.process_slots;
    header_->ring_count = options.ring_count;
    header_->ring_records = options.ring_records;
    header_->clock = wire::Clock::kTsc;
    header_->wait_ns = options.wait_ns;
    header_->record_touches = options.touches ? 1 : 0;
    header_->record_calls = options.calls ? 1 : 0;
    header_->probe_on_oom = options.probe_on_oom ? 1 : 0;
    header_->probe_ns = options.probe_ns;
    header_->probe_bytes = options.probe_bytes;
    header_->sample_ns = options.sample_ns;
    header_->sample_bytes = options.sample_bytes;
    header_->stack_bytes = options.stack_bytes;
    header_->stack_failures = options.stack_failures ? 1 : 0;
    header_->collector_pid = options.collector_pid != 0 ? options.collector_pid : getpid();
    header_->collector_state.store(wire::CollectorState::kRunning);
    header_->magic = wire::kMagic;
    for (std::uint32_t i = 0; i < options.ring_count; ++i)
        readers_.emplace_back(&rings_[i],
                              reinterpret_cast<const wire::Record*>(
                                  memory_ + wire::ring_records_offset(rings_offset, options.ring_count,
                                                                      options.ring_records, i)),
                              options.ring_records);
    partial_.resize(options.ring_count);
    live_.resize(options.process_slots);
}

Session::~Session() {
    munmap(memory_, size_);
    shm_unlink(name_.c_str());
}

void Session::take(std::uint32_t ring, const wire::Record& record) {
    Sent& sent = live_.at(rings_[ring].process);
    if (record.kind != wire::Kind::kText) {
        sent.records.push_back(record);
        return;
    }
    wire::TextRecord part;
    static_assert(sizeof part == sizeof record);
    std::memcpy(&part, &record, sizeof part);
    std::string& text = partial_[ring];
    if (part.part == 0) text.clear();
    text.append(part.text, part.part_bytes);
    if (text.size() != part.total_bytes) return;
    if (part.text_kind == wire::TextKind::kFunctionName)
        sent.functions[part.subject] = text;
    else if (part.text_kind == wire::TextKind::kString)
        sent.strings[part.id] = text;
    else if (part.text_kind == wire::TextKind::kModule)
        sent.modules[part.id] = module_of(text);
    else if (part.text_kind == wire::TextKind::kStack) {
        sent.stacks[part.id] = stack_of(text);
        ++sent.stack_texts[part.id];
    } else if (part.text_kind == wire::TextKind::kThreadName)
        sent.thread_names.push_back(text);
    else
        sent.texts[part.text_kind] = text;
}

void Session::finish_process(std::uint32_t index) {
    wire::ProcessSlot& slot = processes_[index];
    Sent sent = std::move(live_[index]);
    live_[index] = {};
    sent.pid = slot.pid;
    sent.launches = slot.launches;
    sent.opaque_writes = slot.opaque_writes;
    sent.lookups = slot.lookups;
    sent.lookups_hooked = slot.lookups_hooked;
    sent.lookups_unmatched = slot.lookups_unmatched;
    sent.threads_without_ring = slot.threads_without_ring;
    sent.records_without_ring = slot.records_without_ring;
    std::sort(sent.records.begin(), sent.records.end(),
              [](const wire::Record& a, const wire::Record& b) { return a.sequence < b.sequence; });
    finished_.push_back(std::move(sent));
}

void Session::drain() {
    for (std::uint32_t i = 0; i < options_.ring_count; ++i) {
        const wire::SlotState state = rings_[i].state.load(std::memory_order_acquire);
        if (state != wire::SlotState::kLive && state != wire::SlotState::kReleased) continue;
        readers_[i].drain(SIZE_MAX, [&](const wire::Record& record) { take(i, record); });
        Sent& sent = live_.at(rings_[i].process);
        sent.lost_acquisitions += rings_[i].lost_acquisitions.exchange(0);
        sent.lost_releases += rings_[i].lost_releases.exchange(0);
        sent.lost_others += rings_[i].lost_others.exchange(0);
        sent.lost_acquired_bytes += rings_[i].lost_acquired_bytes.exchange(0);
        if (state == wire::SlotState::kReleased) rings_[i].state.store(wire::SlotState::kFree);
    }
    for (std::uint32_t i = 0; i < options_.process_slots; ++i)
        if (processes_[i].state.load() == wire::SlotState::kReleased) {
            finish_process(i);
            processes_[i].state.store(wire::SlotState::kFree);
        }
}

Outcome Session::run(const std::vector<std::string>& command, const std::vector<std::string>& variables,
                     bool collect) {
    std::vector<std::string> all = with_driver(variables);
    all.push_back("LD_PRELOAD=" + paths().shim);
    all.push_back(std::string(wire::kSessionVariable) + "=" + name_);
    return run_program(command, all, [&] {
        if (collect) drain();
    });
}

Outcome Session::run_preloaded(const std::string& libraries, const std::vector<std::string>& command) {
    const std::vector<std::string> variables =
        with_driver({"LD_PRELOAD=" + libraries, std::string(wire::kSessionVariable) + "=" + name_});
    return run_program(command, variables, [&] { drain(); });
}

std::vector<Sent> Session::sent() {
    drain();
    for (std::uint32_t i = 0; i < options_.process_slots; ++i)
        if (processes_[i].state.load() == wire::SlotState::kLive) finish_process(i);
    return finished_;
}

}  // namespace fragscope::preload_test
