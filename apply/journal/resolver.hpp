// SPDX-License-Identifier: Apache-2.0
// From wire frames to a proven journal: one refit at one agent.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "apply/journal/chunk_records.hpp"
#include "apply/journal/journal_writer.hpp"
#include "apply/spool/spool.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "codec/decode/decode_chunk.hpp"
#include "codec/digest/digest_table.hpp"
#include "codec/project/lattice.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/manifest.hpp"

namespace weft::apply {

// What a refit is resolved against. All of it must outlive the resolver.
// Threads: a value; one at a time.
struct ResolverBase {
  FleetId fleet;
  RefitId refit;
  Content base;                             // what the checkpoint is
  const codec::Lattice* lattice = nullptr;  // its digest is base.lattice
  CheckpointDir* checkpoint = nullptr;
  const codec::DigestTable* table = nullptr;  // of the base
  // Makes sure that what an apply will write can be written; none: opens `checkpoint` for writing.
  std::function<Status()> open_targets;
};

// Where it keeps what it has received. The stores must outlive the resolver.
// Threads: a value; one at a time.
struct ResolverStorage {
  Store* spool = nullptr;    // `<state>/spool`; none: frames are not kept
  Store* journal = nullptr;  // `<state>/journal`
  DiskBudget* budget = nullptr;
};

enum class Accepted : std::uint8_t { kNew, kDuplicate };

struct FrameId {
  ProducerIndex producer;
  FrameSequence sequence;
  auto operator<=>(const FrameId&) const = default;
};

// Threads: a value; one at a time.
struct ResolveProgress {
  std::uint64_t frames = 0;  // resolved, duplicates not counted
  std::uint64_t duplicate_frames = 0;
  std::uint64_t wire_bytes = 0;  // of the resolved frames
  std::uint64_t chunks = 0;
  std::uint64_t changed_elements = 0;
  std::uint64_t journal_bytes = 0;
};

// What one decoding thread needs: about 2 MiB and the decoder's own workspace.
// Threads: one at a time.
class ResolveScratch {
 public:
  ResolveScratch();

 private:
  friend class Resolver;
  codec::DecodeWorkspace decoder_;
  std::vector<std::byte> old_bytes_;
  std::vector<std::byte> new_bytes_;
  ChunkRecords records_;
  std::vector<std::byte> record_;  // its memory is kept from chunk to chunk
};

// Resolver decodes frames against the old bytes of the checkpoint, verifies every chunk, journals
// absolute values and keeps the frames.
// 1. open(): empty spool and journal, or with `resume` the spooled frames of this refit resolved
//    again.
// 2. accept(): from N decode threads at once, each with a scratch of its own, in any order.
// 3. missing(), prove(): when all producers have sealed.
// 4. forget(): after an abort. After a commit the journal stays for the patcher.
// Invariant: no weight byte is written; a chunk is journalled at most once.
// Owns:      spool and journal of this refit; a table of 8 bytes per chunk.
// Threads:   any for accept, missing and progress; the others one at a time, with no accept at
// work.
class Resolver {
 public:
  static Result<std::unique_ptr<Resolver>> open(const ResolverBase& base,
                                                const ResolverStorage& storage, bool resume);
  ~Resolver();

  // `frame` may lie in memory that a peer can still write to. A frame that was accepted before is
  // kDuplicate when its checksum is the same.
  // Errors: kProtocol (another fleet, refit, lattice; a sequence or chunk that cannot be),
  //   kPayloadConflict (another frame or chunk under the same number), kBaseMismatch (this node's
  //   old bytes are not what its table says; names tensor and chunk), kCorruptPayload (they are:
  //   the frame is to be fetched once more), kDecodeLimit, kUnsupported, kNoSpace, I/O. After an
  //   error the frame counts as not received.
  Result<Accepted> accept(std::span<const std::byte> frame, ResolveScratch& scratch);

  // Frames of the manifest that have not been accepted, at most `count_max` of them.
  std::vector<FrameId> missing(const wire::Manifest& manifest, std::size_t count_max) const;
  bool holds(ProducerIndex producer, FrameSequence sequence) const;

  // Proves that applying the journal turns this node's base into the manifest's target, and makes
  // the proof durable: every frame is here, parts and root fold, the checkpoint is the one that was
  // read and can be written, spool and journal are synced. Errors: as the design's NO causes; a
  // frame missing is kProtocol.
  Status prove(const wire::Manifest& manifest);

  ResolveProgress progress() const;
  const codec::DigestTable& new_table() const { return new_table_; }
  Spool* spool() { return spool_.get(); }

  // Removes spool and journal of this refit.
  Status forget();

 private:
  struct Lane;  // frames of one producer
  struct Counters {
    std::atomic<std::uint64_t> frames{0};
    std::atomic<std::uint64_t> duplicate_frames{0};
    std::atomic<std::uint64_t> wire_bytes{0};
    std::atomic<std::uint64_t> chunks{0};
    std::atomic<std::uint64_t> changed_elements{0};
  };

  enum class Mark : std::uint8_t { kNone = 0, kAtWork = 1, kDone = 2 };

  Resolver(const ResolverBase& base, const ResolverStorage& storage);
  Status replay_spool();
  Result<Accepted> resolve(std::span<const std::byte> frame, bool from_spool,
                           ResolveScratch& scratch);
  // True: this caller resolves it. False: it is a duplicate.
  Result<bool> claim_frame(const wire::FrameHeader& header);
  void settle_frame(const wire::FrameHeader& header, bool resolved);
  Result<bool> claim_chunk(const wire::IndexEntry& entry);
  Result<std::size_t> journal_chunk(const wire::IndexEntry& entry, const codec::ChunkPlace& place,
                                    std::span<const std::byte> payload, ResolveScratch& scratch);
  Status resolve_chunk(const wire::IndexEntry& entry, std::span<const std::byte> payload,
                       ResolveScratch& scratch);
  Status check_manifest(const wire::Manifest& manifest) const;

  ResolverBase base_;
  ResolverStorage storage_;
  std::unique_ptr<Spool> spool_;
  std::unique_ptr<JournalWriter> journal_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<std::atomic<Mark>> chunk_marks_;
  codec::DigestTable new_table_;
  Counters counters_;
};

}  // namespace weft::apply
