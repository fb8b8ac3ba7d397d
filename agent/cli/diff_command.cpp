// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <thread>

#include "agent/cli/commands.hpp"
#include "agent/cli/diff_report.hpp"
#include "agent/cli/progress.hpp"
#include "agent/cli/report.hpp"
#include "apply/spool/delta_file.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "apply/store/checkpoint_source.hpp"
#include "codec/flow/encode_flow.hpp"
#include "codec/scan/bound_table.hpp"
#include "transport/buffer/slab_pool.hpp"
#include "weft/wire/digest.hpp"

namespace weft::cli {
namespace {

constexpr std::uint32_t kSlots = 16;
constexpr std::size_t kDeltaFileBytes = 64 + 196 + 40;  // beside its frames (docs/formats)

// Counts what a file would hold when none is written.
// Threads: as FrameSink.
class CountingSink final : public codec::FrameSink {
 public:
  Status take(SharedSlot, const wire::FrameHeader& header) override {
    bytes_ += header.frame_bytes();
    return ok();
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t bytes_ = 0;
};

// The checkpoints' chunks on their way to the encoder: counted for the progress line and the bound,
// the old ones hashed, while they are in the cache. Ends the flow when asked to stop.
// Threads: any.
class WatchedSource final : public codec::ChunkSource {
 public:
  WatchedSource(const codec::Lattice& lattice, codec::ChunkSource& source, StopToken& stop)
      : lattice_(lattice),
        source_(source),
        stop_(stop),
        base_table_(lattice.chunk_count()),
        bounds_(lattice) {}

  Status read(ChunkIndex chunk, std::span<std::byte> old_bytes,
              std::span<std::byte> new_bytes) override {
    if (stop_.requested()) return failure(ErrorCode::kTimeout, Stage::kScan, "stopped");
    WEFT_TRY_STATUS(source_.read(chunk, old_bytes, new_bytes));
    base_table_.set(chunk, wire::digest64(old_bytes));
    bounds_.add(chunk, old_bytes, new_bytes);
    done_bytes_ += new_bytes.size();
    return ok();
  }

  const std::atomic<std::uint64_t>& done_bytes() const { return done_bytes_; }
  // When every chunk has been read.
  Digest base_root() const { return base_table_.root(lattice_); }
  const codec::BoundTable& bounds() const { return bounds_; }

 private:
  const codec::Lattice& lattice_;
  codec::ChunkSource& source_;
  StopToken& stop_;
  std::atomic<std::uint64_t> done_bytes_{0};
  codec::DigestTable base_table_;
  codec::BoundTable bounds_;
};

// Redraws the progress line while another thread works.
// Threads: one at a time.
class ProgressTicker {
 public:
  ProgressTicker(Progress& progress, const std::atomic<std::uint64_t>& done, std::uint64_t total) {
    if (!progress.visible()) return;
    thread_ = std::thread([&progress, &done, total, this] {
      StopToken& ended = ended_;
      while (!ended.wait_for(std::chrono::milliseconds(200))) {
        progress.show_bytes(done.load(), total);
      }
    });
  }
  ~ProgressTicker() {
    ended_.request(0);
    if (thread_.joinable()) thread_.join();
  }
  ProgressTicker(const ProgressTicker&) = delete;
  ProgressTicker& operator=(const ProgressTicker&) = delete;

 private:
  StopToken ended_;
  std::thread thread_;
};

// Encodes into the sink.
Result<Difference> encode(const apply::CheckpointDir& base, const apply::CheckpointDir& target,
                          const codec::Lattice& lattice, codec::FrameSink& sink,
                          const DiffOptions& options, StopToken& stop) {
  const unsigned threads =
      options.threads != 0 ? options.threads : std::max(1U, std::thread::hardware_concurrency());
  NullEventSink events;
  transport::SlabOptions slab;
  slab.slot_count = kSlots;
  WEFT_TRY(const auto slots, transport::SlabPool::open(slab, events));
  apply::CheckpointSource source(lattice, base, target);
  WatchedSource watched(lattice, source, stop);
  codec::EncodeFlowOptions flow;
  flow.threads = threads;
  flow.choice.profile = options.profile;
  Difference difference;
  difference.schema = base.schema();
  Progress progress(options.format != DiffFormat::kTable, "diff");
  {
    const ProgressTicker ticker(progress, watched.done_bytes(), difference.schema.tensor_bytes());
    WEFT_TRY(difference.encoded,
             codec::encode_flow(lattice, ProducerIndex{0}, watched, *slots, sink, flow));
  }
  progress.clear();
  // Tensors without elements are in no chunk.
  difference.encoded.tensors.resize(difference.schema.tensors().size());
  difference.target_root = difference.encoded.table.root(lattice);
  difference.base_root = watched.base_root();
  for (std::uint32_t i = 0; i < difference.encoded.tensors.size(); ++i) {
    difference.bound_bits.push_back(watched.bounds().bits(TensorIndex{i}));
  }
  WEFT_TRY_STATUS(base.check_identity());
  WEFT_TRY_STATUS(target.check_identity());
  return difference;
}

Result<Difference> diff(const DiffOptions& options, StopToken& stop) {
  NullEventSink events;
  WEFT_TRY(const auto base,
           apply::CheckpointDir::open_path(options.base_dir, apply::Access::kRead, {}, events));
  WEFT_TRY(const auto target,
           apply::CheckpointDir::open_path(options.target_dir, apply::Access::kRead, {}, events));
  WEFT_TRY_STATUS(codec::schema_difference(base.schema(), target.schema()));
  WEFT_TRY(const auto lattice, codec::Lattice::default_for(base.schema()));
  if (options.output_file.empty()) {
    CountingSink sink;
    WEFT_TRY(auto difference, encode(base, target, lattice, sink, options, stop));
    difference.file_bytes = sink.bytes() + kDeltaFileBytes;
    return difference;
  }
  const std::filesystem::path file(options.output_file);
  const std::string directory = file.has_parent_path() ? file.parent_path().string() : ".";
  WEFT_TRY(const auto store, apply::open_store(directory, {}, events));
  WEFT_TRY(const auto writer,
           apply::DeltaFileWriter::open(*store, file.filename().string(), base.schema(), lattice));
  WEFT_TRY(auto difference, encode(base, target, lattice, *writer, options, stop));
  wire::Manifest manifest;
  manifest.base = {Version{}, lattice.digest(), difference.base_root};
  manifest.target = {Version{}, lattice.digest(), difference.target_root};
  manifest.schema = base.schema().digest();
  manifest.producers = {difference.encoded.seal};
  WEFT_TRY(difference.file_bytes, writer->finish(manifest));
  return difference;
}

}  // namespace

int run_diff(const DiffOptions& asked, StopToken& stop) {
  DiffOptions options = asked;
  if (options.common.json) options.format = DiffFormat::kJson;
  options.common.json = options.format == DiffFormat::kJson;
  const auto difference = diff(options, stop);
  if (!difference) return report_failure(difference.error(), options.common);
  switch (options.format) {
    case DiffFormat::kJson:
      return report_result(as_json(*difference, options));
    case DiffFormat::kCsv:
      return report_result(as_csv(*difference));
    case DiffFormat::kTable:
      break;
  }
  return report_result(as_text(*difference, options));
}

}  // namespace weft::cli
