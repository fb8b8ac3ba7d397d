// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "apply/patch/apply_delta.hpp"
#include "apply/patch/digest_directory.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "codec/kernels/kernel_set.hpp"
#include "weft/base/guarded.hpp"
#include "weft/base/limits.hpp"

namespace weft::apply {

namespace {

constexpr std::size_t kDifferencesShown = 10;

// Chunks of one checkpoint on their way to the hash, compared with those of another bit by bit.
// Threads: any.
class ComparingSource final : public codec::ChunkSource {
 public:
  ComparingSource(const CheckpointDir& left, const CheckpointDir& right,
                  const codec::Lattice& lattice)
      : left_(left), right_(right), lattice_(lattice) {}

  Status read(ChunkIndex chunk, std::span<std::byte>, std::span<std::byte> bytes) override {
    const codec::ChunkPlace place = lattice_.place(chunk);
    WEFT_TRY_STATUS(left_.read(place, bytes));
    Room room = take_room();
    const std::span<std::byte> other(room.bytes.data(), bytes.size());
    WEFT_TRY_STATUS(right_.read(place, other));
    const std::uint32_t count =
        codec::kernels().scan(bytes.data(), other.data(), place.element_count,
                              place.element_bytes(), room.positions.data());
    if (count > 0) note(place, count, room.positions[0]);
    rooms_.with([&](auto& rooms) { rooms.push_back(std::move(room)); });
    return ok();
  }

  // When all chunks have been read: the first tensors that differ, in the order of their names.
  void fill(VerifySummary& summary) const {
    found_.with([&](const auto& found) {
      for (const auto& [tensor, difference] : found) {
        summary.matches = false;
        summary.different_elements += difference.count;
        if (summary.differences.size() < kDifferencesShown) {
          summary.differences.push_back(difference);
        }
      }
    });
  }

 private:
  // What one thread needs beside the left chunk.
  struct Room {
    std::vector<std::byte> bytes = std::vector<std::byte>(limits::kChunkBytesMax);
    std::vector<std::uint32_t> positions =
        std::vector<std::uint32_t>(limits::kChunkElementsMax + 64);
  };

  Room take_room() {
    auto taken = rooms_.with([](auto& rooms) -> std::optional<Room> {
      if (rooms.empty()) return std::nullopt;
      Room last = std::move(rooms.back());
      rooms.pop_back();
      return last;
    });
    return taken ? *std::move(taken) : Room();
  }

  void note(const codec::ChunkPlace& place, std::uint32_t count, std::uint32_t first_position) {
    const std::uint64_t first = place.element_at(first_position);
    found_.with([&](auto& found) {
      const std::string& name = left_.schema().tensor(place.tensor).name;
      const auto [at, is_new] =
          found.try_emplace(place.tensor.value, VerifyDifference{name, first, 0});
      at->second.element = std::min(at->second.element, first);
      at->second.count += count;
    });
  }

  const CheckpointDir& left_;
  const CheckpointDir& right_;
  const codec::Lattice& lattice_;
  Guarded<std::vector<Room>> rooms_;
  Guarded<std::map<std::uint32_t, VerifyDifference>> found_;  // by tensor
};

}  // namespace

Result<VerifySummary> verify_dir(const std::string& dir, const VerifyDirOptions& options,
                                 EventSink& events) {
  WEFT_TRY(const auto checkpoint,
           CheckpointDir::open_path(dir, Access::kRead, options.store, events));
  WEFT_TRY(const auto lattice, codec::Lattice::default_for(checkpoint.schema()));
  VerifySummary summary;
  summary.schema = checkpoint.schema().digest();
  summary.lattice = lattice.digest();
  summary.lattice_name = "default";
  summary.tensor_bytes = checkpoint.schema().tensor_bytes();
  const auto report = [&](const char* step) -> DigestProgress {
    if (!options.on_progress) return {};
    return [&options, step](std::uint64_t done, std::uint64_t total) {
      return options.on_progress(step, done, total);
    };
  };
  if (options.against_dir.empty()) {
    WEFT_TRY(const auto table,
             digest_directory(checkpoint, lattice, options.threads, report("hash")));
    summary.root = table.root(lattice);
  } else {
    WEFT_TRY(const auto other,
             CheckpointDir::open_path(options.against_dir, Access::kRead, options.store, events));
    WEFT_TRY_STATUS(codec::schema_difference(checkpoint.schema(), other.schema()));
    ComparingSource source(checkpoint, other, lattice);
    WEFT_TRY(const auto table, digest_source(source, summary.tensor_bytes, lattice, options.threads,
                                             report("compare")));
    summary.root = table.root(lattice);
    source.fill(summary);
    WEFT_TRY_STATUS(other.check_identity());
  }
  if (options.root && *options.root != summary.root) summary.matches = false;
  WEFT_TRY_STATUS(checkpoint.check_identity());
  return summary;
}

}  // namespace weft::apply
