// The shim's reading of unwind tables and its walk inside of one program, which may therefore run under the
// sanitizers: tables made by hand, of which the rule is known from the standards; tables of this program,
// damaged in every place; and the walk against glibc's backtrace(), by either way of asking the loader.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <execinfo.h>
#include <gnu/libc-version.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "interpose/emit.h"
#include "interpose/modules.h"
#include "interpose/state.h"
#include "interpose/unwind.h"
#include "interpose/unwind_tables.h"

namespace fragscope::interpose {

// What emit and session need of the rest of the shim.
void announce_process() {}
void reset_process_state() { forget_names(); }

}  // namespace fragscope::interpose

using namespace fragscope::interpose;

namespace {

using Bytes = std::vector<unsigned char>;

// ------------------------------------------------------------------------------------------------- made by
// hand

void append(Bytes& to, const Bytes& bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }
template <typename Number>
void append_number(Bytes& to, Number number) {
    const auto* at = reinterpret_cast<const unsigned char*>(&number);
    to.insert(to.end(), at, at + sizeof number);
}

constexpr std::int32_t kCode = 0x1000;  // where the one function lies, from the header's beginning
constexpr std::uint32_t kCodeBytes = 0x100;

// A header with one function, its common entry ("zR" or as given) and its own entry with this program. What
// is common to all functions: CFA is rsp + 8, the return address is at CFA - 8.
struct Made {
    std::unique_ptr<unsigned char[]>
        memory;  // exactly as long as the tables: one byte further is seen by a sanitizer
    UnwindTables tables;
    std::uintptr_t code = 0;
};
Made make(const Bytes& program, const char* letters = "zR", std::uint64_t return_register = 16) {
    Bytes all;
    append(all, {1, 0x1b, 0x03, 0x3b});  // version; encodings of pointer, count and table
    append_number(all, std::int32_t{16});
    append_number(all, std::uint32_t{1});
    append_number(all, kCode);
    append_number(all, std::int32_t{0});  // of the function's entry, below
    const std::size_t common = all.size();
    Bytes body;
    append_number(body, std::uint32_t{0});
    body.push_back(1);
    for (const char* letter = letters; *letter != '\0'; ++letter)
        body.push_back(static_cast<unsigned char>(*letter));
    append(body, {0, 1, 0x78, static_cast<unsigned char>(return_register)});  // alignments 1 and -8
    append(body, {1, 0x1b});                                                  // one byte: pcrel, sdata4
    append(body, {0x0c, 7, 8, 0x90, 1});
    append_number(all, static_cast<std::uint32_t>(body.size()));
    append(all, body);
    const auto own = static_cast<std::int32_t>(all.size());
    append_number(all, static_cast<std::uint32_t>(4 + 4 + 4 + 1 + program.size()));
    append_number(all, static_cast<std::uint32_t>(all.size() - common));
    append_number(all, kCode - static_cast<std::int32_t>(all.size()));
    append_number(all, kCodeBytes);
    all.push_back(0);
    append(all, program);
    std::memcpy(all.data() + 16, &own, sizeof own);

    Made made;
    made.memory = std::make_unique<unsigned char[]>(all.size());
    std::memcpy(made.memory.get(), all.data(), all.size());
    made.tables.header = made.memory.get();
    made.tables.spans[0] = {made.memory.get(), made.memory.get() + all.size()};
    made.tables.span_count = 1;
    made.code = reinterpret_cast<std::uintptr_t>(made.memory.get()) + kCode;
    return made;
}

bool same(const Rule& a, const Rule& b) {
    return a.form == b.form && a.kept == b.kept && a.offset == b.offset && a.kept_offset == b.kept_offset;
}

}  // namespace

