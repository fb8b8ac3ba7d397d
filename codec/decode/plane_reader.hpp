// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace weft::codec {

// PlaneReader reads what PlaneWriter wrote, from a private copy of hostile bytes.
// Owns:    a zstd context; it allocates nothing that depends on what is read.
// Threads: one at a time.
class PlaneReader {
 public:
  PlaneReader();
  ~PlaneReader();
  PlaneReader(PlaneReader&&) noexcept;
  PlaneReader& operator=(PlaneReader&&) noexcept;

  // Fills `plane` from the front of `bytes` and takes what it read off them. False: not a plane of
  // exactly that size.
  bool read(std::span<const std::byte>& bytes, std::span<std::byte> plane);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace weft::codec
