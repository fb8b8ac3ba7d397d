// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apply/spool/spool.hpp"
#include "apply/store/disk_budget.hpp"
#include "apply/store/store.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/guarded.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft::agent {

struct KeptFramesOptions {
  RefitId refit;
  ProducerIndex producer;
  std::uint32_t producer_count = 1;
  std::uint64_t memory_bytes = 0;  // producer.spool_bytes
  std::string directory;           // producer.state_dir; empty: the system's temporary directory
};

// KeptFrames holds every frame that a producer has sent until the decision, so that what died with
// a relay is never lost: in memory, and beyond `memory_bytes` in a spool file.
// Owns:    the frames and the spool, which is removed at the end.
// Threads: any.
class KeptFrames {
 public:
  KeptFrames(KeptFramesOptions options, EventSink& events)
      : options_(std::move(options)), events_(events) {}
  ~KeptFrames();
  KeptFrames(const KeptFrames&) = delete;
  KeptFrames& operator=(const KeptFrames&) = delete;

  const RefitId& refit() const { return options_.refit; }
  // Before the frame is sent. Errors: kConfig (no such directory), kNoSpace, I/O.
  Status keep(FrameSequence sequence, std::span<const std::byte> frame);
  // Bytes of the frame. Errors: kProtocol (not here), I/O.
  Result<std::uint32_t> read(FrameSequence sequence, std::span<std::byte> into) const;
  std::uint64_t memory_bytes() const;
  std::uint64_t spool_bytes() const;

 private:
  struct Held {
    std::vector<std::vector<std::byte>> frames;  // by sequence; empty: in the spool, or not here
    std::uint64_t bytes = 0;
    std::unique_ptr<apply::Store> directory;
    std::unique_ptr<apply::Store> store;
    std::unique_ptr<apply::Spool> spool;
  };
  Status open_spool(Held& held);

  const KeptFramesOptions options_;
  EventSink& events_;
  apply::DiskBudget budget_{~std::uint64_t{0}};
  std::string name_;
  mutable Guarded<Held> held_;
};

}  // namespace weft::agent
