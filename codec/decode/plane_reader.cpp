// SPDX-License-Identifier: Apache-2.0
#include "codec/decode/plane_reader.hpp"

#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "codec/encode/plane_writer.hpp"
#include "weft/base/assert.hpp"
#include "weft/wire/byte_io.hpp"

namespace weft::codec {

// Threads: one at a time.
struct PlaneReader::Context {
  ZSTD_DCtx* zstd = ZSTD_createDCtx();
  Context() { WEFT_ASSERT(zstd != nullptr); }  // out of memory
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { ZSTD_freeDCtx(zstd); }
};

PlaneReader::PlaneReader() : context_(std::make_unique<Context>()) {}
PlaneReader::~PlaneReader() = default;
PlaneReader::PlaneReader(PlaneReader&&) noexcept = default;
PlaneReader& PlaneReader::operator=(PlaneReader&&) noexcept = default;

bool PlaneReader::read(std::span<const std::byte>& bytes, std::span<std::byte> plane) {
  if (bytes.empty()) return false;
  const auto form = static_cast<PlaneForm>(bytes.front());
  bytes = bytes.subspan(1);
  if (form == PlaneForm::kStored) {
    if (bytes.size() < plane.size()) return false;
    std::copy_n(bytes.begin(), plane.size(), plane.begin());
    bytes = bytes.subspan(plane.size());
    return true;
  }
  if (form == PlaneForm::kFilled) {
    if (bytes.empty()) return false;
    std::fill(plane.begin(), plane.end(), bytes.front());
    bytes = bytes.subspan(1);
    return true;
  }
  if (form != PlaneForm::kZstd || bytes.size() < 4) return false;
  const auto size = wire::load_le<std::uint32_t>(bytes.data());
  bytes = bytes.subspan(4);
  if (size > bytes.size()) return false;
  // One call from whole input to whole output: zstd needs no window of its own and never writes
  // past plane.size().
  const std::size_t got =
      ZSTD_decompressDCtx(context_->zstd, plane.data(), plane.size(), bytes.data(), size);
  bytes = bytes.subspan(size);
  return ZSTD_isError(got) == 0U && got == plane.size();
}

}  // namespace weft::codec
