/* fragscope.h in a program of C89: what a user writes. */
#include "fragscope.h"

void c89_marks(void);
void c89_marks(void) {
    fragscope_mark("from C89");
    fragscope_range_begin("outer");
    fragscope_range_begin("inner");
    fragscope_range_end();
    fragscope_range_end();
}
