#include "interpose/unwind_tables.h"

#include <cstring>

namespace fragscope::interpose {

namespace {

// Numbers of registers in the tables (System V ABI, x86-64 supplement, figure 3.36).
constexpr std::uint64_t kRbp = 6, kRsp = 7, kReturnAddress = 16;

// Reads forward; past its end it yields zeros and says so.
class Reader {
  public:
    Reader(const unsigned char* at, const unsigned char* end) : at_(at), end_(end) {}

    bool failed() const { return failed_; }
    bool at_end() const { return failed_ || at_ >= end_; }
    const unsigned char* at() const { return at_; }
    std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
    void fail() { failed_ = true; }

    template <typename Number>
    Number number() {
        Number value{};
        if (failed_ || left() < sizeof value) {
            failed_ = true;
            return value;
        }
        std::memcpy(&value, at_, sizeof value);
        at_ += sizeof value;
        return value;
    }
    std::uint64_t unsigned_leb() {
        std::uint64_t value = 0;
        for (unsigned shift = 0;; shift += 7) {
            const auto byte = number<std::uint8_t>();
            if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
            if (failed_ || (byte & 0x80) == 0) return value;
        }
    }
    std::int64_t signed_leb() {
        std::uint64_t value = 0;
        for (unsigned shift = 0;;) {
            const auto byte = number<std::uint8_t>();
            if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
            shift += 7;
            if (!failed_ && (byte & 0x80) != 0) continue;
            if (shift < 64 && (byte & 0x40) != 0) value |= ~std::uint64_t{0} << shift;
            return static_cast<std::int64_t>(value);
        }
    }
    void skip(std::uint64_t bytes) {
        if (failed_ || bytes > left())
            failed_ = true;
        else
            at_ += bytes;
    }
    // The next `bytes` by themselves.
    Reader block(std::uint64_t bytes) {
        const unsigned char* from = at_;
        skip(bytes);
        Reader inner(from, failed_ ? from : at_);
        inner.failed_ = failed_;
        return inner;
    }
    // A number in one of the forms of DW_EH_PE_…, without what it is relative to.
    std::uint64_t encoded(std::uint8_t encoding) {
        switch (encoding & 0x0f) {
            case 0x00:  // absptr
            case 0x04:  // udata8
            case 0x0c:  // sdata8
                return number<std::uint64_t>();
            case 0x01:
                return unsigned_leb();
            case 0x02:
                return number<std::uint16_t>();
            case 0x03:
                return number<std::uint32_t>();
            case 0x09:
                return static_cast<std::uint64_t>(signed_leb());
            case 0x0a:
                return static_cast<std::uint64_t>(std::int64_t{number<std::int16_t>()});
            case 0x0b:
                return static_cast<std::uint64_t>(std::int64_t{number<std::int32_t>()});
            default:
                failed_ = true;
                return 0;
        }
    }
    std::uintptr_t address(std::uint8_t encoding) {
        const auto here = reinterpret_cast<std::uintptr_t>(at_);
        const std::uint64_t value = encoded(encoding);
        switch (encoding & 0xf0) {
            case 0x00:
                return value;
            case 0x10:  // pcrel
                return here + value;
            default:
                failed_ = true;
                return 0;
        }
    }

