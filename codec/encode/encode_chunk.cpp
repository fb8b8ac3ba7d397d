// SPDX-License-Identifier: Apache-2.0
#include "codec/encode/encode_chunk.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "codec/bits/exp_golomb.hpp"
#include "codec/encode/change_stats.hpp"
#include "codec/encode/class_choice.hpp"
#include "codec/encode/encode_workspace.hpp"
#include "codec/encode/write_chunk.hpp"
#include "weft/base/assert.hpp"
#include "weft/base/limits.hpp"
#include "weft/wire/digest.hpp"

namespace weft::codec {

namespace {

using wire::ChunkType;

constexpr std::uint32_t kClassesDefault = 6;
constexpr std::uint32_t kClassedElementsMin = 64;  // below, classes cannot pay

// What every type would cost, from the counts alone.
// Threads: a value; one at a time.
struct Costs {
  ChunkType type = ChunkType::kRaw;
  double ideal_bits = 0;
  ClassChoice classes;
  std::uint32_t sparse_order = 0;
  std::uint32_t xor_order = 0;
};

// Order-0 entropy of the byte planes of the differences, from a sample.
double planes_bits(const ChunkInput& input, std::uint32_t element_count) {
  constexpr std::uint32_t kSampleMax = 4096;
  const std::size_t size = input.format.element_bytes;
  const std::uint32_t stride = std::max(1U, element_count / kSampleMax);
  std::uint32_t counts[8][256] = {};
  std::uint32_t sampled = 0;
  for (std::uint32_t i = 0; i < element_count; i += stride, ++sampled) {
    std::uint64_t before = 0;
    std::uint64_t after = 0;
    std::memcpy(&before, input.old_bytes.data() + i * size, size);
    std::memcpy(&after, input.new_bytes.data() + i * size, size);
    const auto top = static_cast<std::uint32_t>(64 - 8 * size);
    const auto step = static_cast<std::int64_t>((after - before) << top) >> top;
    const auto zigzag =
        (static_cast<std::uint64_t>(step) << 1) ^ static_cast<std::uint64_t>(step >> 63);
    for (std::size_t p = 0; p < size; ++p) ++counts[p][(zigzag >> (8 * p)) & 0xFF];
  }
  double bits = 0;
  for (std::size_t p = 0; p < size; ++p) {
    for (const std::uint32_t count : counts[p]) {
      if (count != 0) bits += count * std::log2(static_cast<double>(sampled) / count);
    }
    bits += 1000;  // a code table
  }
  return bits * element_count / sampled;
}

// Steps say more than masks wherever there is an exponent field.
bool wants_masks(const ChangedChunk& chunk, const EncodeChoice& choice) {
  return choice.force == ChunkType::kXor || chunk.input.format.exponent_bits == 0;
}

Costs choose_type(const ChangedChunk& chunk, const EncodeChoice& choice, ChangeStats& stats) {
  Costs costs;
  const ElementFormat& format = chunk.input.format;
  const bool wide = format.element_bytes > 2;
  const bool may_class = format.exponent_bits != 0;
  const double m = chunk.changed_count;
  const double positions = choose_sequence(chunk.changed_count, chunk.element_count).bits;
  const double sparse = 5 + positions + m +
                        choose_sequence(stats.exception_count, chunk.changed_count).bits +
                        golomb_bits(stats.magnitude_widths, costs.sparse_order);
  double best = 8.0 * (static_cast<double>(chunk.input.new_bytes.size()) + format.element_bytes);
  const auto consider = [&](ChunkType type, double bits) {
    if (bits < best) {
      best = bits;
      costs.type = type;
    }
  };
  consider(ChunkType::kSparse, sparse);
  if (wants_masks(chunk, choice)) {
    consider(ChunkType::kXor, 5 + positions + golomb_bits(stats.mask_widths, costs.xor_order));
  }
  costs.ideal_bits = best;
  const bool wants_classes = choice.force == ChunkType::kClassed ||
                             (!choice.force && chunk.element_count >= kClassedElementsMin);
  if (may_class && wants_classes) {
    sample_exponents(chunk.input.old_bytes, format, stats);
    costs.classes = choose_classes(stats, format, kClassesDefault);
    consider(ChunkType::kClassed, costs.classes.bits);
    costs.ideal_bits = costs.classes.ideal_bits;
  }
  // Only where most elements changed can the differences of all of them be the shorter list.
  if (wide && !choice.force && chunk.changed_count > chunk.element_count / 8) {
    consider(ChunkType::kPlanes, planes_bits(chunk.input, chunk.element_count));
  }
  if (choice.profile == Profile::kFast && costs.type != ChunkType::kRaw &&
      costs.type != ChunkType::kPlanes) {
    costs.type = ChunkType::kBytes;
  }
  if (choice.force) costs.type = *choice.force;
  return costs;
}

std::byte* write_payload(const ChangedChunk& chunk, const Costs& costs, const ChangeStats& stats) {
  switch (costs.type) {
    case ChunkType::kClassed:
      return write_classed(chunk, costs.classes, stats);
    case ChunkType::kSparse:
      return write_sparse(chunk, costs.sparse_order);
    case ChunkType::kXor:
      return write_xor(chunk, costs.xor_order);
    case ChunkType::kOverwrite:
      return write_overwrite(chunk);
    case ChunkType::kPlanes:
      return write_planes(chunk);
    case ChunkType::kBytes:
      return write_bytes(chunk);
    case ChunkType::kSame:
    case ChunkType::kRaw:
      break;
  }
  return write_raw(chunk);
}

Status check_input(const ChunkInput& input, const EncodeChoice& choice) {
  const std::size_t size = input.new_bytes.size();
  const std::uint32_t element_bytes = input.format.element_bytes;
  if (size == 0 || size > limits::kChunkBytesMax || size % element_bytes != 0 ||
      size / element_bytes > limits::kChunkElementsMax ||
      (input.old_bytes.size() != size && !(choice.full && input.old_bytes.empty()))) {
    return failure(ErrorCode::kConfig, Stage::kEncode,
                   "chunk of " + std::to_string(size) + " bytes, old " +
                       std::to_string(input.old_bytes.size()));
  }
  if (choice.force == ChunkType::kSame ||
      (choice.force == ChunkType::kClassed && input.format.exponent_bits == 0)) {
    return failure(ErrorCode::kUnsupported, Stage::kEncode,
                   std::string("chunk type ") + wire::to_string(*choice.force) +
                       " cannot be forced on these elements");
  }
  return ok();
}

}  // namespace

EncodeWorkspace::EncodeWorkspace() : lists_(std::make_unique<Lists>()) {}
EncodeWorkspace::~EncodeWorkspace() = default;
EncodeWorkspace::EncodeWorkspace(EncodeWorkspace&&) noexcept = default;
EncodeWorkspace& EncodeWorkspace::operator=(EncodeWorkspace&&) noexcept = default;

Result<EncodedChunk> encode_chunk(const ChunkInput& input, const EncodeChoice& choice,
                                  EncodeWorkspace& workspace) {
  WEFT_TRY_STATUS(check_input(input, choice));
  EncodeWorkspace::Lists& lists = workspace.lists();
  const std::uint32_t element_bytes = input.format.element_bytes;
  ChangedChunk chunk{input, choice.kernel_set != nullptr ? *choice.kernel_set : kernels(), lists,
                     static_cast<std::uint32_t>(input.new_bytes.size() / element_bytes), 0};
  EncodedChunk encoded;
  if (choice.with_hash) encoded.new_digest = wire::digest64(input.new_bytes);
  std::byte* end = lists.out.get();
  if (choice.full) {
    encoded.type = ChunkType::kRaw;
    encoded.changed_count = chunk.element_count;
    end = write_raw(chunk);
  } else {
    chunk.changed_count =
        chunk.kernels.scan(input.old_bytes.data(), input.new_bytes.data(), chunk.element_count,
                           element_bytes, lists.positions.get());
    if (chunk.changed_count == 0) return encoded;
    ChangeStats stats;
    gather_changes(input.old_bytes, input.new_bytes, input.format, lists.positions.get(),
                   chunk.changed_count, wants_masks(chunk, choice), lists.flags.get(),
                   lists.indices.get(), stats);
    const Costs costs = choose_type(chunk, choice, stats);
    encoded.type = costs.type;
    encoded.changed_count = chunk.changed_count;
    encoded.ideal_bits = costs.ideal_bits;
    end = write_payload(chunk, costs, stats);
    if (end > lists.out.get() + input.new_bytes.size() && encoded.type != ChunkType::kRaw) {
      encoded.type = ChunkType::kRaw;
      end = write_raw(chunk);
    }
  }
  encoded.payload = {lists.out.get(), static_cast<std::size_t>(end - lists.out.get())};
  WEFT_ASSERT(encoded.payload.size() <=
              payload_bytes_max(static_cast<std::uint32_t>(input.new_bytes.size())));
  return encoded;
}

}  // namespace weft::codec
