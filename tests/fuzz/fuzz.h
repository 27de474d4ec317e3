// A fuzz target: one function that takes any bytes and must come back, with nothing broken. loop.cpp drives it here;
// libFuzzer may instead (clang++ -fsanitize=fuzzer without loop.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
