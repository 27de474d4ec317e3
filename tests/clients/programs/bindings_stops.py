"""Clients that embed NVIDIA's runtime, as a JSON line with its version and the errors that its calls end with.

    runtime   cuda.bindings.runtime
    cupy      CuPy's memory pool, and its pool that is one of the driver's
"""
import json
import sys


def runtime():
    from cuda.bindings import runtime as cudart

    return cudart.cudaRuntimeGetVersion()[1], [int(cudart.cudaMalloc(4096)[0])]


def cupy():
    import cupy

    errors = []
    for pool in (cupy.cuda.MemoryPool, cupy.cuda.MemoryAsyncPool):
        try:
            pool().malloc(4096)
            errors.append(0)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            errors.append(error.status)
    return cupy.cuda.runtime.runtimeGetVersion(), errors


version, errors = {"runtime": runtime, "cupy": cupy}[sys.argv[1]]()
print(json.dumps({"version": version, "errors": errors}))