TEST_CASE("the rules of a function that sets up a frame") {
    // push %rbp (1 byte); mov %rsp,%rbp (3); … ; at 0x40 an early way out: pop, ret; at 0x42 the rest.
    const Made made =
        make({0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x02, 0x3c, 0x0a, 0xc6, 0x0c, 7, 8, 0x42, 0x0b});
    const auto at = [&](std::uintptr_t offset) { return find_rule(made.tables, made.code + offset); };
    CHECK(same(at(0), {RuleForm::kStack, KeptFrame::kUnchanged, 8, 0}));
    CHECK(same(at(1), {RuleForm::kStack, KeptFrame::kAtCfa, 16, -16}));
    CHECK(same(at(4), {RuleForm::kFrame, KeptFrame::kAtCfa, 16, -16}));
    CHECK(same(at(0x3f), {RuleForm::kFrame, KeptFrame::kAtCfa, 16, -16}));
    CHECK(same(at(0x40), {RuleForm::kStack, KeptFrame::kUnchanged, 8, 0}));
    CHECK(same(at(0x42), {RuleForm::kFrame, KeptFrame::kAtCfa, 16, -16}));
    CHECK(at(kCodeBytes).form == RuleForm::kUntold);
    CHECK(find_rule(made.tables, made.code - 1).form == RuleForm::kUntold);
}

TEST_CASE("rules by expressions, and such as are not handled") {
    const auto rule = [](const Bytes& program, std::uintptr_t offset = 0) {
        const Made made = make(program);
        return find_rule(made.tables, made.code + offset);
    };
    // GCC for a function that aligns its stack: CFA = *(rbp - 8), rbp saved at *rbp.
    CHECK(same(rule({0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0}),
               {RuleForm::kThroughFrame, KeptFrame::kAtFrame, -8, 0}));
    // Linkers for .plt: rsp + 8 + ((rip & 15) >= 11) * 8, at addresses whose last digit is known.
    const Bytes plt = {0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22};
    const Made stubs = make(plt);
    for (std::uintptr_t i = 0; i < 32; ++i) {
        const std::uintptr_t address = stubs.code + i;
        CHECK(same(find_rule(stubs.tables, address),
                   {RuleForm::kStack, KeptFrame::kUnchanged, address % 16 >= 11 ? 16 : 8, 0}));
    }
    CHECK(rule({0x07, 16}).form == RuleForm::kOutermost);
    CHECK(rule({0x0c, 10, 0}).form == RuleForm::kBeyond);                        // from r10
    CHECK(rule({0x0f, 2, 0x77, 8, 0x16, 6, 1, 0x30}).kept == KeptFrame::kGone);  // a computed rbp
    CHECK(rule({0x3f}).form == RuleForm::kBeyond);                               // no such instruction
    CHECK(rule({0x0b}).form == RuleForm::kBeyond);              // restores what was not remembered
    CHECK(rule(Bytes(100, 0x0a)).form == RuleForm::kBeyond);    // remembers more than fits
    CHECK(rule({0x0f, 0x7f, 0x77}).form == RuleForm::kBeyond);  // an expression longer than its entry
    const Made handler = make({}, "zRS");
    CHECK(find_rule(handler.tables, handler.code).form == RuleForm::kSignal);
    const Made other = make({}, "zR", 30);
    CHECK(find_rule(other.tables, other.code).form == RuleForm::kBeyond);
}

// -------------------------------------------------------------------------------------------------- found
// and damaged

namespace {

// A place in the C library, whose tables no sanitizer has been at.
std::uintptr_t somewhere() { return reinterpret_cast<std::uintptr_t>(&gnu_get_libc_version); }

// The part of its file that the unwind tables lie in, copied: all that they say is by distances.
struct Copied {
    std::unique_ptr<unsigned char[]> memory;
    std::size_t bytes = 0;
    UnwindTables tables;
    std::uintptr_t moved = 0;  // by how much
    std::size_t header = 0;    // offset of .eh_frame_hdr
};
Copied copy_tables() {
    const std::uint32_t number = module_at(somewhere());
    REQUIRE(number != 0);
    const UnwindTables& found = module(number).tables;
    REQUIRE(found.header != nullptr);
    Copied copied;
    for (std::uint32_t i = 0; i < found.span_count; ++i) {
        if (!found.spans[i].holds(found.header)) continue;
        copied.bytes = static_cast<std::size_t>(found.spans[i].end - found.spans[i].begin);
        copied.header = static_cast<std::size_t>(found.header - found.spans[i].begin);
        copied.memory = std::make_unique<unsigned char[]>(copied.bytes);
        std::memcpy(copied.memory.get(), found.spans[i].begin, copied.bytes);
        copied.moved = reinterpret_cast<std::uintptr_t>(copied.memory.get()) -
                       reinterpret_cast<std::uintptr_t>(found.spans[i].begin);
    }
    REQUIRE(copied.memory != nullptr);
    copied.tables.header = copied.memory.get() + copied.header;
    copied.tables.spans[0] = {copied.memory.get(), copied.memory.get() + copied.bytes};
    copied.tables.span_count = 1;
    return copied;
}

}  // namespace

