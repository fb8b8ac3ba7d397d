// SPDX-License-Identifier: Apache-2.0
// Publisher: a trainer process hands its own part of a model to a fleet, step by step.
//
//     auto publisher = weft::Publisher::open(options);          // once
//     auto refit = (*publisher)->begin(weft::Version{7});       // every step
//     for (const Shard& shard : shards) (*refit)->put(shard.name, {shard.type, shard.bytes});
//     auto report = (*refit)->commit();                         // waits for the decision
//
// Every trainer rank has a Publisher of its own; together they publish one refit: it is sealed when
// all have called commit(), and one that fails or dies before the decision ends it for all. No rank
// sees another one's bytes. No exception leaves a call.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/event_sink.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"
#include "weft/shard_box.hpp"

namespace weft {

// Threads: a value; one at a time.
struct PublisherOptions {
  std::string coordinator;  // host:port
  std::string base_dir;     // checkpoint that the fleet has now, or starts from
  // The version of base_dir in a fleet that has none yet; else the fleet's own counts.
  Version base_version{1};
  std::string config_file;  // TOML as for `weft publish --config`; empty: defaults
  std::uint32_t producer = 0;
  // A directory for the baseline, on disk and mapped, and for what is pending until the decision
  // (producer.baseline_dir in the config; this one wins). A trainer that is started again then goes
  // on from it, not from base_dir, which still gives names and shapes. Every producer makes its own
  // folder in it. Empty: the baseline is memory.
  std::string baseline_dir;
  // Box files (docs/formats/boxes.md) of all producers, this one's at place `producer`: all
  // processes name the same. Empty: one producer, whose shard tensors are the checkpoint's, by
  // name.
  std::vector<std::string> box_files;
};

// Threads: a value; one at a time.
enum class ShardType : std::uint8_t {
  kSame,     // the checkpoint tensor's own type
  kFloat32,  // cast to BF16 or F16, whichever the checkpoint has, to nearest, ties to even
};

// A shard tensor in memory, row-major, without gaps. Borrowed during put().
// Threads: a value; one at a time.
struct ShardView {
  ShardType type = ShardType::kSame;
  std::span<const std::byte> bytes;
  // What the bytes are, as in a safetensors header: put_shard() compares it with its tensors' own.
  // Empty: not known.
  std::string_view dtype = {};
};

// Gives elements [first_element, ...) of a shard tensor, in the checkpoint's type, as many as
// `into` holds. Called from several threads at once, for any ranges, during put_residual().
using ResidualConverter =
    std::function<Status(std::uint64_t first_element, std::span<std::byte> into)>;

// Everything that a converter's values depend on. Borrowed during put_residual().
// Threads: a value; one at a time.
struct ResidualSource {
  // The converter's own tensors: master weights, scales, adapters. None: not known, so all is
  // converted. The same ones, in the same order, in every refit.
  std::vector<std::span<const std::byte>> parts;
  // Value i depends on element i of every part alone, and every part has as many elements as the
  // shard tensor: then only the chunks that read something new are converted. Casts and sums are
  // so; block scales are not.
  bool elementwise = false;
};

// A tensor that put() takes.
// Threads: a value; one at a time.
struct ShardTensor {
  std::string name;
  std::uint64_t element_count = 0;
  // Of the checkpoint tensors that it feeds, as in a safetensors header; empty: it feeds none, or
  // some of different types.
  std::string dtype;
};

// Threads: a value; one at a time.
struct RefitReport {
  Version version;
  bool already_committed = false;
  std::uint64_t changed_elements = 0;  // of this producer
  std::uint64_t total_elements = 0;
  std::uint64_t skipped_elements = 0;  // of residuals, not converted: their source is the same
  std::uint64_t frames = 0;
  std::uint64_t wire_bytes = 0;
  std::uint64_t baseline_bytes = 0;
  std::uint64_t pending_bytes = 0;  // beside the baseline until the decision
  double put_seconds = 0;           // in put() and put_residual()
  double commit_seconds = 0;        // from commit() to the decision
};

// Refit is one attempt at one version, from begin() to commit() or abort(). Destroying it aborts.
// Life:    put* -> commit, or abort.
// Threads: one at a time.
class Refit {
 public:
  virtual ~Refit() = default;

  // Scans, encodes and sends the elements that this tensor gives; blocks while no slot is free. The
  // view may be changed or freed when it returns. Errors: kConfig (no such shard tensor, put twice,
  // wrong size or type: the refit goes on), the cause when the refit has ended.
  virtual Status put(std::string_view name, const ShardView& view) = 0;
  // The same for values that no box list yields: converted chunk by chunk, then compared with the
  // baseline, which has the checkpoint's layout. Where `source` is what it was when the committed
  // values were made, the converter is not called and nothing changes: it must give the same values
  // for the same source, bit by bit.
  virtual Status put_residual(std::string_view name, const ResidualConverter& converter,
                              const ResidualSource& source) = 0;
  Status put_residual(std::string_view name, const ResidualConverter& converter) {
    return put_residual(name, converter, {});
  }
  // The same for a view that is no shard tensor by name: the boxes say which elements of this
  // producer's part it gives, and it may give any of them, with others to come. Boxes that fill
  // chunks (docs/formats/boxes.md) cost no more than put(); what is left of a chunk is copied and
  // waits for the rest. Errors: kConfig (an element that is another producer's, or was given
  // before: names tensor and range; views of several types), kUnsupported (too scattered): the
  // refit goes on.
  virtual Status put_shard(std::span<const ShardBox> boxes, const ShardView& view) = 0;
  // Seals this producer's part and waits for the decision; ok: the version is committed. Errors:
  // kConfig (names a shard tensor that was not put, after put_shard the tensor and range; with
  // `partial` those count as unchanged),
  // kInDoubt (no answer by the deadline; the next begin() asks first), the cause of an abort.
  virtual Result<RefitReport> commit(bool partial = false) = 0;
  virtual void abort() = 0;
};

// Publisher is one producer of a fleet: its baseline (the old bits of the elements it owns) in
// memory or in files, its session with the coordinator, its place in the trees.
// Owns:    about 1.05 times the bytes of its elements at 3 % changes, one thread, a fabric rail.
// Threads: one at a time.
class Publisher {
 public:
  virtual ~Publisher() = default;

  // Reads this producer's part of the base. Errors: kConfig (options, boxes: names gap or overlap),
  // kUnsupported (a tensor that boxes cut too finely), those of the checkpoint, kPeerLost.
  static Result<std::unique_ptr<Publisher>> open(const PublisherOptions& options,
                                                 EventSink& events);

  // Waits until all producers have begun and the fleet is planned. Errors: kBusy, kVersionOrder,
  // kBaseMismatch, kTimeout, kPeerLost. At most one Refit at a time, destroyed before the
  // Publisher.
  virtual Result<std::unique_ptr<Refit>> begin(Version target) = 0;
  // What the baseline is.
  virtual Content content() const = 0;
  // In the order of the box file, or of the checkpoint's names.
  virtual std::vector<ShardTensor> shard_tensors() const = 0;
  // Ends a begin() or put() that another thread waits in, and a commit() that has not sealed yet:
  // they give kBusy. Nothing to end: nothing happens, so say it until they return. After the seal
  // only the decision ends a commit(). Threads: any.
  virtual void cancel() = 0;
};

}  // namespace weft
