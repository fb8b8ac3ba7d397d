// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <vector>

#include "apply/patch/apply_delta.hpp"
#include "apply/patch/digest_directory.hpp"
#include "apply/store/checkpoint_dir.hpp"

namespace weft::apply {

namespace {

constexpr std::size_t kDifferencesShown = 10;

// Compares chunk by chunk, bit by bit; digests have no part in it.
Status compare(const CheckpointDir& left, const CheckpointDir& right, const codec::Lattice& lattice,
               const VerifyDirOptions& options, VerifySummary& summary) {
  std::vector<std::byte> left_bytes;
  std::vector<std::byte> right_bytes;
  std::uint64_t done = 0;
  for (std::uint32_t i = 0; i < lattice.chunk_count(); ++i) {
    const codec::ChunkPlace place = lattice.place(ChunkIndex{i});
    left_bytes.resize(place.bytes());
    right_bytes.resize(place.bytes());
    WEFT_TRY_STATUS(left.read(place, left_bytes));
    WEFT_TRY_STATUS(right.read(place, right_bytes));
    done += place.bytes();
    if (options.on_progress && !options.on_progress("compare", done, summary.tensor_bytes)) {
      return failure(ErrorCode::kTimeout, Stage::kScan, "stopped by request");
    }
    if (std::memcmp(left_bytes.data(), right_bytes.data(), place.bytes()) == 0) continue;
    summary.matches = false;
    const std::size_t width = place.element_bytes();
    const std::string& name = left.schema().tensor(place.tensor).name;
    for (std::uint32_t e = 0; e < place.element_count; ++e) {
      if (std::memcmp(&left_bytes[e * width], &right_bytes[e * width], width) == 0) continue;
      ++summary.different_elements;
      auto& shown = summary.differences;
      if (!shown.empty() && shown.back().tensor == name) {
        ++shown.back().count;
      } else if (shown.size() < kDifferencesShown) {
        shown.push_back({name, place.first_element + e, 1});
      }
    }
  }
  return ok();
}

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
  WEFT_TRY(const auto table, digest_directory(checkpoint, lattice, options.threads,
                                              [&](std::uint64_t done, std::uint64_t total) {
                                                return !options.on_progress ||
                                                       options.on_progress("hash", done, total);
                                              }));
  summary.root = table.root(lattice);
  if (options.root && *options.root != summary.root) summary.matches = false;
  if (!options.against_dir.empty()) {
    WEFT_TRY(const auto other,
             CheckpointDir::open_path(options.against_dir, Access::kRead, options.store, events));
    WEFT_TRY_STATUS(codec::schema_difference(checkpoint.schema(), other.schema()));
    WEFT_TRY_STATUS(compare(checkpoint, other, lattice, options, summary));
    WEFT_TRY_STATUS(other.check_identity());
  }
  WEFT_TRY_STATUS(checkpoint.check_identity());
  return summary;
}

}  // namespace weft::apply
