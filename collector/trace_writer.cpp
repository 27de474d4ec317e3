#include "collector/trace_writer.h"

#include <signal.h>

#include <utility>

#include "proto/chunk.h"

namespace fragscope::collector {

namespace {

// Fewer than the format allows: what a full disk, a kill or a damaged byte costs is one batch. Batches as
// large as the format allows make the file 4 % (random sizes) to 16 % (repeating iterations) smaller: see
// bench_trace.
constexpr std::size_t kRowsPerBatch = trace::kMaxEventsPerBatch / 4;
// Rows of all processes together that gather; 80 bytes each.
constexpr std::size_t kMaxRowsGathered = 4 * trace::kMaxEventsPerBatch;
// So much of a process's names gathers before it is written; with one more, of a few KiB, it fits into a
// chunk.
constexpr std::size_t kMaxNamesBytes = 256 * 1024;
constexpr std::size_t kMaxSpareRows = 8;
constexpr std::uint16_t kOutOfMemory = 2;  // CUDA_ERROR_OUT_OF_MEMORY

// Only a damaged process says so much of itself that it does not fit; which process it is, and how it ended,
// is kept.
void cut_to_a_chunk(trace::Process& process) {
    constexpr std::size_t kRoom = trace::kMaxRawOtherBytes - 64;
    if (process.ByteSizeLong() <= kRoom) return;
    for (trace::Device& device : *process.mutable_devices()) device.clear_attributes();
    process.clear_hooks_missing();
    process.clear_thread_names();
    if (process.ByteSizeLong() > kRoom) process.clear_devices();
}

}  // namespace

bool is_program_failure(std::uint16_t result, std::uint16_t flags) {
    return result != 0 && (flags & (wire::kByShim | wire::kContinued | wire::kSnapshot)) == 0;
}

TraceWriter::~TraceWriter() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        jobs_.clear();
        leave_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

bool TraceWriter::begin(const trace::Session& session) {
    if (!chunks_.begin(session)) {
        stopped_ = true;
        return false;
    }
    // Signals are for the thread that began: they end its waiting.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { work(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return true;
}

void TraceWriter::post(Job job) {
    rows_waiting_.fetch_add(job.rows.size(), std::memory_order_relaxed);
    {
        const std::lock_guard lock(mutex_);
        jobs_.push_back(std::move(job));
    }
    wake_.notify_one();
}

void TraceWriter::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        wake_.wait(lock, [this] { return leave_ || !jobs_.empty(); });
        if (leave_) return;
        Job job = std::move(jobs_.front());
        jobs_.pop_front();
        busy_ = true;
        lock.unlock();
        const std::size_t rows = job.rows.size();
        carry_out(job);
        stopped_.store(chunks_.stopped(), std::memory_order_relaxed);
        rows_waiting_.fetch_sub(rows, std::memory_order_relaxed);
        job.rows.clear();
        lock.lock();
        if (job.rows.capacity() != 0 && spare_rows_.size() < kMaxSpareRows)
            spare_rows_.push_back(std::move(job.rows));
        busy_ = false;
        if (jobs_.empty()) settled_.notify_all();
    }
}

void TraceWriter::carry_out(Job& job) {
    switch (job.what) {
        case Job::What::kMessage:
            chunks_.message(job.chunk, false);
            return;
        case Job::What::kLastWords:
            chunks_.message(job.chunk, true);
            return;
        case Job::What::kFunction:
            chunks_.name_function(job.process, job.function, std::move(job.name));
            return;
        case Job::What::kEvents:
            chunks_.events(job.process, job.rows, job.complete_below);
            return;
        case Job::What::kForget:
            chunks_.forget(job.process);
            return;
        case Job::What::kEnd:
            chunks_.end(std::move(job.chunk));
            return;
    }
}

void TraceWriter::settle() {
    std::unique_lock lock(mutex_);
    settled_.wait(lock, [this] { return jobs_.empty() && !busy_; });
}

void TraceWriter::process(const trace::Process& process) {
    // How a process ended is part of the last words.
    Job job{process.ended_how().empty() ? Job::What::kMessage : Job::What::kLastWords};
    *job.chunk.mutable_process() = process;
    cut_to_a_chunk(*job.chunk.mutable_process());
    post(std::move(job));
}

void TraceWriter::loss(const trace::Loss& loss) {
    Job job{Job::What::kMessage};
    *job.chunk.mutable_loss() = loss;
    post(std::move(job));
}

void TraceWriter::readings(const trace::Readings& readings) {
    Job job{Job::What::kMessage};
    *job.chunk.mutable_readings() = readings;
    post(std::move(job));
}

void TraceWriter::names(std::uint32_t process, const trace::Names& names) {
    if (stopped()) return;
    Batch& batch = batches_[process];
    trace::Names& gathered = *batch.names.mutable_names();
    gathered.MergeFrom(names);
    gathered.set_process(process);
    batch.names_bytes += names.ByteSizeLong();
    if (batch.names_bytes >= kMaxNamesBytes) post_names(batch);
}

void TraceWriter::post_names(Batch& batch) {
    if (batch.names_bytes == 0) return;
    Job job{Job::What::kMessage};
    job.chunk.Swap(&batch.names);
    batch.names_bytes = 0;
    post(std::move(job));
}

void TraceWriter::name_function(std::uint32_t process, std::uint16_t function, std::string name) {
    Job job{Job::What::kFunction};
    job.process = process;
    job.function = function;
    job.name = std::move(name);
    post(std::move(job));
}

void TraceWriter::event(std::uint32_t process, const EventRow& row) {
    if (is_program_failure(row.result, row.flags)) {
        ++failures_;
        if (row.result == kOutOfMemory) ++out_of_memory_;
    }
    if (stopped()) {
        ++events_passed_over_;
        return;
    }
    Batch& batch = batches_[process];
    if (batch.rows.capacity() == 0) batch.rows = empty_rows();
    batch.rows.push_back(row);
    ++rows_gathered_;
    if (batch.rows.size() >= kRowsPerBatch)
        flush(process);
    else if (rows_gathered_ >= kMaxRowsGathered)
        flush_all();
}

std::vector<EventRow> TraceWriter::empty_rows() {
    const std::lock_guard lock(mutex_);
    if (spare_rows_.empty()) return {};
    std::vector<EventRow> rows = std::move(spare_rows_.back());
    spare_rows_.pop_back();
    return rows;
}

void TraceWriter::flush(std::uint32_t process) {
    const auto found = batches_.find(process);
    if (found == batches_.end()) return;
    Batch& batch = found->second;
    post_names(batch);
    if (batch.rows.empty()) return;
    rows_gathered_ -= batch.rows.size();
    Job job{Job::What::kEvents};
    job.process = process;
    job.complete_below = batch.complete_below;
    job.rows = std::exchange(batch.rows, {});
    post(std::move(job));
}

void TraceWriter::flush_all() {
    for (auto& [process, batch] : batches_) flush(process);
}

void TraceWriter::forget(std::uint32_t process) {
    flush(process);
    batches_.erase(process);
    Job job{Job::What::kForget};
    job.process = process;
    post(std::move(job));
}

void TraceWriter::end(trace::SessionEnd end) {
    flush_all();
    end.set_failures(failures_);
    end.set_events_not_written(events_passed_over_);
    Job job{Job::What::kEnd};
    *job.chunk.mutable_end() = std::move(end);
    post(std::move(job));
    settle();
}

}  // namespace fragscope::collector
