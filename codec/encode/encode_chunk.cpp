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
// Classes are chosen when this much of a chunk is known, so that all else is one pass.
constexpr std::uint32_t kSampleElements = 16'384;
constexpr std::uint32_t kSampleChanges = 384;

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

std::byte* write_listed(const ChangedChunk& chunk, const Costs& costs) {
  switch (costs.type) {
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
    case ChunkType::kClassed:
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

// Positions of changes from `first` on, up to where stop(end, count) says that it is enough, or the
// chunk's end. Returns where it came to; chunk.changed_count goes on counting.
template <typename Stop>
std::uint32_t list_changes(ChangedChunk& chunk, std::uint32_t first, PieceHash& hash, Stop&& stop) {
  const std::uint32_t element_bytes = chunk.input.format.element_bytes;
  while (first < chunk.element_count) {
    const std::uint32_t end = std::min(first + kPassElements, chunk.element_count);
    chunk.changed_count += chunk.kernels.scan_range(
        chunk.input.old_bytes.data(), chunk.input.new_bytes.data(), first, end, element_bytes,
        chunk.lists.positions.get() + chunk.changed_count);
    hash.reach(std::size_t{end} * element_bytes);
    first = end;
    if (stop(end, chunk.changed_count)) break;
  }
  return first;
}

// What to send for the changes among the first `seen` elements, which are listed.
Costs choose_by(const ChangedChunk& chunk, const EncodeChoice& choice, std::uint32_t seen) {
  const std::size_t bytes = std::size_t{seen} * chunk.input.format.element_bytes;
  const ChunkInput sample{chunk.input.old_bytes.first(bytes), chunk.input.new_bytes.first(bytes),
                          chunk.input.format};
  const ChangedChunk part{sample, chunk.kernels, chunk.lists, seen, chunk.changed_count};
  ChangeStats stats;
  stats.share = static_cast<double>(seen) / chunk.element_count;
  const ChangeLists lists{chunk.lists.positions.get(), part.changed_count, chunk.lists.flags.get(),
                          chunk.lists.indices.get()};
  gather_changes(sample.old_bytes, sample.new_bytes, sample.format, lists,
                 wants_masks(part, choice), stats);
  return choose_type(part, choice, stats);
}

// Lists changes until the type is chosen; a `classed` chunk is then written in one pass that lists
// them by class. Returns the end of the payload.
std::byte* write_changes(ChangedChunk& chunk, const EncodeChoice& choice, PieceHash& hash,
                         EncodedChunk& encoded) {
  const bool may_sample = chunk.input.format.exponent_bits != 0 &&
                          choice.profile == Profile::kCompact &&
                          choice.force.value_or(ChunkType::kClassed) == ChunkType::kClassed;
  std::uint32_t seen =
      list_changes(chunk, 0, hash, [may_sample](std::uint32_t end, std::uint32_t count) {
        return may_sample && end >= kSampleElements && count >= kSampleChanges;
      });
  if (chunk.changed_count == 0) return chunk.lists.out.get();
  Costs costs = choose_by(chunk, choice, seen);
  if (costs.type != ChunkType::kClassed && seen < chunk.element_count) {
    list_changes(chunk, seen, hash, [](std::uint32_t, std::uint32_t) { return false; });
    costs = choose_by(chunk, choice, chunk.element_count);
  }
  encoded.type = costs.type;
  encoded.ideal_bits = costs.ideal_bits;
  encoded.changed_count = chunk.changed_count;
  if (costs.type != ChunkType::kClassed) return write_listed(chunk, costs);
  const ClassedPayload payload = write_classed(chunk, costs.classes, hash);
  encoded.changed_count = payload.changed_count;
  encoded.ideal_bits = payload.ideal_bits;
  return payload.end;
}

}  // namespace

EncodeWorkspace::EncodeWorkspace() : lists_(std::make_unique<Lists>()) {}
EncodeWorkspace::~EncodeWorkspace() = default;
EncodeWorkspace::EncodeWorkspace(EncodeWorkspace&&) noexcept = default;
EncodeWorkspace& EncodeWorkspace::operator=(EncodeWorkspace&&) noexcept = default;

Result<EncodedChunk> encode_chunk(const ChunkInput& input, const EncodeChoice& choice,
                                  EncodeWorkspace& workspace) {
  WEFT_TRY_STATUS(check_input(input, choice));
  if (choice.kernel_set == nullptr) WEFT_TRY_STATUS(kernels_status());
  EncodeWorkspace::Lists& lists = workspace.lists();
  ChangedChunk chunk{
      input, choice.kernel_set != nullptr ? *choice.kernel_set : kernels(), lists,
      static_cast<std::uint32_t>(input.new_bytes.size() / input.format.element_bytes), 0};
  PieceHash hash(input.new_bytes, choice.with_hash);
  EncodedChunk encoded;
  std::byte* end = nullptr;
  if (choice.full) {
    encoded.type = ChunkType::kRaw;
    encoded.changed_count = chunk.element_count;
    end = write_raw(chunk);
  } else {
    end = write_changes(chunk, choice, hash, encoded);
    if (end > lists.out.get() + input.new_bytes.size() && encoded.type != ChunkType::kRaw) {
      encoded.type = ChunkType::kRaw;
      end = write_raw(chunk);
    }
  }
  encoded.new_digest = hash.digest();
  encoded.payload = {lists.out.get(), static_cast<std::size_t>(end - lists.out.get())};
  WEFT_ASSERT(encoded.payload.size() <=
              payload_bytes_max(static_cast<std::uint32_t>(input.new_bytes.size())));
  return encoded;
}

}  // namespace weft::codec
