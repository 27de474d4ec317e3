#include "interpose/doors.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "interpose/activity.h"
#include "interpose/driver.h"
#include "interpose/emit.h"
#include "interpose/frameworks.h"
#include "interpose/modules.h"
#include "interpose/session.h"

namespace fragscope::interpose {

using DlsymFunction = void* (*)(void*, const char*);

extern "C" {
// Reached from the assembly below; null until first used.
[[gnu::visibility("hidden")]] constinit DlsymFunction fragscope_real_dlsym = nullptr;
[[gnu::visibility("hidden")]] DlsymFunction fragscope_find_dlsym();
[[gnu::visibility("hidden")]] bool fragscope_answer_dlsym(void* handle, const char* name, const void* caller,
                                                          void** result);
}

// The dlsym that programs see. Everything that is not called cu[A-Z]…, cup… (CUPTI) or _Z… (a C++ name) is passed on
// by a jump: the real dlsym takes RTLD_NEXT from its return address, which therefore has to remain the caller's
// own. For the rest fragscope_answer_dlsym() either gives the result or asks for the jump as well.
#if defined(__x86_64__)
asm(R"(
    .text
    .p2align 4
    .globl dlsym
    .type dlsym, @function
dlsym:
    .cfi_startproc
    endbr64
    testq %rsi, %rsi
    jz 1f
    cmpb $'c', (%rsi)
    jne 3f
    cmpb $'u', 1(%rsi)
    jne 1f
    movzbl 2(%rsi), %eax
    subl $'A', %eax
    cmpl $25, %eax
    jbe 4f
    cmpl $('p' - 'A'), %eax
    jne 1f
4:  movq (%rsp), %rdx
    subq $24, %rsp
    .cfi_adjust_cfa_offset 24
    movq %rdi, (%rsp)
    movq %rsi, 8(%rsp)
    leaq 16(%rsp), %rcx
    call fragscope_answer_dlsym
    movl %eax, %edx
    movq 16(%rsp), %rax
    movq (%rsp), %rdi
    movq 8(%rsp), %rsi
    addq $24, %rsp
    .cfi_adjust_cfa_offset -24
    testb %dl, %dl
    jz 1f
    ret
1:  movq fragscope_real_dlsym(%rip), %rax
    testq %rax, %rax
    jz 2f
    jmpq *%rax
2:  subq $24, %rsp
    .cfi_adjust_cfa_offset 24
    movq %rdi, (%rsp)
    movq %rsi, 8(%rsp)
    call fragscope_find_dlsym
    movq (%rsp), %rdi
    movq 8(%rsp), %rsi
    addq $24, %rsp
    .cfi_adjust_cfa_offset -24
    jmpq *%rax
3:  cmpb $'_', (%rsi)
    jne 1b
    cmpb $'Z', 1(%rsi)
    je 4b
    jmp 1b
    .cfi_endproc
    .size dlsym, .-dlsym
)");
#elif defined(__aarch64__)
asm(R"(
    .text
    .p2align 4
    .globl dlsym
    .type dlsym, %function
dlsym:
    .cfi_startproc
    hint #34
    cbz x1, 1f
    ldrb w9, [x1]
    cmp w9, #'c'
    b.ne 3f
    ldrb w9, [x1, #1]
    cmp w9, #'u'
    b.ne 1f
    ldrb w9, [x1, #2]
    sub w9, w9, #'A'
    cmp w9, #25
    b.ls 4f
    cmp w9, #('p' - 'A')
    b.ne 1f
4:  mov x2, x30
    sub sp, sp, #48
    .cfi_adjust_cfa_offset 48
    stp x0, x1, [sp]
    str x30, [sp, #16]
    add x3, sp, #24
    bl fragscope_answer_dlsym
    mov w9, w0
    ldr x10, [sp, #24]
    ldp x0, x1, [sp]
    ldr x30, [sp, #16]
    add sp, sp, #48
    .cfi_adjust_cfa_offset -48
    tst w9, #0xff
    b.eq 1f
    mov x0, x10
    ret
1:  adrp x16, fragscope_real_dlsym
    ldr x16, [x16, :lo12:fragscope_real_dlsym]
    cbz x16, 2f
    br x16
2:  sub sp, sp, #32
    .cfi_adjust_cfa_offset 32
    stp x0, x1, [sp]
    str x30, [sp, #16]
    bl fragscope_find_dlsym
    mov x16, x0
    ldp x0, x1, [sp]
    ldr x30, [sp, #16]
    add sp, sp, #32
    .cfi_adjust_cfa_offset -32
    br x16
3:  cmp w9, #'_'
    b.ne 1b
    ldrb w9, [x1, #1]
    cmp w9, #'Z'
    b.eq 4b
    b 1b
    .cfi_endproc
    .size dlsym, .-dlsym
)");
#else
#error "dlsym must be forwarded by a jump: write it for this machine"
#endif

namespace {

// The C library's own, past those of all other tools, which have no version. dlvsym is left alone by
// everybody, and this is why.
DlsymFunction libc_dlsym() {
    static constinit std::atomic<DlsymFunction> known{nullptr};
    DlsymFunction found = known.load(std::memory_order_relaxed);
    for (const char* version : {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"})
        if (found == nullptr) found = reinterpret_cast<DlsymFunction>(dlvsym(RTLD_NEXT, "dlsym", version));
    known.store(found, std::memory_order_relaxed);
    return found;
}

}  // namespace

// The dlsym that the program would have without us: the C library's, or one of a tool that stands after us.
DlsymFunction fragscope_find_dlsym() {
    const auto real = reinterpret_cast<DlsymFunction>(look_up_after_us("dlsym"));
    __atomic_store_n(&fragscope_real_dlsym, real, __ATOMIC_RELEASE);
    return real;
}

namespace {

DlsymFunction real_dlsym() {
    const DlsymFunction known = __atomic_load_n(&fragscope_real_dlsym, __ATOMIC_ACQUIRE);
    return known != nullptr ? known : fragscope_find_dlsym();
}

const link_map* map_of(const void* address) {
    Dl_info info;
    void* map = nullptr;
    return dladdr1(address, &info, &map, RTLD_DL_LINKMAP) != 0 ? static_cast<const link_map*>(map) : nullptr;
}

// Whether object `a` is searched before object `b`, by the order of loading.
bool comes_before(const link_map* a, const link_map* b) {
    for (const link_map* map = a; map != nullptr; map = map->l_next)
        if (map == b) return a != b;
    return false;
}

// The program keeps pointers into the driver beyond dlclose() of it, as do we from here on.
void keep_driver_loaded() {
    static constinit std::atomic<bool> kept{false};
    if (kept.exchange(true)) return;
    char path[1024];
    driver_path(path, sizeof path);
    dlopen(path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

// In the scope of a library that was opened with RTLD_LOCAL: itself and what it needs. Not seen is what only the library needs
// that this one was opened for.
void* look_up_beside(const link_map* library, const char* name) {
    if (library == nullptr || std::strchr(library->l_name, '/') == nullptr) return nullptr;
    void* handle = dlopen(library->l_name, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) return nullptr;
    void* found = libc_dlsym()(handle, name);
    dlclose(handle);
    return found;
}

void count(std::atomic<std::uint64_t>& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

// RTLD_NEXT of those ahead of us would find our export even if there is no such function without us. With nothing
// between them and us but the vdso, which has no file, what is found behind us tells.
bool right_ahead(const link_map* them, const link_map* us) {
    const link_map* next = them->l_next;
    while (next != nullptr && next != us && std::strchr(next->l_name, '/') == nullptr) next = next->l_next;
    return next == us;
}

// dlsym(RTLD_NEXT, name) of somebody else. False: the jump gives the right answer.
bool answer_next(const char* name, const void* caller, void** result) {
    const link_map* us = map_of(reinterpret_cast<const void*>(&fragscope_find_dlsym));
    const link_map* them = map_of(caller);
    if (us == nullptr || them == nullptr || in_driver(caller) || !is_row(name)) return false;
    if (comes_before(us, them)) {
        // One of those that our wrapper calls, or behind one: what they get is what they call when they were
        // called.
        if (find_driver() && others_stand_between() && !in_driver(next_of(name))) return false;
        // Behind us, past our exports: they would get the driver's own function.
        if (!find_driver()) return false;
        void* after_us = look_up_after_us(name);
        // The order of loading is that of the search only for what was there from the start.
        if (!in_driver(after_us) || !comes_before(them, map_of(after_us))) after_us = look_up_beside(them, name);
        if (!in_driver(after_us)) return false;
        *result = answer(after_us, caller);
        return true;
    }
    if (!right_ahead(them, us)) return false;
    void* after_us = look_up_after_us(name);
    if (after_us != nullptr && !is_missing(name)) return false;
    *result = after_us;
    return true;
}

bool answer_handle(void* handle, const char* name, const void* caller, void** result) {
    // Whose default scope is meant, the return address tells: besides the global one it has the caller's own, if that was
    // opened with RTLD_LOCAL. Only what we export needs more than the jump.
    if (handle == RTLD_DEFAULT && !is_row(name)) return false;
    void* found = real_dlsym()(handle, name);
    if (found != nullptr && is_wrapper(found)) {
        // Our export, found in the global scope: only as true as what would be found there without it.
        void* after_us = look_up_after_us(name);
        if (after_us == nullptr || is_missing(name)) found = after_us;
        if (found == nullptr && handle == RTLD_DEFAULT) found = look_up_beside(map_of(caller), name);
    }
    if (found != nullptr && !is_wrapper(found)) {
        found = answer(found, caller);
        if (driver_found() && is_wrapper(found)) keep_driver_loaded();
    }
    *result = found;
    return true;
}

// A function of frameworks.def. False: the jump gives the right answer.
bool answer_framework(void* handle, const char* name, const void* caller, void** result) {
    if (handle == RTLD_NEXT) {
        const link_map* us = map_of(reinterpret_cast<const void*>(&fragscope_find_dlsym));
        const link_map* them = map_of(caller);
        if (us == nullptr || them == nullptr || !right_ahead(them, us)) return false;
        *result = nullptr;
        return look_up_after_us(name) == nullptr;
    }
    void* found = real_dlsym()(handle, name);
    if (found != nullptr && is_framework_wrapper(found)) {
        found = look_up_after_us(name);
        if (found == nullptr && handle == RTLD_DEFAULT) found = look_up_beside(map_of(caller), name);
    }
    *result = substitute_framework(name, found);
    return true;
}

}  // namespace

void* look_up_in_scope_of(const void* caller, const char* name) { return look_up_beside(map_of(caller), name); }

void* look_up_as_asked(void* handle, const char* name) { return real_dlsym()(handle, name); }

// By the C library's own dlsym: another tool's would give its own answers, seen from its own place.
void* look_up_after_us(const char* name) { return libc_dlsym()(RTLD_NEXT, name); }

void* answer(void* found, const void* caller) {
    // The driver's own look-ups stay the driver's own.
    if (!find_driver() || in_driver(caller) || in_cupti(caller)) return found;
    note_caller(caller);
    void* ours = in_driver(found) || others_stand_between() ? substitute(found) : found;
    if (!in_driver(found) && ours == found) return found;
    // So do those of a library that stands behind us with functions of the same names: what it gets is what
    // it calls when our wrapper has called it.
    if (ours != found && in_other(caller)) return found;
    if (attach()) {
        count(session.slot->lookups);
        if (ours != found)
            count(session.slot->lookups_hooked);
        else if (!is_driver_export(found))
            count(session.slot->lookups_unmatched);
    }
    return ours;
}

void found_nothing(const void* caller) {
    if (find_driver() && !in_driver(caller) && attach()) count(session.slot->lookups);
}

bool fragscope_answer_dlsym(void* handle, const char* name, const void* caller, void** result) {
    // What is looked up while a wrapper is at work is the driver's or the shim's own affair.
    if (thread_state.inside()) return false;
    if (name[0] != 'c' && !is_framework_row(name)) return false;
    const int saved = errno;
    const bool answered =
        name[0] != 'c'      ? answer_framework(handle, name, caller, result)
        : name[2] == 'p'    ? answer_cupti(handle, name, caller, result)
        : handle == RTLD_NEXT ? answer_next(name, caller, result) : answer_handle(handle, name, caller, result);
    errno = saved;
    return answered;
}

}  // namespace fragscope::interpose
