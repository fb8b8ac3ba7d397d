// SPDX-License-Identifier: Apache-2.0
#include "apply/patch/digest_directory.hpp"

#include <mutex>

#include "apply/store/checkpoint_source.hpp"

namespace weft::apply {

namespace {

// A source that counts, and stops when it is told to.
// Threads: any.
class CountingSource final : public codec::ChunkSource {
 public:
  CountingSource(codec::ChunkSource& source, std::uint64_t total, const DigestProgress& on_progress)
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
  codec::ChunkSource& source_;
  std::uint64_t total_;
  const DigestProgress& on_progress_;
  std::mutex mutex_;
  std::uint64_t done_ = 0;
};

}  // namespace

Result<codec::DigestTable> digest_source(codec::ChunkSource& source, std::uint64_t total,
                                         const codec::Lattice& lattice, std::uint32_t threads,
                                         const DigestProgress& on_progress) {
  CountingSource counting(source, total, on_progress);
  return codec::digest_flow(lattice, counting, threads);
}

Result<codec::DigestTable> digest_directory(const CheckpointDir& checkpoint,
                                            const codec::Lattice& lattice, std::uint32_t threads,
                                            const DigestProgress& on_progress) {
  CheckpointSource source(lattice, checkpoint);
  return digest_source(source, checkpoint.schema().tensor_bytes(), lattice, threads, on_progress);
}

}  // namespace weft::apply
