// Leak classes and hazards in words: for `report`, at the end of a recording, and for `state`, at a moment.
#pragma once

#include <string>

#include "proto/leaks.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

using LeakClasses = google::protobuf::RepeatedPtrField<report::LeakClass>;
using Hazards = google::protobuf::RepeatedPtrField<report::Hazard>;

// `several`: the page speaks of more than one process. Where there is nothing of the kind, that is said, with
// `unless` behind it.
void put_leaks(Page& page, const LeakClasses& leaks, const std::string& heading, bool several,
               const std::string& unless);
void put_hazards(Page& page, const Hazards& hazards, bool several, const std::string& unless);

}  // namespace fragscope::tools
