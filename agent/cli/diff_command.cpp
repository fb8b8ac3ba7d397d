// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "agent/cli/commands.hpp"
#include "agent/cli/progress.hpp"
#include "agent/cli/report.hpp"
#include "agent/lib/json_writer.hpp"
#include "agent/lib/units.hpp"
#include "apply/patch/digest_directory.hpp"
#include "apply/spool/delta_file.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "apply/store/checkpoint_source.hpp"
#include "codec/flow/encode_flow.hpp"
#include "transport/buffer/slab_pool.hpp"

namespace weft::cli {
namespace {

constexpr std::uint32_t kSlots = 16;
constexpr std::size_t kTensorsShown = 10;
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

// The checkpoints' chunks, counted for the progress line; ends the flow when asked to stop.
// Threads: any.
class WatchedSource final : public codec::ChunkSource {
 public:
  WatchedSource(codec::ChunkSource& source, StopToken& stop, std::atomic<std::uint64_t>& done)
      : source_(source), stop_(stop), done_(done) {}
  Status read(ChunkIndex chunk, std::span<std::byte> old_bytes,
              std::span<std::byte> new_bytes) override {
    if (stop_.requested()) return failure(ErrorCode::kTimeout, Stage::kScan, "stopped");
    done_ += new_bytes.size();
    return source_.read(chunk, old_bytes, new_bytes);
  }

