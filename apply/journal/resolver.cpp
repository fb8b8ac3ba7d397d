// SPDX-License-Identifier: Apache-2.0
#include "apply/journal/resolver.hpp"

#include <algorithm>
#include <mutex>
#include <string>

#include "apply/journal/journal_reader.hpp"
#include "apply/store/native_error.hpp"
#include "codec/frame/frame_view.hpp"
#include "weft/base/assert.hpp"
#include "weft/base/limits.hpp"
#include "weft/base/units.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::apply {

namespace {

Error refuse(ErrorCode code, const std::string& what) {
  return failure(code, Stage::kResolve, what);
}

std::string frame_name(const wire::FrameHeader& header) {
  return "frame " + std::to_string(header.sequence) + " of producer " +
         std::to_string(header.producer);
}

}  // namespace

ResolveScratch::ResolveScratch()
    : old_bytes_(limits::kChunkBytesMax), new_bytes_(limits::kChunkBytesMax) {
  record_.reserve(kRecordBytesMax);
}

struct Resolver::Lane {
  struct Frame {
    Digest checksum;
    Mark mark = Mark::kNone;
  };
  mutable std::mutex mutex;
  std::vector<Frame> frames;  // by sequence
};

Resolver::Resolver(const ResolverBase& base, const ResolverStorage& storage)
    : base_(base),
      storage_(storage),
      chunk_marks_(base.lattice->chunk_count()),
      new_table_(*base.table) {
  for (std::uint32_t i = 0; i < base.lattice->producer_count(); ++i) {
    lanes_.push_back(std::make_unique<Lane>());
  }
}

Resolver::~Resolver() = default;

Result<std::unique_ptr<Resolver>> Resolver::open(const ResolverBase& base,
                                                 const ResolverStorage& storage, bool resume) {
  WEFT_ASSERT(base.lattice != nullptr && base.checkpoint != nullptr && base.table != nullptr &&
              storage.journal != nullptr && storage.budget != nullptr);
  WEFT_ASSERT(base.table->chunk_count() == base.lattice->chunk_count());
  std::unique_ptr<Resolver> resolver(new Resolver(base, storage));
  WEFT_TRY(resolver->journal_, JournalWriter::open(*storage.journal, base.refit,
                                                   base.checkpoint->schema(), *storage.budget));
  if (storage.spool != nullptr) {
    if (!resume) WEFT_TRY_STATUS(Spool::remove(*storage.spool, base.refit));
    WEFT_TRY(resolver->spool_, Spool::open(*storage.spool, base.refit,
                                           base.lattice->producer_count(), *storage.budget));
    if (resume) WEFT_TRY_STATUS(resolver->replay_spool());
  }
  return resolver;
}

Status Resolver::replay_spool() {
  ResolveScratch scratch;
  std::vector<std::byte> frame;
  for (std::uint32_t i = 0; i < base_.lattice->producer_count(); ++i) {
    const ProducerIndex producer{i};
    for (const FrameSequence sequence : spool_->sequences(producer)) {
      frame.resize(*spool_->frame_bytes(producer, sequence));
      WEFT_TRY_STATUS(spool_->read(producer, sequence, frame));
      const auto resolved = resolve(frame, true, scratch);
      // A frame that does not resolve is asked for again like one that was never here.
      if (!resolved && resolved.error().code != ErrorCode::kCorruptPayload &&
          resolved.error().code != ErrorCode::kProtocol) {
        return resolved.error();
      }
    }
  }
  return ok();
}

Result<Accepted> Resolver::accept(std::span<const std::byte> frame, ResolveScratch& scratch) {
  return resolve(frame, false, scratch);
}

Result<Accepted> Resolver::resolve(std::span<const std::byte> frame, bool from_spool,
                                   ResolveScratch& scratch) {
  codec::FrameExpected expected;
  expected.fleet = base_.fleet;
  expected.refit = base_.refit;
  expected.lattice = base_.lattice;
  WEFT_TRY(const codec::FrameView view, codec::FrameView::open(frame, expected));
  const wire::FrameHeader& header = view.header();
  WEFT_TRY(const bool ours, claim_frame(header));
  if (!ours) {
    ++counters_.duplicate_frames;
    return Accepted::kDuplicate;
  }
  const auto resolve_all = [&]() -> Status {
    for (std::uint32_t i = 0; i < view.chunk_count(); ++i) {
      auto done = resolve_chunk(view.entries()[i], view.payload(i), scratch);
      if (!done) {
        Error error = std::move(done).error();
        error.detail += " (" + frame_name(header) + ")";
        return error;
      }
    }
    // Kept only when it is known to be good: what is served to others has been proved here.
    if (spool_ == nullptr || from_spool) return ok();
    return spool_->append(ProducerIndex{header.producer}, FrameSequence{header.sequence},
                          frame.first(static_cast<std::size_t>(header.frame_bytes())));
  };
  const Status resolved = resolve_all();
  settle_frame(header, static_cast<bool>(resolved));
  if (!resolved) return at_stage(resolved.error(), Stage::kResolve);
  ++counters_.frames;
  counters_.wire_bytes += header.frame_bytes();
  return Accepted::kNew;
}

