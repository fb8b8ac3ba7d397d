// SPDX-License-Identifier: Apache-2.0
// Chunks and payloads that lie against memory that nobody may touch. Sanitizers do not see what
// masked loads and stores of the wide kernels reach; the processor does.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "chunk_cases.hpp"
#include "codec/decode/decode_chunk.hpp"
#include "codec/encode/encode_chunk.hpp"
#include "weft/wire/digest.hpp"

namespace weft::codec {
namespace {

using testing::ChunkPair;
using wire::ChunkType;

// Whole pages between two that may be neither read nor written.
// Threads: one at a time.
class FencedPages {
 public:
  explicit FencedPages(std::size_t bytes_max)
      : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))),
        room_((bytes_max + page_ - 1) / page_ * page_),
        start_(static_cast<std::byte*>(
            ::mmap(nullptr, room_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    const int opened = ::mprotect(start_ + page_, room_, PROT_READ | PROT_WRITE);
    EXPECT_EQ(opened, 0);
  }
  ~FencedPages() { ::munmap(start_, room_ + 2 * page_); }
  FencedPages(const FencedPages&) = delete;
  FencedPages& operator=(const FencedPages&) = delete;

  std::span<std::byte> at_start(std::size_t bytes) { return {start_ + page_, bytes}; }
  std::span<std::byte> at_end(std::size_t bytes) { return {start_ + page_ + room_ - bytes, bytes}; }

 private:
  std::size_t page_;
  std::size_t room_;
  std::byte* start_;
};

class MemoryEdge : public ::testing::TestWithParam<const KernelSet*> {
 protected:
  static std::span<std::byte> place(FencedPages& pages, std::size_t bytes, bool at_end) {
    return at_end ? pages.at_end(bytes) : pages.at_start(bytes);
  }

  // Old, new and arrived bytes and the payload all end, or all begin, at a fence.
  void round_trip(const ChunkPair& pair, ChunkType type, bool at_end) {
    const std::size_t bytes = pair.old_bytes.size();
    const auto old_bytes = place(old_, bytes, at_end);
    const auto new_bytes = place(new_, bytes, at_end);
    std::memcpy(old_bytes.data(), pair.old_bytes.data(), bytes);
    std::memcpy(new_bytes.data(), pair.new_bytes.data(), bytes);
    EncodeChoice choice;
    choice.kernel_set = GetParam();
    choice.force = type;
    const auto coded = encode_chunk({old_bytes, new_bytes, pair.format}, choice, encoder_);
    ASSERT_TRUE(coded) << pair.name;
    if (coded->type == ChunkType::kSame) return;
    const auto payload = place(payload_, coded->payload.size(), at_end);
    if (!payload.empty()) {
      std::memcpy(payload.data(), coded->payload.data(), payload.size());
    }
    const auto arrived = place(arrived_, bytes, at_end);
    std::memset(arrived.data(), 0xEE, bytes);
    const wire::IndexEntry entry{{0},
                                 coded->type,
                                 static_cast<std::uint32_t>(payload.size()),
                                 coded->changed_count,
                                 coded->new_digest};
    const auto read =
        decode_chunk({entry, payload, old_bytes, pair.format, std::nullopt, true, GetParam()},
                     decoder_, arrived);
    ASSERT_TRUE(read) << pair.name << ": " << read.error().message();
    ASSERT_EQ(std::memcmp(arrived.data(), pair.new_bytes.data(), bytes), 0) << pair.name;
  }

  static constexpr std::size_t kRoom = 64 * 1024;
  FencedPages old_{kRoom};
  FencedPages new_{kRoom};
  FencedPages arrived_{kRoom};
  FencedPages payload_{kRoom};
  EncodeWorkspace encoder_;
  DecodeWorkspace decoder_;
};

TEST_P(MemoryEdge, NoByteBesideChunkOrPayloadIsTouched) {
  for (const DType dtype : {DType::kU8, DType::kF8E4M3, DType::kF16, DType::kBF16, DType::kI16,
                            DType::kF32, DType::kC64}) {
    for (const std::uint32_t count : {1U, 3U, 31U, 33U, 63U, 65U, 127U, 129U, 4095U, 4097U}) {
      for (const double density : {0.02, 0.5, 1.0}) {
        const ChunkPair pair = testing::random_changes(dtype, count, density, count);
        for (int type = 1; type < wire::kChunkTypeCount; ++type) {
          if (static_cast<ChunkType>(type) == ChunkType::kClassed &&
              pair.format.exponent_bits == 0) {
            continue;
          }
          for (const bool at_end : {false, true}) {
            round_trip(pair, static_cast<ChunkType>(type), at_end);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MemoryEdge, ::testing::ValuesIn(available_kernels()),
                         [](const auto& set) { return std::string(set.param->name); });

}  // namespace
}  // namespace weft::codec
