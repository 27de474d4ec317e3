// What a process says about itself, from records and texts into its trace::Process message.
#pragma once

#include "collector/text_assembly.h"
#include "proto/trace.pb.h"
#include "proto/wire.h"

namespace fragscope::collector {

// Kinds that describe the process and are no events of it.
bool is_environment(wire::Kind kind);

// Applies a record for which is_environment() holds. A value whose call failed stays absent. `name` is the
// record's function, used for hooks that the driver lacks.
void apply_environment(const wire::Record& record, const std::string& function_name, trace::Process& process);
// Applies a text; function names are not for here.
void apply_text(const Text& text, trace::Process& process);

}  // namespace fragscope::collector
