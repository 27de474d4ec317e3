// Names, loaded files and call stacks, from texts to what the trace holds of them. Expected values:
// wire::ModuleText, wire::StackText and the limits in proto/chunk.h.
#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include "collector/names.h"
#include "proto/chunk.h"
#include "tests/unit/collector/producer.h"

using namespace fragscope;
using collector::NameTable;
using Took = collector::NameTable::Took;
using wire::TextKind;

namespace {

struct Table {
    Took take(TextKind kind, std::uint32_t id, const std::string& text) {
        return table.take({kind, 0, id, text}, names);
    }
    NameTable table;
    trace::Names names;
};

}  // namespace

TEST_CASE("a text, a loaded file and a call stack become what the trace holds of them") {
    Table table;
    CHECK(table.take(TextKind::kString, 3, "caf\xc3\xa9 \xff") == Took::kNew);
    CHECK(table.take(TextKind::kModule, 9,
                     test::module_text(0x1000, 0x9000, 0x800, std::string("\0\x01\xff", 3), "/lib/a.so")) ==
          Took::kNew);
    const std::vector<std::uint64_t> frames{wire::module_frame(9, 0x123), wire::address_frame(0x7fff0000),
                                            wire::python_frame(3, 42)};
    CHECK(table.take(TextKind::kStack, 1, test::stack_text(3, wire::kStackCut, frames)) == Took::kNew);
    CHECK(table.take(TextKind::kStack, 2, test::stack_text(3, wire::kStackLost, {})) == Took::kNew);
    CHECK(table.take(TextKind::kStack, 3, test::stack_text(3, wire::kStackNoLines, {})) == Took::kNew);

    REQUIRE(table.names.texts_size() == 1);
    CHECK(table.names.texts(0).id() == 3);
    CHECK(table.names.texts(0).text() == "caf\xc3\xa9 ?");
    REQUIRE(table.names.modules_size() == 1);
    const trace::CodeModule& module = table.names.modules(0);
    CHECK(module.id() == 9);
    CHECK(module.path() == "/lib/a.so");
    CHECK(module.build_id() == std::string("\0\x01\xff", 3));
    CHECK(module.begin() == 0x1000);
    CHECK(module.end() == 0x9000);
    CHECK(module.bias() == 0x800);
    REQUIRE(table.names.stacks_size() == 3);
    const trace::Stack& stack = table.names.stacks(0);
    CHECK(stack.id() == 1);
    CHECK(stack.origin() == 3);
    CHECK(std::vector<std::uint64_t>(stack.frames().begin(), stack.frames().end()) == frames);
    CHECK(stack.cut());
    CHECK_FALSE(stack.lost());
    CHECK(table.names.stacks(1).frames().empty());
    CHECK(table.names.stacks(1).lost());
    CHECK_FALSE(table.names.stacks(1).no_lines());
    CHECK(table.names.stacks(2).no_lines());
}

TEST_CASE("the first definition of a number wins, kinds have numbers of their own") {
    Table table;
    CHECK(table.take(TextKind::kString, 5, "first") == Took::kNew);
    CHECK(table.take(TextKind::kString, 5, "second") == Took::kKnown);
    CHECK(table.take(TextKind::kModule, 5, test::module_text(1, 2, 0, "", "")) == Took::kNew);
    CHECK(table.take(TextKind::kStack, 5, test::stack_text(0, 0, {})) == Took::kNew);
    CHECK(table.take(TextKind::kStack, 5, test::stack_text(0, 0, {})) == Took::kKnown);
    REQUIRE(table.names.texts_size() == 1);
    CHECK(table.names.texts(0).text() == "first");
}

