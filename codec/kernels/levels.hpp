// SPDX-License-Identifier: Apache-2.0
// The kernel sets that were built. Only dispatch.cpp chooses among them.
#pragma once

#include "codec/kernels/kernel_set.hpp"

namespace weft::codec::kernel {

extern const KernelSet kScalarKernels;
#if defined(__x86_64__)
extern const KernelSet kAvx2Kernels;    // needs AVX2, BMI1, BMI2, LZCNT, POPCNT
extern const KernelSet kAvx512Kernels;  // needs also AVX-512 F, BW, VL, DQ, VBMI2, VPOPCNTDQ
#endif

}  // namespace weft::codec::kernel