Result<bool> Resolver::claim_frame(const wire::FrameHeader& header) {
  // The view has checked the producer; every frame holds a chunk that no other one does.
  const std::uint32_t frame_count_max =
      base_.lattice->chunks_of(ProducerIndex{header.producer}).count;
  if (header.sequence >= frame_count_max) {
    return refuse(ErrorCode::kProtocol, frame_name(header) + ": a producer of " +
                                            std::to_string(frame_count_max) +
                                            " chunks has no such frame");
  }
  Lane& lane = *lanes_[header.producer];
  const std::lock_guard lock(lane.mutex);
  if (lane.frames.size() <= header.sequence) lane.frames.resize(std::size_t{header.sequence} + 1);
  Lane::Frame& frame = lane.frames[header.sequence];
  if (frame.mark == Mark::kNone) {
    frame = {header.checksum(), Mark::kAtWork};
    return true;
  }
  if (frame.checksum == header.checksum()) return false;
  return refuse(ErrorCode::kPayloadConflict,
                frame_name(header) + " was received before with checksum " +
                    to_hex(frame.checksum) + ", now with " + to_hex(header.checksum()));
}

void Resolver::settle_frame(const wire::FrameHeader& header, bool resolved) {
  Lane& lane = *lanes_[header.producer];
  const std::lock_guard lock(lane.mutex);
  lane.frames[header.sequence].mark = resolved ? Mark::kDone : Mark::kNone;
}

Result<bool> Resolver::claim_chunk(const wire::IndexEntry& entry) {
  Mark found = Mark::kNone;
  if (chunk_marks_[entry.chunk.value].compare_exchange_strong(found, Mark::kAtWork)) return true;
  // The frame failed after this chunk the last time: the chunk itself is journalled.
  if (found == Mark::kDone && new_table_.at(entry.chunk) == entry.new_digest) return false;
  return refuse(ErrorCode::kPayloadConflict,
                "chunk " + std::to_string(entry.chunk.value) + " is named by two frames");
}

// Decodes, verifies, and appends the records of what changed; the number of changed elements.
Result<std::size_t> Resolver::journal_chunk(const wire::IndexEntry& entry,
                                            const codec::ChunkPlace& place,
                                            std::span<const std::byte> payload,
                                            ResolveScratch& scratch) {
  const auto old_bytes = std::span(scratch.old_bytes_).first(place.bytes());
  const auto new_bytes = std::span(scratch.new_bytes_).first(place.bytes());
  WEFT_TRY_STATUS(base_.checkpoint->read(place, old_bytes));
  const codec::DecodeInput input{entry, payload, old_bytes, place.format,
                                 base_.table->at(entry.chunk)};
  WEFT_TRY_STATUS(codec::decode_chunk(input, scratch.decoder_, new_bytes));
  const auto changed =
      codec::changed_offsets(old_bytes, new_bytes, place.element_bytes(), scratch.decoder_);
  if (changed.empty()) return std::size_t{0};
  scratch.records_.open(place, changed, new_bytes);
  while (scratch.records_.next(scratch.record_)) {
    WEFT_TRY_STATUS(journal_->append(scratch.record_));
  }
  return changed.size();
}

Status Resolver::resolve_chunk(const wire::IndexEntry& entry, std::span<const std::byte> payload,
                               ResolveScratch& scratch) {
  WEFT_TRY(const bool ours, claim_chunk(entry));
  if (!ours) return ok();
  const codec::ChunkPlace place = base_.lattice->place(entry.chunk);
  auto changed = journal_chunk(entry, place, payload, scratch);
  if (!changed) {
    chunk_marks_[entry.chunk.value].store(Mark::kNone);
    Error& error = changed.error();
    error.detail += ": tensor " + base_.checkpoint->schema().tensor(place.tensor).name +
                    ", chunk " + std::to_string(entry.chunk.value);
    return std::move(error);
  }
  counters_.changed_elements += *changed;
  new_table_.set(entry.chunk, entry.new_digest);
  chunk_marks_[entry.chunk.value].store(Mark::kDone);
  ++counters_.chunks;
  return ok();
}

bool Resolver::holds(ProducerIndex producer, FrameSequence sequence) const {
  if (producer.value >= lanes_.size()) return false;
  const Lane& lane = *lanes_[producer.value];
  const std::lock_guard lock(lane.mutex);
  return sequence.value < lane.frames.size() && lane.frames[sequence.value].mark == Mark::kDone;
}