  private:
    const unsigned char* at_;
    const unsigned char* end_;
    bool failed_ = false;
};

const Span* span_of(const UnwindTables& tables, const unsigned char* at) {
    for (std::uint32_t i = 0; i < tables.span_count && i < kMaxSpans; ++i)
        if (tables.spans[i].holds(at)) return &tables.spans[i];
    return nullptr;
}

// The description of the function that `address` may lie in, by the sorted table of .eh_frame_hdr; nullptr:
// none.
const unsigned char* find_description(const UnwindTables& tables, std::uintptr_t address) {
    const Span* span = tables.header != nullptr ? span_of(tables, tables.header) : nullptr;
    if (span == nullptr) return nullptr;
    Reader header(tables.header, span->end);
    const auto version = header.number<std::uint8_t>();
    const auto frame_encoding = header.number<std::uint8_t>();
    const auto count_encoding = header.number<std::uint8_t>();
    const auto table_encoding = header.number<std::uint8_t>();
    constexpr std::uint8_t kOmitted = 0xff, kFromHeader4 = 0x3b;  // datarel, sdata4: all that linkers write
    if (header.failed() || version != 1 || count_encoding == kOmitted || table_encoding != kFromHeader4)
        return nullptr;
    if (frame_encoding != kOmitted) header.encoded(frame_encoding);
    const std::uint64_t count = header.encoded(count_encoding);
    if (header.failed() || count == 0 || count > header.left() / 8) return nullptr;

    const unsigned char* table = header.at();
    const auto base = reinterpret_cast<std::uintptr_t>(tables.header);
    const auto word = [table](std::uint64_t index) {
        std::int32_t value = 0;
        std::memcpy(&value, table + index * 4, sizeof value);
        return static_cast<std::uintptr_t>(std::int64_t{value});
    };
    std::uint64_t low = 0,
                  high = count;  // the last entry that begins at or before `address` is in [low, high)
    while (high - low > 1) {
        const std::uint64_t middle = low + (high - low) / 2;
        if (base + word(middle * 2) <= address)
            low = middle;
        else
            high = middle;
    }
    if (base + word(low * 2) > address) return nullptr;
    return reinterpret_cast<const unsigned char*>(base + word(low * 2 + 1));
}

// The two sorts of entries of .eh_frame: what is common to many functions, and one function's own.
struct Common {
    std::uint64_t code_alignment = 0;
    std::int64_t data_alignment = 0;
    std::uint8_t encoding = 0;
    bool signal = false;
    bool augmented = false;
    Reader program{nullptr, nullptr};
};

// The body of the entry at `at`, after its length.
Reader body_of(const UnwindTables& tables, const unsigned char* at) {
    const Span* span = span_of(tables, at);
    Reader entry(at, span != nullptr ? span->end : at);
    std::uint64_t length = entry.number<std::uint32_t>();
    if (length == 0xffffffff) length = entry.number<std::uint64_t>();
    if (length == 0) entry.fail();
    return entry.block(length);
}

bool read_common(const UnwindTables& tables, const unsigned char* at, Common& out) {
    Reader body = body_of(tables, at);
    if (body.number<std::uint32_t>() != 0) return false;
    const auto version = body.number<std::uint8_t>();
    if (version != 1 && version != 3) return false;
    char letters[8] = {};
    std::size_t count = 0;
    for (char letter; (letter = static_cast<char>(body.number<std::uint8_t>())) != '\0'; ++count) {
        if (count + 1 >= sizeof letters) return false;
        letters[count] = letter;
    }
    out.code_alignment = body.unsigned_leb();
    out.data_alignment = body.signed_leb();
    const std::uint64_t return_register = version == 1 ? body.number<std::uint8_t>() : body.unsigned_leb();
    if (body.failed() || return_register != kReturnAddress) return false;
    out.augmented = letters[0] == 'z';
    if (!out.augmented && letters[0] != '\0') return false;
    Reader extra = out.augmented ? body.block(body.unsigned_leb()) : Reader(nullptr, nullptr);
    for (std::size_t i = 1; i < count; ++i) {
        switch (letters[i]) {
            case 'R':
                out.encoding = extra.number<std::uint8_t>();
                break;
            case 'P':
                extra.encoded(extra.number<std::uint8_t>());  // who handles its exceptions
                break;
            case 'L':
                extra.number<std::uint8_t>();
                break;
            case 'S':
                out.signal = true;
                break;
            default:
                return false;
        }
    }
    out.program = body;
    return !extra.failed() && !body.failed();
}

enum class Saved : std::uint8_t { kSame, kAt, kExpression, kUndefined, kOther };
struct SavedRegister {
    Saved how = Saved::kSame;
    std::int64_t offset = 0;              // kAt: from the CFA
    Reader expression{nullptr, nullptr};  // kExpression: gives the address
};
// What is known of the caller's registers at one place.
struct Row {
    std::uint64_t cfa_register = kRsp;
    std::int64_t cfa_offset = 0;
    bool cfa_by_expression = false;
    Reader cfa_expression{nullptr, nullptr};
    SavedRegister frame, return_address;

