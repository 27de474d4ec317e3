// What copies need to know about CUDA arrays.
#pragma once

#include <cuda_runtime_api.h>

#include "state.h"

namespace fragscope::simrt {

// A runtime array handle is the driver's handle under another type.
inline CUarray to_driver_array(cudaArray_t array) { return reinterpret_cast<CUarray>(array); }
inline CUarray* to_driver_array(cudaArray_t* array) { return reinterpret_cast<CUarray*>(array); }

// The driver's description of an array; false when the channels fit no format. The flags have the same values.
bool describe_array(const cudaChannelFormatDesc* desc, cudaExtent extent, unsigned flags,
                    CUDA_ARRAY3D_DESCRIPTOR* result);

// Bytes of one element (all channels). Records its failure.
cudaError_t array_element_bytes(cudaArray_const_t array, size_t* bytes);

}  // namespace fragscope::simrt
