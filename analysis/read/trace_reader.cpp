#include "analysis/read/trace_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "analysis/read/batch_decoder.h"
#include "analysis/read/chunk_reader.h"
#include "analysis/read/event_index.h"

namespace fragscope::analysis {

namespace {

// The later message wins field by field; lists are always sent whole, devices are merged by ordinal.
void merge_process(trace::Process& into, const trace::Process& later) {
    const std::vector<trace::Device> devices(into.devices().begin(), into.devices().end());
    if (!later.command_line().empty()) into.clear_command_line();
    if (!later.hooks_missing().empty()) into.clear_hooks_missing();
    into.clear_devices();
    into.MergeFrom(later);
    for (const trace::Device& device : devices) {
        const auto same =
            std::find_if(into.mutable_devices()->begin(), into.mutable_devices()->end(),
                         [&](const trace::Device& d) { return d.ordinal() == device.ordinal(); });
        if (same == into.mutable_devices()->end()) {
            *into.add_devices() = device;
            continue;
        }
        trace::Device merged = device;
        merged.MergeFrom(*same);
        *same = std::move(merged);
    }
    std::sort(into.mutable_devices()->begin(), into.mutable_devices()->end(),
              [](const trace::Device& a, const trace::Device& b) { return a.ordinal() < b.ordinal(); });
}

// Defines what the chunk names. Empty: taken; else what is wrong with it.
std::string take_names(const trace::Names& chunk, ProcessNames& names) {
    for (const trace::Text& text : chunk.texts())
        if (text.id() == 0 || text.id() >= trace::kMaxTexts ||
            !names.texts.emplace(text.id(), text.text()).second)
            return fmt::format("text {}, expected a new one from 1 to {}", text.id(), trace::kMaxTexts - 1);
    for (const trace::CodeModule& module : chunk.modules())
        if (module.id() == 0 || module.id() >= trace::kMaxModules ||
            !names.modules.emplace(module.id(), module).second)
            return fmt::format("loaded file {}, expected a new one from 1 to {}", module.id(),
                               trace::kMaxModules - 1);
    for (const trace::Stack& stack : chunk.stacks()) {
        if (stack.frames_size() > static_cast<int>(wire::kMaxFrames))
            return fmt::format("a call stack of {} frames, expected at most {}", stack.frames_size(),
                               wire::kMaxFrames);
        if (stack.id() == 0 || stack.id() >= trace::kMaxStacks ||
            !names.stacks.emplace(stack.id(), stack).second)
            return fmt::format("call stack {}, expected a new one from 1 to {}", stack.id(),
                               trace::kMaxStacks - 1);
    }
    return "";
}

class Assembly {
  public:
    explicit Assembly(Trace& trace) : trace_(trace) {}

