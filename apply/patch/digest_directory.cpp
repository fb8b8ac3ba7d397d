// SPDX-License-Identifier: Apache-2.0
#include "apply/patch/digest_directory.hpp"

#include <mutex>

#include "apply/store/checkpoint_source.hpp"
#include "codec/flow/encode_flow.hpp"

namespace weft::apply {

namespace {

// A source that counts, and stops when it is told to.
// Threads: any.
class CountingSource final : public codec::ChunkSource {
 public:
  CountingSource(CheckpointSource& source, std::uint64_t total, const DigestProgress& on_progress)
      : source_(source), total_(total), on_progress_(on_progress) {}

  Status read(ChunkIndex chunk, std::span<std::byte> old_bytes,
              std::span<std::byte> new_bytes) override {
    WEFT_TRY_STATUS(source_.read(chunk, old_bytes, new_bytes));
    if (!on_progress_) return ok();
    const std::lock_guard lock(mutex_);
    done_ += new_bytes.size();
    if (on_progress_(done_, total_)) return ok();
    return failure(ErrorCode::kTimeout, Stage::kScan, "stopped by request");
  }

 private:
  CheckpointSource& source_;
  std::uint64_t total_;
  const DigestProgress& on_progress_;
  std::mutex mutex_;
  std::uint64_t done_ = 0;
};

}  // namespace

Result<codec::DigestTable> digest_directory(const CheckpointDir& checkpoint,
                                            const codec::Lattice& lattice, std::uint32_t threads,
                                            const DigestProgress& on_progress) {
  CheckpointSource source(lattice, checkpoint);
  CountingSource counting(source, checkpoint.schema().tensor_bytes(), on_progress);
  return codec::digest_flow(lattice, counting, threads);
}

}  // namespace weft::apply
