// SPDX-License-Identifier: Apache-2.0
// make_golden DIRECTORY: the golden frames of the current format version. Run once per version: a
// frame that was committed is never written again.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "codec/encode/encode_chunk.hpp"
#include "codec/frame/frame_builder.hpp"
#include "golden/golden_values.hpp"
#include "support/memory_slots.hpp"

int main(int count, char** arguments) {
  using namespace weft;
  if (count != 2) {
    std::fputs("usage: make_golden DIRECTORY\n", stderr);
    return 2;
  }
  codec::EncodeWorkspace workspace;
  for (std::uint8_t type = 1; type < wire::kChunkTypeCount; ++type) {
    test_support::MemorySlots slots(1);
    const codec::FrameIds ids{FleetId{{0x0123'4567'89AB'CDEF, 0xFEDC'BA98'7654'3210}},
                              RefitId{{7, ProcessId{0x1122'3344'5566'7788}}, 3},
                              Digest{{0xA5A5, 0x5A5A}},
                              {2}};
    codec::FrameBuilder builder(*slots.try_acquire(), ids, limits::kFrameBytesMax);
    codec::EncodeChoice choice;
    choice.force = static_cast<wire::ChunkType>(type);
    std::uint32_t number = 0;
    for (const golden::GoldenKind& kind : golden::kGoldenKinds) {
      const auto chunk = golden::golden_chunk(kind.dtype, kind.element_count, number + 1);
      const auto encoded = codec::encode_chunk(
          {chunk.old_bytes, chunk.new_bytes, codec::element_format(kind.dtype)}, choice, workspace);
      if (encoded) {
        builder.add({{number},
                     encoded->type,
                     static_cast<std::uint32_t>(encoded->payload.size()),
                     encoded->changed_count,
                     encoded->new_digest},
                    encoded->payload);
      }
      ++number;
    }
    const auto [slot, header] = std::move(builder).close({type});
    const std::filesystem::path path =
        std::filesystem::path(arguments[1]) /
        ("frame-v1-" + std::string(wire::to_string(*choice.force)) + ".bin");
    if (std::filesystem::exists(path)) continue;
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(slot.frame().data()),
              static_cast<std::streamsize>(slot.frame().size()));
  }
  return 0;
}
