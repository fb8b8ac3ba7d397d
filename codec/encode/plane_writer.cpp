// SPDX-License-Identifier: Apache-2.0
#include "codec/encode/plane_writer.hpp"

#define ZSTD_STATIC_LINKING_ONLY  // for ZSTD_c_literalCompressionMode
#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "weft/base/assert.hpp"
#include "weft/wire/byte_io.hpp"

namespace weft::codec {

// Threads: one at a time.
struct PlaneWriter::Context {
  ZSTD_CCtx* zstd = ZSTD_createCCtx();
  Context() {
    WEFT_ASSERT(zstd != nullptr);  // out of memory
    // Planes of a difference have a skewed law and nothing to match: the lowest level finds
    // no matches and leaves the Huffman stage, which does all the good there is, forced on.
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, ZSTD_minCLevel());
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_contentSizeFlag, 0);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { ZSTD_freeCCtx(zstd); }
};

PlaneWriter::PlaneWriter() : context_(std::make_unique<Context>()) {}
PlaneWriter::~PlaneWriter() = default;
PlaneWriter::PlaneWriter(PlaneWriter&&) noexcept = default;
PlaneWriter& PlaneWriter::operator=(PlaneWriter&&) noexcept = default;

std::byte* PlaneWriter::write(std::span<const std::byte> plane, std::byte* to) {
  constexpr std::size_t kCompressMin = 64;  // below, a zstd frame cannot win
  const bool filled =
      !plane.empty() && std::all_of(plane.begin(), plane.end(),
                                    [&plane](std::byte byte) { return byte == plane.front(); });
  if (filled) {
    to[0] = static_cast<std::byte>(PlaneForm::kFilled);
    to[1] = plane.front();
    return to + 2;
  }
  if (plane.size() >= kCompressMin) {
    const std::size_t room = plane.size() - 8;
    const std::size_t size =
        ZSTD_compress2(context_->zstd, to + 5, room, plane.data(), plane.size());
    if (!ZSTD_isError(size)) {
      to[0] = static_cast<std::byte>(PlaneForm::kZstd);
      wire::store_le(to + 1, static_cast<std::uint32_t>(size));
      return to + 5 + size;
    }
  }
  to[0] = static_cast<std::byte>(PlaneForm::kStored);
  if (!plane.empty()) std::memcpy(to + 1, plane.data(), plane.size());
  return to + 1 + plane.size();
}

}  // namespace weft::codec
