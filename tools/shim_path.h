// Where the recorder that is preloaded lies, beside this executable: in a build folder, or installed.
#pragma once

#include <string>

namespace fragscope::tools {

std::string find_shim();  // empty: it is not there

}  // namespace fragscope::tools
