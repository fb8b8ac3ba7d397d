// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
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

// Names of all sets there are, whatever the machine.
constexpr std::string_view kNames[] = {"scalar", "avx2", "avx512"};

const Result<const KernelSet*>& chosen() {
  static const Result<const KernelSet*> set = choose_kernels(std::getenv("WEFT_KERNELS"));
  return set;
}

}  // namespace

Result<const KernelSet*> choose_kernels(const char* name) {
  if (name == nullptr || *name == '\0') return available_kernels().back();
  if (const KernelSet* found = find_kernels(name); found != nullptr) return found;
  std::string can;
  for (const KernelSet* set : available_kernels()) {
    can += (can.empty() ? "" : ", ") + std::string(set->name);
  }
  const bool known = std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
  return failure(ErrorCode::kConfig, Stage::kConfig,
                 std::string("WEFT_KERNELS=") + name +
                     (known ? ": this machine lacks the instructions; it can run "
                            : ": not a set of kernels; this machine can run ") +
                     can);
}

const KernelSet& kernels() { return chosen() ? **chosen() : *available_kernels().back(); }

const Status& kernels_status() {
  static const Status status = chosen() ? ok() : Status(chosen().error());
  return status;
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