    // Empty: taken. Else what is wrong with the chunk. The same of a chunk of events.
    std::string take(const trace::Chunk& chunk) {
        if (std::string wrong = misplaced(chunk.has_session()); !wrong.empty()) return wrong;
        switch (chunk.body_case()) {
            case trace::Chunk::kSession:
                if (started_) return "a second description of the session";
                started_ = true;
                trace_.session = chunk.session();
                return "";
            case trace::Chunk::kProcess:
                if (std::string wrong = make_room(chunk.process().index()); !wrong.empty()) return wrong;
                merge_process(trace_.processes[chunk.process().index()], chunk.process());
                return "";
            case trace::Chunk::kEvents:
                break;  // the reader takes them apart itself
            case trace::Chunk::kLoss:
                if (std::string wrong = make_room(chunk.loss().process()); !wrong.empty()) return wrong;
                trace_.losses[chunk.loss().process()] = chunk.loss();
                return "";
            case trace::Chunk::kEnd:
                ended_ = true;
                trace_.end = chunk.end();
                return "";
            case trace::Chunk::kNames:
                if (std::string wrong = make_room(chunk.names().process()); !wrong.empty()) return wrong;
                return take_names(chunk.names(), trace_.names[chunk.names().process()]);
            case trace::Chunk::kReadings:
                trace_.readings.push_back(chunk.readings());
                return "";
            case trace::Chunk::BODY_NOT_SET:
                break;
        }
        return "an empty chunk";
    }
    std::string take_events(const ChunkContent& content) {
        if (std::string wrong = misplaced(false); !wrong.empty()) return wrong;
        if (std::string wrong = make_room(content.events.process); !wrong.empty()) return wrong;
        if (!content.wrong.empty()) return content.wrong;
        for (const std::string_view name : content.events.functions) names_.intern(name);
        batches_[content.events.process].push_back({content.offset, content.header.checksum, content.facts});
        return "";
    }
    // Nothing can be taken after it.
    void finish(std::shared_ptr<const FileBytes> file) {
        trace_.functions = names_.list();
        const auto events = std::make_shared<EventFile>(std::move(file), names_, batches_.size());
        for (std::vector<BatchPlace>& batches : batches_)
            trace_.events.emplace_back(source_of(events, std::move(batches)));
    }
    bool started() const { return started_; }
    bool ended() const { return ended_; }

  private:
    std::string misplaced(bool is_session) const {
        if (ended_) return "more chunks behind the end of the session";
        return started_ || is_session ? "" : "expected the session's description as first chunk";
    }
    std::string make_room(std::uint32_t process) {
        if (process >= trace::kMaxProcesses)
            return fmt::format("process {}, expected less than {}", process, trace::kMaxProcesses);
        while (trace_.processes.size() <= process) {
            const auto index = static_cast<std::uint32_t>(trace_.processes.size());
            trace_.processes.emplace_back().set_index(index);
            trace_.losses.emplace_back().set_process(index);
            batches_.emplace_back();
            trace_.names.emplace_back();
        }
        return "";
    }

    Trace& trace_;
    FunctionNames names_;
    std::vector<std::vector<BatchPlace>> batches_;  // by process, as they come in the file
    bool started_ = false;
    bool ended_ = false;
};

ReadResult read_whole(const std::string& path) {
    ChunkReader reader;
    if (std::string error = reader.open(path); !error.empty()) return {std::nullopt, std::move(error)};
    ReadResult result;
    Trace& trace = result.trace.emplace();
    trace.path = path;
    Assembly assembly(trace);
    for (;;) {
        const ChunkReader::Next next = reader.next();
        if (next == ChunkReader::Next::kChunk || next == ChunkReader::Next::kEvents) {
            const std::string wrong = next == ChunkReader::Next::kChunk
                                          ? assembly.take(reader.content().chunk)
                                          : assembly.take_events(reader.content());
            if (wrong.empty()) {
                trace.file.readable_bytes = reader.offset();
                continue;
            }
            trace.file.problem = fmt::format("at offset {}: {}", reader.chunk_offset(), wrong);
        } else if (next == ChunkReader::Next::kProblem) {
            trace.file.problem = reader.problem();
        } else if (!assembly.ended()) {
            trace.file.problem =
                fmt::format("at offset {}: the file ends, expected more events or the end of the session",
                            reader.offset());
        }
        break;
    }
    if (!assembly.started())
        return {std::nullopt, fmt::format("{} is damaged where it begins, so nothing of it can be read: {}",
                                          path, trace.file.problem)};
    trace.file.cut_off = !assembly.ended();
    assembly.finish(reader.file());
    return result;
}

}  // namespace

ReadResult read_trace(const std::string& path) {
    try {
        return read_whole(path);
    } catch (const std::bad_alloc&) {
        return {std::nullopt, fmt::format("cannot read {}: its events do not fit into memory", path)};
    } catch (const EventsLost& lost) {
        return {std::nullopt, lost.what()};
    }
}

}  // namespace fragscope::analysis