 private:
  codec::ChunkSource& source_;
  StopToken& stop_;
  std::atomic<std::uint64_t>& done_;
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

struct Difference {
  codec::Schema schema;
  codec::EncodeSummary encoded;
  Digest base_root;
  Digest target_root;
  std::uint64_t file_bytes = 0;
};

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

double bound_bytes(const codec::EncodeSummary& encoded) {
  return std::accumulate(encoded.tensors.begin(), encoded.tensors.end(), 0.0,
                         [](double sum, const auto& t) { return sum + t.ideal_bits / 8; });
}

std::vector<std::size_t> changed_tensors(const codec::EncodeSummary& encoded) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < encoded.tensors.size(); ++i) {
    if (encoded.tensors[i].changed_elements > 0) places.push_back(i);
  }
  return places;
}

std::string as_json(const Difference& difference, const DiffOptions& options) {
  const codec::EncodeSummary& encoded = difference.encoded;
  const auto changed = static_cast<double>(encoded.seal.changed_elements);
  agent::JsonWriter json;
  json.begin_object().member("changed_elements", encoded.seal.changed_elements);
  json.member("total_elements", encoded.element_count);
  json.member("tensor_bytes", difference.schema.tensor_bytes());
  json.member("file_bytes", difference.file_bytes).member("frames", encoded.seal.frame_count);
  json.member("bytes_per_changed", ratio(static_cast<double>(difference.file_bytes), changed));
  json.member("bound_bytes_per_changed", ratio(bound_bytes(encoded), changed));
  json.member("base_root", to_hex(difference.base_root));
  json.member("target_root", to_hex(difference.target_root));
  json.member("file", options.output_file).key("types").begin_object();
  for (std::size_t type = 0; type < wire::kChunkTypeCount; ++type) {
    json.key(wire::to_string(static_cast<wire::ChunkType>(type))).begin_object();
    json.member("chunks", encoded.chunks_by_type[type]);
    json.member("bytes", encoded.payload_bytes_by_type[type]).end_object();
  }
  json.end_object().key("tensors").begin_array();
  for (const std::size_t place : changed_tensors(encoded)) {
    const codec::Tensor& tensor = difference.schema.tensors()[place];
    const codec::TensorEncodeStats& stats = encoded.tensors[place];
    json.begin_object().member("name", tensor.name).member("dtype", codec::name(tensor.dtype));
    json.member("elements", tensor.element_count).member("changed", stats.changed_elements);
    json.member("bytes", static_cast<double>(stats.payload_bits) / 8).end_object();
  }
  return json.end_array().end_object().take();
}

std::string as_text(const Difference& difference, const DiffOptions& options) {
  const codec::EncodeSummary& encoded = difference.encoded;
  const auto changed = static_cast<double>(encoded.seal.changed_elements);
  char line[512];
  std::snprintf(line, sizeof(line),
                "%llu of %llu elements changed (%.4f %%)\n%s in %u frames, %.1f times less than "
                "%s; %.3f bytes per changed element",
                static_cast<unsigned long long>(encoded.seal.changed_elements),
                static_cast<unsigned long long>(encoded.element_count),
                100 * ratio(changed, static_cast<double>(encoded.element_count)),
                agent::human_bytes(difference.file_bytes).c_str(), encoded.seal.frame_count,
                ratio(static_cast<double>(difference.schema.tensor_bytes()),
                      static_cast<double>(difference.file_bytes)),
                agent::human_bytes(difference.schema.tensor_bytes()).c_str(),
                ratio(static_cast<double>(difference.file_bytes), changed));
  std::string text = line;
  if (const double bound = bound_bytes(encoded); bound > 0) {
    std::snprintf(line, sizeof(line), " (bound %.3f)", ratio(bound, changed));
    text += line;
  }
  text += "\nroot " + to_hex(difference.base_root) + " -> " + to_hex(difference.target_root);
  for (std::size_t type = 0; type < wire::kChunkTypeCount; ++type) {
    if (encoded.chunks_by_type[type] == 0) continue;
    std::snprintf(line, sizeof(line), "\n  %-9s %8llu chunks  %s",
                  wire::to_string(static_cast<wire::ChunkType>(type)),
                  static_cast<unsigned long long>(encoded.chunks_by_type[type]),
                  agent::human_bytes(encoded.payload_bytes_by_type[type]).c_str());
    text += line;
  }
  std::vector<std::size_t> places = changed_tensors(encoded);
  const auto larger = [&](std::size_t a, std::size_t b) {
    return encoded.tensors[a].payload_bits > encoded.tensors[b].payload_bits;
  };
  const std::size_t shown = std::min(kTensorsShown, places.size());
  std::partial_sort(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(shown),
                    places.end(), larger);
  text += "\n" + std::to_string(places.size()) + " tensors changed; the largest:";
  for (std::size_t i = 0; i < shown; ++i) {
    const codec::Tensor& tensor = difference.schema.tensors()[places[i]];
    const codec::TensorEncodeStats& stats = encoded.tensors[places[i]];
    std::snprintf(line, sizeof(line), "\n  %10s  %7.4f %%  %s",
                  agent::human_bytes(stats.payload_bits / 8).c_str(),
                  100 * ratio(static_cast<double>(stats.changed_elements),
                              static_cast<double>(tensor.element_count)),
                  tensor.name.c_str());
    text += line;
  }
  if (!options.output_file.empty()) text += "\nwritten to " + options.output_file;
  return text;
}

// The base's root is what its unchanged chunks and its old changed ones fold to: one more read.
Result<Digest> root_of(const apply::CheckpointDir& checkpoint, const codec::Lattice& lattice,
                       unsigned threads, StopToken& stop) {
  WEFT_TRY(const auto table, apply::digest_directory(checkpoint, lattice, threads, [&](auto, auto) {
             return !stop.requested();
           }));
  return table.root(lattice);
}

// Encodes into the sink; then the roots.
Result<Difference> encode(const apply::CheckpointDir& base, const apply::CheckpointDir& target,
                          const codec::Lattice& lattice, codec::FrameSink& sink,
                          const DiffOptions& options, StopToken& stop) {
  const unsigned threads =
      options.threads != 0 ? options.threads : std::max(1U, std::thread::hardware_concurrency());
  NullEventSink events;
  transport::SlabOptions slab;
  slab.slot_count = kSlots;
  WEFT_TRY(const auto slots, transport::SlabPool::open(slab, events));
  std::atomic<std::uint64_t> done{0};
  apply::CheckpointSource source(lattice, base, target);
  WatchedSource watched(source, stop, done);
  codec::EncodeFlowOptions flow;
  flow.threads = threads;
  Difference difference;
  difference.schema = base.schema();
  Progress progress(options.common.json, "diff");
  {
    const ProgressTicker ticker(progress, done, difference.schema.tensor_bytes());
    WEFT_TRY(difference.encoded,
             codec::encode_flow(lattice, ProducerIndex{0}, watched, *slots, sink, flow));
  }
  progress.clear();
  difference.target_root = difference.encoded.table.root(lattice);
  WEFT_TRY(difference.base_root, root_of(base, lattice, threads, stop));
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

int run_diff(const DiffOptions& options, StopToken& stop) {
  const auto difference = diff(options, stop);
  if (!difference) return report_failure(difference.error(), options.common);
  return report_result(options.common.json ? as_json(*difference, options)
                                           : as_text(*difference, options));
}

}  // namespace weft::cli
