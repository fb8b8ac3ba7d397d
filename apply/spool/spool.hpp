// SPDX-License-Identifier: Apache-2.0
// The wire frames of one refit, as received, so that peers who missed some can be served and a
// restarted agent need not ask for what it has (docs/formats/spool.md).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apply/store/disk_budget.hpp"
#include "apply/store/store.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/frame.hpp"

namespace weft::apply {

// Spool keeps one append file per producer below `<state>/spool/<refit>/` and where each frame lies
// in memory (24 bytes a frame).
// Invariant: what read() returns is byte for byte what append() was given.
// Owns:      the files; charges the budget and gives it back on destruction.
// Threads:   any; appends of one producer take turns.
class Spool {
 public:
  // A frame number above this cannot be: each frame holds a chunk of its own.
  static constexpr std::uint32_t kFramesMax = 1U << 26;

  // Makes the directory, or takes up the one that is there: frames whose checksum holds are kept,
  // the file is cut behind the last good one. The store is `<state>/spool`.
  static Result<std::unique_ptr<Spool>> open(Store& store, const RefitId& refit,
                                             std::uint32_t producer_count, DiskBudget& budget);
  // Success when there is none.
  static Status remove(Store& store, const RefitId& refit);
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  // The frame must have been checked. One that is there already is success without effect.
  Status append(ProducerIndex producer, FrameSequence sequence, std::span<const std::byte> frame);
  // Bytes of the frame, or nullopt when it is not here.
  std::optional<std::uint32_t> frame_bytes(ProducerIndex producer, FrameSequence sequence) const;
  // `into` must have room for the frame; returns its bytes. Errors: kProtocol (not here), I/O.
  Result<std::uint32_t> read(ProducerIndex producer, FrameSequence sequence,
                             std::span<std::byte> into) const;
  // Sequences that are here, ascending.
  std::vector<FrameSequence> sequences(ProducerIndex producer) const;
  std::uint64_t bytes() const;
  // All frames and the names of their files survive a power cut.
  Status sync();

 private:
  struct Place {
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;  // 0: not here
  };
  struct Lane {
    std::mutex mutex;
    std::unique_ptr<File> file;
    std::vector<Place> places;  // by sequence
    std::uint64_t end = 0;
    std::uint64_t allocated = 0;
    std::uint64_t started = 0;  // below this the disk has been asked to write
    std::uint64_t charged = 0;
  };

  Spool(std::unique_ptr<Store> directory, Store& parent, DiskBudget& budget,
        std::uint32_t producer_count);
  Status recover(Lane& lane, ProducerIndex producer, const RefitId& refit);
  // The frame at the lane's end if a whole and good one lies there.
  Result<std::optional<wire::FrameHeader>> load_next(const Lane& lane,
                                                     std::vector<std::byte>& frame) const;
  static Status note(Lane& lane, FrameSequence sequence, std::uint32_t bytes);
  Status make_room(Lane& lane, std::uint32_t bytes);

  std::unique_ptr<Store> directory_;
  Store& parent_;
  DiskBudget& budget_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace weft::apply
