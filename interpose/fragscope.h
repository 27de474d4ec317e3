/* Names moments and phases of a program in Fragscope's recordings:
 *
 *     fragscope_mark("epoch 3 begins");
 *     fragscope_range_begin("warm-up");
 *     ...
 *     fragscope_range_end();
 *
 * Nothing is linked. Under `fragscope run` the calls reach the recorder; in any other run each is a comparison with a
 * null pointer. Ranges nest within a thread. Texts are NUL-terminated UTF-8, kept by the recorder for as long as the
 * process runs, at most 4096 bytes each and 2 MiB altogether: name phases, not single items. What is said before the
 * program's first use of the CUDA driver is not recorded. Not to be called from signal handlers.
 *
 * The recorder's functions are weak symbols that the dynamic linker looks up. The one case where it does not, and
 * the functions do nothing: code that clang compiled with -fno-pie.
 *
 * C89 and later, C++98 and later; compilers that know GCC's attributes. With others the functions do nothing. */
#ifndef FRAGSCOPE_H
#define FRAGSCOPE_H

#if defined(__GNUC__)

/* By way of the table of addresses, also where the code is not position-independent: there a linker would take an
 * absent weak symbol to be absent for good. */
#if defined(__clang__)
#define FRAGSCOPE_SHIM __attribute__((weak))
#else
#define FRAGSCOPE_SHIM __attribute__((weak, noplt))
#endif

#ifdef __cplusplus
extern "C" {
#endif

FRAGSCOPE_SHIM void fragscope_shim_mark(const char* text);
FRAGSCOPE_SHIM void fragscope_shim_range_begin(const char* text);
FRAGSCOPE_SHIM void fragscope_shim_range_end(void);

#ifdef __cplusplus
}
#endif

static __inline__ __attribute__((unused)) void fragscope_mark(const char* text) {
    if (fragscope_shim_mark) fragscope_shim_mark(text);
}
static __inline__ __attribute__((unused)) void fragscope_range_begin(const char* text) {
    if (fragscope_shim_range_begin) fragscope_shim_range_begin(text);
}
static __inline__ __attribute__((unused)) void fragscope_range_end(void) {
    if (fragscope_shim_range_end) fragscope_shim_range_end();
}

#else

#define fragscope_mark(text) ((void)(text))
#define fragscope_range_begin(text) ((void)(text))
#define fragscope_range_end() ((void)0)

#endif

#endif
