// What the four payload fields of an event hold, by its kind and flags: the table beside wire::Kind for programs. Most
// hold what they are called after; where they hold something else it has a name of its own.
#pragma once

#include <string_view>

#include "proto/wire.h"

namespace fragscope::analysis {

enum class PayloadForm {
    kAddress,  // an address, a handle or a word of bits: written in hexadecimal
    kBytes,    // an amount in bytes
    kTotal,    // the same, or wire::kTotalNotTold
    kNumber,
};

struct PayloadField {
    std::string_view name;  // stable: used in JSON; amounts end in "bytes"
    PayloadForm form;
};

struct PayloadNames {
    PayloadField address{"address", PayloadForm::kAddress};
    PayloadField bytes{"bytes", PayloadForm::kBytes};
    PayloadField object{"object", PayloadForm::kAddress};
    PayloadField extra{"extra", PayloadForm::kAddress};
};

PayloadNames payload_names(wire::Kind kind, std::uint16_t flags = 0);

}  // namespace fragscope::analysis
