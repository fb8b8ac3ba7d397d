// SPDX-License-Identifier: Apache-2.0
// Frames that earlier builds wrote must be readable for ever (tests/golden).
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "codec/decode/decode_chunk.hpp"
#include "codec/frame/frame_view.hpp"
#include "golden/golden_values.hpp"
#include "support/memory_checkpoint.hpp"

namespace weft::codec {
namespace {

class GoldenFrames : public ::testing::TestWithParam<std::uint8_t> {};

TEST_P(GoldenFrames, OfVersionOneDecode) {
  const auto type = static_cast<wire::ChunkType>(GetParam());
  const auto frame =
      test_support::read_file(std::filesystem::path(WEFT_SOURCE_DIR) / "tests" / "golden" /
                              ("frame-v1-" + std::string(wire::to_string(type)) + ".bin"));
  const FleetId fleet{{0x0123'4567'89AB'CDEF, 0xFEDC'BA98'7654'3210}};
  const RefitId refit{{7, ProcessId{0x1122'3344'5566'7788}}, 3};
  const auto view = FrameView::open(frame, {fleet, refit, nullptr, ProducerIndex{2}, true});
  ASSERT_TRUE(view) << view.error().message();
  EXPECT_EQ(view->header().sequence, GetParam());
  EXPECT_EQ(view->header().lattice(), (Digest{{0xA5A5, 0x5A5A}}));
  EXPECT_EQ(view->chunk_count(), type == wire::ChunkType::kClassed ? 3U : 6U);
  DecodeWorkspace workspace;
  for (std::uint32_t i = 0; i < view->chunk_count(); ++i) {
    const wire::IndexEntry& entry = view->entries()[i];
    EXPECT_EQ(entry.type, type);
    const golden::GoldenKind& kind = golden::kGoldenKinds[entry.chunk.value];
    const auto chunk = golden::golden_chunk(kind.dtype, kind.element_count, entry.chunk.value + 1);
    for (const KernelSet* set : available_kernels()) {
      std::vector<std::byte> new_bytes(chunk.old_bytes.size());
      const auto status = decode_chunk({entry, view->payload(i), chunk.old_bytes,
                                        element_format(kind.dtype), std::nullopt, true, set},
                                       workspace, new_bytes);
      ASSERT_TRUE(status) << status.error().message();
      EXPECT_EQ(new_bytes, chunk.new_bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenFrames, ::testing::Range(std::uint8_t{1}, std::uint8_t{8}));

}  // namespace
}  // namespace weft::codec
