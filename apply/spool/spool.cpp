// SPDX-License-Identifier: Apache-2.0
#include "apply/spool/spool.hpp"

#include <algorithm>
#include <cstring>

#include "apply/store/native_error.hpp"
#include "weft/base/limits.hpp"
#include "weft/base/units.hpp"

namespace weft::apply {

namespace {

// Room is asked for in such steps: a full disk shows while frames arrive, before any vote.
constexpr std::uint64_t kAllocationStep = 4 * kMiB;
// The disk writes while frames arrive, so that the sync before the vote finds little left.
constexpr std::uint64_t kWritebackStep = kMiB;
constexpr std::uint64_t kFrameBytesMax = 4 * kMiB;  // of the largest slot

std::string lane_name(std::size_t producer) { return "p" + std::to_string(producer); }

}  // namespace

Spool::Spool(std::unique_ptr<Store> directory, Store& parent, DiskBudget& budget,
             std::uint32_t producer_count)
    : directory_(std::move(directory)), parent_(parent), budget_(budget) {
  for (std::uint32_t i = 0; i < producer_count; ++i) lanes_.push_back(std::make_unique<Lane>());
}

Spool::~Spool() {
  for (const auto& lane : lanes_) budget_.give_back(lane->charged);
}

Result<std::unique_ptr<Spool>> Spool::open(Store& store, const RefitId& refit,
                                           std::uint32_t producer_count, DiskBudget& budget) {
  WEFT_TRY(auto directory, store.open_directory(to_string(refit), true));
  std::unique_ptr<Spool> spool(new Spool(std::move(directory), store, budget, producer_count));
  for (std::uint32_t i = 0; i < producer_count; ++i) {
    Lane& lane = *spool->lanes_[i];
    auto file = spool->directory_->open(lane_name(i), Access::kReadWrite);
    if (!file && is_missing(file.error())) file = spool->directory_->create(lane_name(i));
    if (!file) return std::move(file).error();
    lane.file = *std::move(file);
    WEFT_TRY_STATUS(spool->recover(lane, ProducerIndex{i}, refit));
  }
  return spool;
}

Status Spool::remove(Store& store, const RefitId& refit) {
  WEFT_TRY_STATUS(store.remove_tree(to_string(refit)));
  return store.sync_directory();
}

Result<std::optional<wire::FrameHeader>> Spool::load_next(const Lane& lane,
                                                          std::vector<std::byte>& frame) const {
  frame.resize(limits::kFrameHeaderBytes);
  WEFT_TRY(std::size_t found, lane.file->read_up_to(lane.end, frame));
  if (found < frame.size()) return std::optional<wire::FrameHeader>();
  wire::FrameHeader claimed;
  std::memcpy(&claimed, frame.data(), sizeof(claimed));
  if (claimed.magic != wire::kFrameMagic || claimed.frame_bytes() > kFrameBytesMax) {
    return std::optional<wire::FrameHeader>();
  }
  frame.resize(static_cast<std::size_t>(claimed.frame_bytes()));
  WEFT_TRY(found, lane.file->read_up_to(lane.end, frame));
  if (found < frame.size()) return std::optional<wire::FrameHeader>();
  const auto header = wire::load_frame_header(frame);
  if (!header || wire::frame_checksum(*header, std::span(frame).subspan(sizeof(claimed))) !=
                     header->checksum()) {
    return std::optional<wire::FrameHeader>();
  }
  return std::optional(*header);
}

Status Spool::recover(Lane& lane, ProducerIndex producer, const RefitId& refit) {
  WEFT_TRY(const std::uint64_t present, lane.file->size());
  std::vector<std::byte> frame;
  while (true) {
    WEFT_TRY(const auto header, load_next(lane, frame));
    if (!header || header->producer != producer.value || header->refit() != refit) break;
    const auto bytes = static_cast<std::uint32_t>(frame.size());
    WEFT_TRY_STATUS(budget_.charge(bytes));
    lane.charged += bytes;
    WEFT_TRY_STATUS(note(lane, FrameSequence{header->sequence}, bytes));
  }
  return lane.end == present ? ok() : lane.file->truncate(lane.end);
}

// The frame at the lane's end is whole.
Status Spool::note(Lane& lane, FrameSequence sequence, std::uint32_t bytes) {
  if (sequence.value >= kFramesMax) {
    return failure(ErrorCode::kProtocol, Stage::kResolve,
                   "frame number " + std::to_string(sequence.value));
  }
  if (lane.places.size() <= sequence.value) lane.places.resize(std::size_t{sequence.value} + 1);
  lane.places[sequence.value] = {lane.end, bytes};
  lane.end += bytes;
  return ok();
}

Status Spool::make_room(Lane& lane, std::uint32_t bytes) {
  if (lane.end + bytes <= lane.allocated) return ok();
  const std::uint64_t step = std::max<std::uint64_t>(bytes, kAllocationStep);
  Status reserved = lane.file->allocate(lane.end, step, false);
  // Near the end of the disk the frame alone may still fit.
  if (!reserved && reserved.error().code == ErrorCode::kNoSpace && bytes < step) {
    reserved = lane.file->allocate(lane.end, bytes, false);
    if (reserved) lane.allocated = lane.end + bytes;
    return reserved;
  }
  if (!reserved && reserved.error().code != ErrorCode::kUnsupported) return reserved;
  lane.allocated = lane.end + step;
  return ok();
}

Status Spool::append(ProducerIndex producer, FrameSequence sequence,
                     std::span<const std::byte> frame) {
  if (producer.value >= lanes_.size() || sequence.value >= kFramesMax) {
    return failure(ErrorCode::kProtocol, Stage::kResolve,
                   "frame " + std::to_string(sequence.value) + " of producer " +
                       std::to_string(producer.value) + " in a spool of " +
                       std::to_string(lanes_.size()));
  }
  Lane& lane = *lanes_[producer.value];
  const auto bytes = static_cast<std::uint32_t>(frame.size());
  // One at a time per producer: what a killed process leaves is a whole prefix and one torn frame.
  const std::lock_guard lock(lane.mutex);
  if (sequence.value < lane.places.size() && lane.places[sequence.value].bytes != 0) return ok();
  WEFT_TRY_STATUS(budget_.charge(bytes));
  lane.charged += bytes;
  Status written = make_room(lane, bytes);
  if (written) written = lane.file->write(lane.end, frame);
  if (!written) {
    budget_.give_back(bytes);
    lane.charged -= bytes;
    return at_stage(std::move(written).error(), Stage::kResolve);
  }
  WEFT_TRY_STATUS(note(lane, sequence, bytes));
  if (lane.end - lane.started >= kWritebackStep) {
    lane.file->start_writeback(lane.started, lane.end - lane.started);
    lane.started = lane.end;
  }
  return ok();
}

std::optional<std::uint32_t> Spool::frame_bytes(ProducerIndex producer,
                                                FrameSequence sequence) const {
  if (producer.value >= lanes_.size()) return std::nullopt;
  Lane& lane = *lanes_[producer.value];
  const std::lock_guard lock(lane.mutex);
  if (sequence.value >= lane.places.size()) return std::nullopt;
  const std::uint32_t bytes = lane.places[sequence.value].bytes;
  return bytes == 0 ? std::nullopt : std::optional(bytes);
}

Result<std::uint32_t> Spool::read(ProducerIndex producer, FrameSequence sequence,
                                  std::span<std::byte> into) const {
  Place place;
  if (producer.value < lanes_.size()) {
    Lane& lane = *lanes_[producer.value];
    const std::lock_guard lock(lane.mutex);
    if (sequence.value < lane.places.size()) place = lane.places[sequence.value];
  }
  if (place.bytes == 0 || place.bytes > into.size()) {
    return failure(ErrorCode::kProtocol, Stage::kResolve,
                   "frame " + std::to_string(sequence.value) + " of producer " +
                       std::to_string(producer.value) +
                       (place.bytes == 0 ? " is not in the spool" : " does not fit the slot"));
  }
  WEFT_TRY_STATUS(lanes_[producer.value]->file->read(place.offset, into.first(place.bytes)));
  return place.bytes;
}

std::vector<FrameSequence> Spool::sequences(ProducerIndex producer) const {
  std::vector<FrameSequence> found;
  if (producer.value >= lanes_.size()) return found;
  Lane& lane = *lanes_[producer.value];
  const std::lock_guard lock(lane.mutex);
  for (std::uint32_t i = 0; i < lane.places.size(); ++i) {
    if (lane.places[i].bytes != 0) found.push_back(FrameSequence{i});
  }
  return found;
}

std::uint64_t Spool::bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& lane : lanes_) {
    const std::lock_guard lock(lane->mutex);
    bytes += lane->end;
  }
  return bytes;
}

Status Spool::sync() {
  for (const auto& lane : lanes_) {
    const std::lock_guard lock(lane->mutex);
    WEFT_TRY_STATUS(lane->file->sync());
  }
  WEFT_TRY_STATUS(directory_->sync_directory());
  return parent_.sync_directory();
}

}  // namespace weft::apply
