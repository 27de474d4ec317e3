"""A CUDA client for the end-to-end tests: does what its arguments say, one after the other, through ctypes.

alloc:N     cuMemAlloc of 64 KiB, N times; they are kept
refused     cuMemAlloc without cuInit before it, which the driver refuses
toomuch     cuMemAlloc of 1 TiB, which the driver has not
churn:N     cuMemAlloc and cuMemFree, N times
say:TEXT    TEXT and a line break to stdout
copy        stdin to stdout, all of it
wait        until a line comes on stdin
catch:N:C   from here on signal N prints "caught N" and ends the program with status C
die:N       from here on signal N ends the program as it does most programs, not as Python would have it
sleep       for ever
closeall    every descriptor from 3 on
closed      prints which of the descriptors 0, 1, 2 are closed
fork:A,B    a child that does A and B; the parent waits for it
orphan:A,B  a child that does A and B; the parent does not wait
threads:N   N threads, one after the other, each with one cuMemAlloc and cuMemFree
together:N  N threads that are there at the same time, each with one cuMemAlloc and cuMemFree
exec:A,B    becomes a new client that does A and B
exit:N, kill:N
"""
import ctypes
import os
import signal
import sys
import threading

DRIVER = []
KEPT = []


def flush():
    if sys.stdout is not None:  # None where descriptor 1 was closed from the start
        sys.stdout.flush()


def driver():
    if not DRIVER:
        lib = ctypes.CDLL("libcuda.so.1")
        assert lib.cuInit(0) == 0
        context = ctypes.c_void_p()
        assert lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert lib.cuCtxSetCurrent(context) == 0
        DRIVER.append(lib)
    return DRIVER[0]


def allocate():
    pointer = ctypes.c_uint64()
    assert driver().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(65536)) == 0
    return pointer


def allocate_and_free(barrier=None):
    context = ctypes.c_void_p()
    assert driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver().cuCtxSetCurrent(context) == 0
    pointer = allocate()
    if barrier is not None:
        barrier.wait()
    assert driver().cuMemFree_v2(pointer) == 0


def child(words):
    DRIVER.clear()
    run(words)
    flush()
    os._exit(0)


def run(words):
    for word in words:
        name, _, rest = word.partition(":")
        if name == "alloc":
            KEPT.extend(allocate() for _ in range(int(rest)))
        elif name == "refused":
            pointer = ctypes.c_uint64()
            result = ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(65536))
            assert result == 3, result
        elif name == "toomuch":
            pointer = ctypes.c_uint64()
            assert driver().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 40)) == 2
        elif name == "churn":
            for _ in range(int(rest)):
                assert driver().cuMemFree_v2(allocate()) == 0
        elif name == "say":
            print(rest, flush=True)
        elif name == "copy":
            sys.stdout.buffer.write(sys.stdin.buffer.read())
            flush()
        elif name == "wait":
            sys.stdin.readline()
        elif name == "catch":
            number, status = map(int, rest.split(":"))

            def caught(signum, _frame, status=status):
                os.write(1, f"caught {signum}\n".encode())
                # A second one that came along with it would be a second delivery of the same Ctrl-C.
                again = signal.sigtimedwait([signum], 0.3)
                os.write(1, b"twice\n" if again else b"once\n")
                os._exit(status)

            signal.signal(number, caught)
        elif name == "die":
            signal.signal(int(rest), signal.SIG_DFL)
        elif name == "sleep":
            while True:
                signal.pause()
        elif name == "closeall":
            os.closerange(3, 4096)
        elif name == "closed":
            for fd in (0, 1, 2):
                try:
                    os.fstat(fd)
                except OSError:
                    os.write(int(os.environ["REPORT_FD"]), b"%d" % fd)
        elif name in ("fork", "orphan"):
            pid = os.fork()
            if pid == 0:
                child(rest.split(","))
            if name == "fork":
                assert os.waitpid(pid, 0)[1] == 0
        elif name == "threads":
            driver()
            for _ in range(int(rest)):
                thread = threading.Thread(target=allocate_and_free)
                thread.start()
                thread.join()
        elif name == "together":
            driver()
            all_are_there = threading.Barrier(int(rest))
            threads = [threading.Thread(target=allocate_and_free, args=[all_are_there]) for _ in range(int(rest))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        elif name == "exec":
            flush()
            os.execv(sys.executable, [sys.executable, __file__, *rest.split(",")])
        elif name == "exit":
            flush()
            os._exit(int(rest))
        elif name == "kill":
            flush()
            os.kill(os.getpid(), int(rest))
        else:
            raise SystemExit(f"unknown word {word}")


run(sys.argv[1:])