TEST_CASE("damaged tables are read within their bounds, and to an end") {
    const Copied good = copy_tables();
    const std::uint32_t number = module_at(somewhere());
    const UnwindTables& original = module(number).tables;
    std::mt19937_64 random(20260101);
    const auto base = somewhere();
    std::size_t told = 0;
    for (int i = 0; i < 2000; ++i) {
        const std::uintptr_t address = base + random() % 1000000;
        const Rule expected = find_rule(original, address);
        REQUIRE(same(find_rule(good.tables, address + good.moved), expected));
        told += expected.form != RuleForm::kUntold ? 1 : 0;
    }
    REQUIRE(told > 1000);
    const std::size_t from = good.header;
    for (int i = 0; i < 20000; ++i) {
        const std::size_t place = from + random() % (good.bytes - from);
        const unsigned char before = good.memory[place];
        good.memory[place] = static_cast<unsigned char>(random());
        // Also the length of what may be read: a file that is cut short.
        UnwindTables tables = good.tables;
        if (i % 4 == 0) tables.spans[0].end = good.memory.get() + from + random() % (good.bytes - from);
        for (int turn = 0; turn < 4; ++turn)
            static_cast<void>(find_rule(tables, base + good.moved + random() % 1000000));
        if (i % 2 == 0) good.memory[place] = before;  // half of the damage stays and adds up
    }
}

// ------------------------------------------------------------------------------------------------------------
// the walk

namespace {

struct Pair {
    std::vector<std::uintptr_t> ours, theirs;
    bool lost = false;
};

[[gnu::noinline]] void take(Pair& out) {
    Walk walk(__builtin_frame_address(0));
    while (walk.locate()) {
        out.ours.push_back(walk.pc());
        if (!walk.up()) break;
    }
    out.lost = walk.lost();
    void* frames[512];
    const int count = backtrace(frames, 512);
    for (int i = 1; i < count; ++i) out.theirs.push_back(reinterpret_cast<std::uintptr_t>(frames[i]));
}

std::atomic<int> sink;

[[gnu::noinline]] void recurse(Pair& out, int levels) {
    if (levels == 0)
        take(out);
    else
        recurse(out, levels - 1);
    sink.store(levels);  // after the call, which is thereby one
}

void check_walk(int levels) {
    Pair pair;
    recurse(pair, levels);
    CHECK(pair.ours.size() > static_cast<std::size_t>(levels));
    // A sanitizer stands between us and backtrace() with a frame of its own.
    const auto first = std::find(pair.theirs.begin(), pair.theirs.end(), pair.ours.at(0));
    CHECK(std::vector<std::uintptr_t>(first, pair.theirs.end()) == pair.ours);
    CHECK(!pair.lost);
}

}  // namespace

TEST_CASE("a walk goes where backtrace() goes, whichever way the loader is asked") {
    for (int turn = 0; turn < 2; ++turn) {
        for (const int levels : {1, 5, 100}) check_walk(levels);
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i)
            threads.emplace_back([] {
                for (int levels = 0; levels < 50; ++levels) check_walk(levels);
            });
        for (std::thread& thread : threads) thread.join();
        find_modules_by_iteration();
    }
}