    SavedRegister* of(std::uint64_t number) {
        return number == kRbp ? &frame : number == kReturnAddress ? &return_address : nullptr;
    }
};

// Runs a program of the tables up to what holds at `address`. False: it says something that is not known
// here.
class Program {
  public:
    Program(const Common& common, std::uintptr_t begin, std::uintptr_t address)
        : common_(common), location_(begin), address_(address) {}

    Row row;

    bool run(Reader program) {
        while (!program.at_end() && !reached_)
            if (!instruction(program)) return false;
        return !program.failed();
    }
    // What holds now is what single registers can be restored to.
    void begin_function() { initial_ = row; }

  private:
    static constexpr std::uint32_t kDepth = 8;

    void advance(std::uint64_t delta) {
        const std::uintptr_t next = location_ + delta * common_.code_alignment;
        reached_ = next > address_;
        location_ = next;
    }
    void save(std::uint64_t number, Saved how, std::int64_t offset = 0) {
        if (SavedRegister* saved = row.of(number); saved != nullptr)
            *saved = {how, offset, {nullptr, nullptr}};
    }
    void restore(std::uint64_t number) {
        if (SavedRegister* saved = row.of(number); saved != nullptr) *saved = *initial_.of(number);
    }
    std::int64_t factored(std::uint64_t value) const {
        return static_cast<std::int64_t>(value * static_cast<std::uint64_t>(common_.data_alignment));
    }
    void define(std::uint64_t number, std::int64_t offset) {
        row.cfa_by_expression = false;
        row.cfa_register = number;
        row.cfa_offset = offset;
    }

    bool instruction(Reader& in) {
        const auto byte = in.number<std::uint8_t>();
        const std::uint64_t low = byte & 0x3f;
        switch (byte & 0xc0) {
            case 0x40:
                advance(low);
                return true;
            case 0x80:
                save(low, Saved::kAt, factored(in.unsigned_leb()));
                return true;
            case 0xc0:
                restore(low);
                return true;
            default:
                return extended(byte, in);
        }
    }

