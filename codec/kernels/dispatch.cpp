// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdlib>
#include <vector>

#include "codec/kernels/kernel_set.hpp"
#include "codec/kernels/levels.hpp"

namespace weft::codec {

namespace {

bool machine_has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
#else
  return false;
#endif
}

bool machine_has_avx512() {
#if defined(__x86_64__)
  return machine_has_avx2() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vpopcntdq");
#else
  return false;
#endif
}

std::vector<const KernelSet*> list_available() {
  std::vector<const KernelSet*> sets{&kernel::kScalarKernels};
#if defined(__x86_64__)
  if (machine_has_avx2()) sets.push_back(&kernel::kAvx2Kernels);
  if (machine_has_avx512()) sets.push_back(&kernel::kAvx512Kernels);
#endif
  return sets;
}

const KernelSet& choose() {
  if (const char* wanted = std::getenv("WEFT_KERNELS"); wanted != nullptr) {
    if (const KernelSet* found = find_kernels(wanted); found != nullptr) return *found;
  }
  return *available_kernels().back();
}

}  // namespace

const KernelSet& kernels() {
  static const KernelSet& chosen = choose();
  return chosen;
}

std::span<const KernelSet* const> available_kernels() {
  static const std::vector<const KernelSet*> sets = list_available();
  return sets;
}

const KernelSet* find_kernels(std::string_view name) {
  for (const KernelSet* set : available_kernels()) {
    if (set->name == name) return set;
  }
  return nullptr;
}

}  // namespace weft::codec
