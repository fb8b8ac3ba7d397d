// SPDX-License-Identifier: Apache-2.0
// The memory layout of DLPack (https://dmlc.github.io/dlpack), the structures that arrays of
// different libraries are handed over in: a capsule "dltensor" holds a DlManaged.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::python {

inline constexpr const char* kDlCapsule = "dltensor";
inline constexpr const char* kDlUsedCapsule = "used_dltensor";  // whoever takes it renames it

enum DlDeviceKind : std::int32_t { kDlCpu = 1, kDlCudaHost = 3 };
enum DlCode : std::uint8_t {
  kDlInt = 0,
  kDlUnsigned = 1,
  kDlFloat = 2,
  kDlBfloat = 4,
  kDlComplex = 5,
  kDlBool = 6,
};

struct DlType {
  std::uint8_t code = 0;
  std::uint8_t bits = 0;
  std::uint16_t lanes = 1;
};

struct DlArray {
  void* memory = nullptr;
  std::int32_t device_kind = kDlCpu;
  std::int32_t device_number = 0;
  std::int32_t rank = 0;
  DlType type;
  std::int64_t* shape = nullptr;
  std::int64_t* strides = nullptr;  // in elements; null: row-major without gaps
  std::uint64_t byte_offset = 0;
};

struct DlManaged {
  DlArray array;
  void* context = nullptr;
  void (*drop)(DlManaged*) = nullptr;
};
static_assert(sizeof(DlArray) == 48 && sizeof(DlManaged) == 64 && sizeof(void*) == 8);

}  // namespace weft::python
