"""A Python program under test: it allocates from many places and says on stdout, for each size, what Python itself sees of
the calling thread's frames: "lines BYTES", then "  FILE:LINE FUNCTION", innermost first.
Usage: lines.py DRIVER
"""
import ctypes
import functools
import sys
import threading

released = ctypes.CDLL(sys.argv[1])  # lets other threads run Python during a call
held = ctypes.PyDLL(sys.argv[1])     # keeps the interpreter
next_bytes = 0


def say(lib):
    """The size of the next allocation, after saying where it is asked for."""
    global next_bytes
    next_bytes += 1
    text = [f"lines {next_bytes}"]
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        text.append(f"  {code.co_filename}:{frame.f_lineno} {getattr(code, 'co_qualname', code.co_name)}")
        frame = frame.f_back
    print("\n".join(text), flush=True)
    return next_bytes


def allocate(lib):
    address = ctypes.c_uint64()
    # One line: what is said and what is called are at the same place.
    lib.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(say(lib)))


def nested(lib):
    def inner(depth):
        if depth == 0:
            allocate(lib)
        else:
            inner(depth - 1)

    inner(5)


def generator(lib):
    def steps():
        yield 1
        allocate(lib)
        yield 2

    return list(steps())


def delegating(lib):
    def inner():
        allocate(lib)
        yield 1

    def outer():
        yield from inner()

    for _ in outer():
        pass


def comprehension(lib):
    return [allocate(lib)
            for _ in range(2)]


def through_native(lib):
    # Python from C from Python: two evaluation loops.
    return sorted([2, 1], key=lambda value: allocate(lib) or value), list(map(lambda _: allocate(lib), [1]))


def partial(lib):
    functools.partial(functools.reduce, lambda a, b: allocate(lib))([1, 2])


class Thing:
    def __init__(self, lib):
        self.lib = lib

    def __enter__(self):
        allocate(self.lib)
        return self

    def __exit__(self, *_):
        allocate(self.lib)

    @property
    def value(self):
        allocate(self.lib)

    def __del__(self):
        allocate(self.lib)


def methods(lib):
    with Thing(lib) as thing:
        thing.value
    del thing


def handling(lib):
    try:
        raise ValueError
    except ValueError:
        allocate(lib)
    finally:
        allocate(lib)


def large(lib):
    # Lines far apart: long steps in the table.
    namespace = {"allocate": allocate, "lib": lib}
    source = "def far():\n" + "\n" * 5000 + "    x = 1\n" + "\n" * 300 + "    allocate(lib)\n"
    exec(compile(source, "far.py", "exec"), namespace)
    namespace["far"]()


def named(lib):
    namespace = {"allocate": allocate, "lib": lib}
    source = "def grün():\n    allocate(lib)\nclass Ж:\n    def 漢字(self): allocate(lib)\n"
    exec(compile(source, "dépôt/π.py", "exec"), namespace)
    namespace["grün"]()
    namespace["Ж"]().漢字()


async def waiting(lib):
    async def inner():
        allocate(lib)

    await inner()


def coroutine(lib):
    try:
        waiting(lib).send(None)
    except StopIteration:
        pass


def run(lib):
    for each in (nested, generator, delegating, comprehension, through_native, partial, methods, handling, large, named,
                 coroutine):
        each(lib)


held.cuInit(0)
context = ctypes.c_void_p()
held.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
held.cuCtxSetCurrent(context)
run(held)
run(released)
# Other threads run Python meanwhile.
sys.setswitchinterval(0.0001)
stop = False


def busy():
    while not stop:
        [x * x for x in range(100)]


others = [threading.Thread(target=busy) for _ in range(2)]
for other in others:
    other.start()


def in_thread():
    released.cuCtxSetCurrent(context)
    for _ in range(2):
        run(released)


worker = threading.Thread(target=in_thread)
worker.start()
worker.join()
stop = True
for other in others:
    other.join()