std::vector<FrameId> Resolver::missing(const wire::Manifest& manifest,
                                       std::size_t count_max) const {
  std::vector<FrameId> found;
  for (std::uint32_t i = 0; i < manifest.producers.size(); ++i) {
    const std::uint32_t frame_count = manifest.producers[i].frame_count;
    for (std::uint32_t sequence = 0; sequence < frame_count; ++sequence) {
      if (found.size() == count_max) return found;
      if (!holds(ProducerIndex{i}, FrameSequence{sequence})) {
        found.push_back({ProducerIndex{i}, FrameSequence{sequence}});
      }
    }
  }
  return found;
}

Status Resolver::check_manifest(const wire::Manifest& manifest) const {
  const auto refused = [](ErrorCode code, const std::string& what) {
    return failure(code, Stage::kPrepare, "manifest: " + what);
  };
  if (manifest.refit != base_.refit || manifest.fleet != base_.fleet) {
    return refused(ErrorCode::kProtocol, "of another refit or fleet");
  }
  if (manifest.base.root != base_.base.root || manifest.base.lattice != base_.base.lattice) {
    return refused(ErrorCode::kBaseMismatch, "its base root is " + to_hex(manifest.base.root) +
                                                 ", this node's is " + to_hex(base_.base.root));
  }
  if (manifest.schema != base_.checkpoint->schema().digest()) {
    return refused(ErrorCode::kSchemaChanged, "of another schema");
  }
  if (manifest.target.lattice != base_.lattice->digest() ||
      manifest.producers.size() != lanes_.size()) {
    return refused(ErrorCode::kProtocol, "of another lattice");
  }
  if (const auto absent = missing(manifest, 1); !absent.empty()) {
    return refused(ErrorCode::kProtocol,
                   "frame " + std::to_string(absent[0].sequence.value) + " of producer " +
                       std::to_string(absent[0].producer.value) + " is missing");
  }
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    const wire::ProducerSeal& seal = manifest.producers[i];
    const Lane& lane = *lanes_[i];
    const std::lock_guard lock(lane.mutex);
    wire::Digester digester;
    for (std::uint32_t sequence = 0; sequence < seal.frame_count; ++sequence) {
      std::byte raw[16];
      wire::store_le(raw, lane.frames[sequence].checksum.low);
      wire::store_le(raw + 8, lane.frames[sequence].checksum.high);
      digester.update(raw);
    }
    const auto held = static_cast<std::size_t>(
        std::count_if(lane.frames.begin(), lane.frames.end(),
                      [](const Lane::Frame& frame) { return frame.mark == Mark::kDone; }));
    if (digester.digest() != seal.frames || held != seal.frame_count) {
      return refused(ErrorCode::kPayloadConflict,
                     "other frames of producer " + std::to_string(i) + " than were received");
    }
    if (new_table_.part(*base_.lattice, ProducerIndex{i}) != seal.part) {
      return refused(ErrorCode::kCorruptPayload,
                     "the part of producer " + std::to_string(i) + " does not fold to its seal");
    }
  }
  if (new_table_.root(*base_.lattice) != manifest.target.root) {
    return refused(ErrorCode::kCorruptPayload, "the target's root is not what the chunks fold to");
  }
  return ok();
}

Status Resolver::prove(const wire::Manifest& manifest) {
  const auto proved = [&]() -> Status {
    WEFT_TRY_STATUS(check_manifest(manifest));
    WEFT_TRY_STATUS(base_.checkpoint->check_identity());
    WEFT_TRY_STATUS(base_.open_targets ? base_.open_targets()
                                       : base_.checkpoint->open_for_writing());
    if (spool_ != nullptr) WEFT_TRY_STATUS(spool_->sync());
    return journal_->seal(manifest, *base_.lattice, new_table_);
  }();
  if (!proved) return at_stage(proved.error(), Stage::kPrepare);
  return ok();
}

ResolveProgress Resolver::progress() const {
  ResolveProgress progress;
  progress.frames = counters_.frames;
  progress.duplicate_frames = counters_.duplicate_frames;
  progress.wire_bytes = counters_.wire_bytes;
  progress.chunks = counters_.chunks;
  progress.changed_elements = counters_.changed_elements;
  progress.journal_bytes = journal_ == nullptr ? 0 : journal_->bytes();
  return progress;
}

Status Resolver::forget() {
  spool_.reset();
  journal_.reset();
  if (storage_.spool != nullptr) WEFT_TRY_STATUS(Spool::remove(*storage_.spool, base_.refit));
  return remove_journal(*storage_.journal, base_.refit);
}

}  // namespace weft::apply
