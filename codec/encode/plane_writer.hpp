// SPDX-License-Identifier: Apache-2.0
// Byte planes: one byte of every word side by side, each plane stored, filled or compressed. The
// layout is in docs/formats/frame.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace weft::codec {

enum class PlaneForm : std::uint8_t { kStored = 0, kFilled = 1, kZstd = 2 };

// A compressed plane is taken only where it is smaller than the stored one.
// Owns:    a zstd context; memory of zstd's, about 1 MiB.
// Threads: one at a time.
class PlaneWriter {
 public:
  PlaneWriter();
  ~PlaneWriter();
  PlaneWriter(PlaneWriter&&) noexcept;
  PlaneWriter& operator=(PlaneWriter&&) noexcept;

  // Writes one plane behind `to`, which has room for plane.size() + 8 bytes; returns the end.
  std::byte* write(std::span<const std::byte> plane, std::byte* to);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace weft::codec
