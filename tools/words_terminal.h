// Looks at the terminal and the environment once, for the Style that everything else is given.
#pragma once

#include "tools/words.h"

namespace fragscope::tools {

// For standard output. Not a terminal: 80 columns, no colour. A terminal: its width, between 40 and 110, and
// colour unless NO_COLOR is set (to anything but nothing) or TERM is "dumb". Characters beyond ASCII where
// the locale is UTF-8. Sets the process's LC_CTYPE from the environment.
Style style_of_stdout();

}  // namespace fragscope::tools