    bool extended(std::uint8_t operation, Reader& in) {
        std::uint64_t number = 0;
        switch (operation) {
            case 0x00:  // nop
                return true;
            case 0x01: {  // set_loc
                const std::uintptr_t next = in.address(common_.encoding);
                reached_ = next > address_;
                location_ = next;
                return true;
            }
            case 0x02:
                advance(in.number<std::uint8_t>());
                return true;
            case 0x03:
                advance(in.number<std::uint16_t>());
                return true;
            case 0x04:
                advance(in.number<std::uint32_t>());
                return true;
            case 0x05:  // offset_extended
                number = in.unsigned_leb();
                save(number, Saved::kAt, factored(in.unsigned_leb()));
                return true;
            case 0x06:  // restore_extended
                restore(in.unsigned_leb());
                return true;
            case 0x07:
                save(in.unsigned_leb(), Saved::kUndefined);
                return true;
            case 0x08:
                save(in.unsigned_leb(), Saved::kSame);
                return true;
            case 0x09:  // register
                save(in.unsigned_leb(), Saved::kOther);
                in.unsigned_leb();
                return true;
            case 0x0a:  // remember_state
                if (remembered_ == kDepth) return false;
                states_[remembered_++] = row;
                return true;
            case 0x0b:  // restore_state
                if (remembered_ == 0) return false;
                row = states_[--remembered_];
                return true;
            case 0x0c:  // def_cfa
                number = in.unsigned_leb();
                define(number, static_cast<std::int64_t>(in.unsigned_leb()));
                return true;
            case 0x0d:  // def_cfa_register
                define(in.unsigned_leb(), row.cfa_offset);
                return true;
            case 0x0e:  // def_cfa_offset
                define(row.cfa_register, static_cast<std::int64_t>(in.unsigned_leb()));
                return true;
            case 0x0f:  // def_cfa_expression
                row.cfa_by_expression = true;
                row.cfa_expression = in.block(in.unsigned_leb());
                return true;
            case 0x10:  // expression
                number = in.unsigned_leb();
                save(number, Saved::kExpression);
                if (SavedRegister* saved = row.of(number); saved != nullptr)
                    saved->expression = in.block(in.unsigned_leb());
                else
                    in.skip(in.unsigned_leb());
                return true;
            case 0x11:  // offset_extended_sf
                number = in.unsigned_leb();
                save(number, Saved::kAt, factored(static_cast<std::uint64_t>(in.signed_leb())));
                return true;
            case 0x12:  // def_cfa_sf
                number = in.unsigned_leb();
                define(number, factored(static_cast<std::uint64_t>(in.signed_leb())));
                return true;
            case 0x13:  // def_cfa_offset_sf
                define(row.cfa_register, factored(static_cast<std::uint64_t>(in.signed_leb())));
                return true;
            case 0x14:  // val_offset
            case 0x15:  // val_offset_sf
                save(in.unsigned_leb(), Saved::kOther);
                in.unsigned_leb();
                return true;
            case 0x16:  // val_expression
                save(in.unsigned_leb(), Saved::kOther);
                in.skip(in.unsigned_leb());
                return true;
            case 0x2e:  // GNU_args_size
                in.unsigned_leb();
                return true;
            case 0x2f:  // GNU_negative_offset_extended
                number = in.unsigned_leb();
                save(number, Saved::kAt, factored(0 - in.unsigned_leb()));
                return true;
            default:
                return false;
        }
    }

