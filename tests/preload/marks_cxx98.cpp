// fragscope.h in a program of C++98.
#include "fragscope.h"

void cxx98_marks() {
    ::fragscope_mark("from C++98");
    fragscope_mark(0);
}