TEST_CASE("numbers beyond the limits are refused, those at the limits are not") {
    Table table;
    const std::string module = test::module_text(1, 2, 0, "", "/x");
    const std::string stack = test::stack_text(0, 0, {});
    CHECK(table.take(TextKind::kString, 0, "x") == Took::kRefused);
    CHECK(table.take(TextKind::kString, trace::kMaxTexts, "x") == Took::kRefused);
    CHECK(table.take(TextKind::kString, trace::kMaxTexts - 1, "x") == Took::kNew);
    CHECK(table.take(TextKind::kModule, 0, module) == Took::kRefused);
    CHECK(table.take(TextKind::kModule, trace::kMaxModules, module) == Took::kRefused);
    CHECK(table.take(TextKind::kModule, trace::kMaxModules - 1, module) == Took::kNew);
    CHECK(table.take(TextKind::kStack, 0, stack) == Took::kRefused);
    CHECK(table.take(TextKind::kStack, UINT32_MAX, stack) == Took::kRefused);
    CHECK(table.take(TextKind::kStack, trace::kMaxStacks - 1, stack) == Took::kNew);
}

TEST_CASE("payloads whose sizes do not agree are refused, and leave their number free") {
    Table table;
    std::string module = test::module_text(1, 2, 0, std::string(wire::kMaxBuildIdBytes, 'b'), "");
    CHECK(table.take(TextKind::kModule, 1, module.substr(0, sizeof(wire::ModuleText) - 1)) == Took::kRefused);
    CHECK(table.take(TextKind::kModule, 1, module.substr(0, module.size() - 1)) == Took::kRefused);
    CHECK(table.take(TextKind::kModule, 1, test::module_text(1, 2, 0, std::string(65, 'b'), "/x")) ==
          Took::kRefused);
    CHECK(table.take(TextKind::kModule, 1, test::module_text(2, 1, 0, "", "/x")) == Took::kRefused);
    CHECK(table.take(TextKind::kModule, 1, module) == Took::kNew);
    const std::vector<std::uint64_t> frames(wire::kMaxFrames, wire::address_frame(1));
    const std::string stack = test::stack_text(0, 0, frames);
    CHECK(table.take(TextKind::kStack, 1, "") == Took::kRefused);
    CHECK(table.take(TextKind::kStack, 1, stack + "x") == Took::kRefused);
    CHECK(table.take(TextKind::kStack, 1, stack.substr(8)) == Took::kRefused);
    CHECK(table.take(TextKind::kStack, 1, test::stack_text(0, 8, {})) == Took::kRefused);
    CHECK(table.take(TextKind::kStack, 1, test::stack_text(0, 0, {std::uint64_t{3} << 62})) ==
          Took::kRefused);
    CHECK(table.take(TextKind::kStack, 1,
                     test::stack_text(0, 0, std::vector<std::uint64_t>(wire::kMaxFrames + 1))) ==
          Took::kRefused);
    CHECK(table.take(TextKind::kStack, 1, stack) == Took::kNew);
    CHECK(table.take(TextKind::kFunctionName, 1, "x") == Took::kRefused);
    CHECK(table.names.stacks_size() == 1);
}

TEST_CASE("rubbish: what comes out is within the limits and can be written") {
    std::mt19937_64 random(11);
    Table table;
    for (int i = 0; i < 50'000; ++i) {
        std::string text(random() % 1200, '\0');
        for (char& c : text) c = static_cast<char>(random());
        if (random() % 2 == 0 && text.size() >= sizeof(wire::StackText)) {
            const wire::StackText payload{0, static_cast<std::uint16_t>((text.size() - 8) / 8), 0};
            std::memcpy(text.data(), &payload, sizeof payload);
            text.resize(text.size() / 8 * 8);
        }
        table.take(static_cast<TextKind>(8 + random() % 3),
                   static_cast<std::uint32_t>(random() >> (random() % 64)), text);
    }
    CHECK(table.names.stacks_size() > 0);
    CHECK(table.names.texts_size() > 0);
    for (const trace::Stack& stack : table.names.stacks()) CHECK(stack.frames_size() <= 128);
    CHECK(table.names.SerializeAsString().size() > 0);  // refuses texts that are no UTF-8
}