    const Common& common_;
    std::uintptr_t location_;
    std::uintptr_t address_;
    bool reached_ = false;  // what follows holds further on
    Row initial_;
    Row states_[kDepth];
    std::uint32_t remembered_ = 0;
};

constexpr std::uint8_t kBreg0 = 0x70, kDeref = 0x06, kLit0 = 0x30, kLit31 = 0x4f;

// An expression that is a word found through the frame pointer, `deref` true, or an address by it.
bool through_frame(Reader expression, bool deref, std::int64_t& offset) {
    if (expression.number<std::uint8_t>() != kBreg0 + kRbp) return false;
    offset = expression.signed_leb();
    if (deref && expression.number<std::uint8_t>() != kDeref) return false;
    return !expression.failed() && expression.at_end();
}

// An expression that comes to the stack pointer and a number: those of linkers for the stubs of .plt, where
// the number depends on the place in the stub.
bool from_stack(Reader expression, std::uintptr_t address, std::int64_t& offset) {
    struct Value {
        std::uint64_t stack_pointers, number;
    };
    constexpr std::uint32_t kValues = 8;
    Value values[kValues] = {};
    std::uint32_t count = 0;
    while (!expression.at_end()) {
        const auto operation = expression.number<std::uint8_t>();
        if (operation >= kLit0 && operation <= kLit31) {
            if (count == kValues) return false;
            values[count++] = {0, static_cast<std::uint64_t>(operation - kLit0)};
            continue;
        }
        if (operation == kBreg0 + kRsp || operation == kBreg0 + kReturnAddress) {
            if (count == kValues) return false;
            const auto number = static_cast<std::uint64_t>(expression.signed_leb());
            values[count++] = operation == kBreg0 + kRsp ? Value{1, number} : Value{0, address + number};
            continue;
        }
        if (count < 2) return false;
        const Value top = values[--count];
        Value& below = values[count - 1];
        if (operation == 0x22) {  // plus
            below = {below.stack_pointers + top.stack_pointers, below.number + top.number};
            continue;
        }
        if (below.stack_pointers != 0 || top.stack_pointers != 0) return false;
        if (operation == 0x1a)  // and
            below.number &= top.number;
        else if (operation == 0x24)  // shl
            below.number = top.number < 64 ? below.number << top.number : 0;
        else if (operation == 0x2a)  // ge
            below.number = static_cast<std::int64_t>(below.number) >= static_cast<std::int64_t>(top.number);
        else
            return false;
    }
    if (expression.failed() || count != 1 || values[0].stack_pointers != 1) return false;
    offset = static_cast<std::int64_t>(values[0].number);
    return true;
}

Rule rule_of(const Row& row, std::uintptr_t address) {
    Rule rule;
    rule.form = RuleForm::kBeyond;
    if (row.return_address.how == Saved::kUndefined) {
        rule.form = RuleForm::kOutermost;
        return rule;
    }
    if (row.return_address.how != Saved::kAt || row.return_address.offset != -8) return rule;
    switch (row.frame.how) {
        case Saved::kSame:
            rule.kept = KeptFrame::kUnchanged;
            break;
        case Saved::kAt:
            rule.kept = KeptFrame::kAtCfa;
            rule.kept_offset = row.frame.offset;
            break;
        case Saved::kExpression:
            rule.kept = through_frame(row.frame.expression, false, rule.kept_offset) ? KeptFrame::kAtFrame
                                                                                     : KeptFrame::kGone;
            break;
        default:
            rule.kept = KeptFrame::kGone;
    }
    if (!row.cfa_by_expression) {
        rule.offset = row.cfa_offset;
        if (row.cfa_register == kRsp) rule.form = RuleForm::kStack;
        if (row.cfa_register == kRbp) rule.form = RuleForm::kFrame;
    } else if (through_frame(row.cfa_expression, true, rule.offset)) {
        rule.form = RuleForm::kThroughFrame;
    } else if (from_stack(row.cfa_expression, address, rule.offset)) {
        rule.form = RuleForm::kStack;
    }
    return rule;
}

}  // namespace

namespace {

// One function's description, read up to its instructions.
struct Described {
    Common common;
    std::uintptr_t begin = 0;
    bool holds = false;  // the address that was looked for
};

// False: it cannot be read.
bool read_description(const UnwindTables& tables, std::uintptr_t address, Reader& body, Described& out) {
    const auto field = reinterpret_cast<std::uintptr_t>(body.at());
    const auto back = body.number<std::uint32_t>();
    if (body.failed() || back == 0 ||
        !read_common(tables, reinterpret_cast<const unsigned char*>(field - back), out.common))
        return false;
    out.begin = body.address(out.common.encoding);
    const std::uint64_t length = body.encoded(out.common.encoding & 0x0f);
    if (out.common.augmented) body.skip(body.unsigned_leb());
    out.holds = address - out.begin < length;
    return !body.failed();
}

}  // namespace

Rule find_rule(const UnwindTables& tables, std::uintptr_t address) {
    const unsigned char* description = find_description(tables, address);
    if (description == nullptr || span_of(tables, description) == nullptr) return {};
    Reader body = body_of(tables, description);
    Described function;
    Rule beyond;
    beyond.form = RuleForm::kBeyond;
    if (!read_description(tables, address, body, function)) return beyond;
    if (!function.holds) return {};
    if (function.common.signal) {
        Rule signal;
        signal.form = RuleForm::kSignal;
        return signal;
    }
    Program program(function.common, function.begin, address);
    if (!program.run(function.common.program)) return beyond;
    program.begin_function();
    if (!program.run(body)) return beyond;
    return rule_of(program.row, address);
}

std::uintptr_t function_begin(const UnwindTables& tables, std::uintptr_t address) {
    const unsigned char* description = find_description(tables, address);
    if (description == nullptr || span_of(tables, description) == nullptr) return 0;
    Reader body = body_of(tables, description);
    Described function;
    return read_description(tables, address, body, function) && function.holds ? function.begin : 0;
}

}  // namespace fragscope::interpose
