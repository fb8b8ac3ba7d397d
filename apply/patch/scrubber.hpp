// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "apply/store/checkpoint_dir.hpp"
#include "codec/digest/digest_table.hpp"
#include "codec/project/lattice.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/guarded.hpp"
#include "weft/base/result.hpp"
#include "weft/base/units.hpp"

namespace weft::apply {

// What is compared with what. Both are kept alive while a chunk is read.
// Threads: a value; one at a time.
struct ScrubSubject {
  std::shared_ptr<const CheckpointDir> checkpoint;
  std::shared_ptr<const codec::DigestTable> table;
  const codec::Lattice* lattice = nullptr;
  std::uint64_t generation = 0;  // another one: bytes may have changed since
  bool operator==(const ScrubSubject&) const = default;
};

// Threads: a value; one at a time.
struct ScrubOptions {
  Duration period = std::chrono::hours(24);    // one pass; zero: no thread is started
  std::uint64_t bytes_per_second = 64 * kMiB;  // read no faster
  std::uint32_t nice_steps = 0;                // give_way_to_readers, for its thread
  // Right now; nullopt while files change or nothing is known about them.
  std::function<std::optional<ScrubSubject>()> subject;
  std::function<void(Error)> on_damage;  // on the scrubber's thread
};

// Threads: a value; one at a time.
struct ScrubProgress {
  std::uint64_t chunks_checked = 0;  // of this pass
  std::uint64_t chunk_count = 0;
  std::uint64_t passes = 0;             // finished
  std::optional<TimePoint> pass_ended;  // the last one, or what counts as one
  std::uint64_t damaged_chunks = 0;
};

// Scrubber reads the weight files again in the background, chunk by chunk, and compares each with
// the digest table: a bit that flipped on the disk is found within a period though nobody wrote.
// What it finds is read a second time before it is told, and told once per chunk and pass.
// Owns:    one thread and one chunk of memory.
// Threads: any.
class Scrubber {
 public:
  explicit Scrubber(ScrubOptions options);
  ~Scrubber();
  Scrubber(const Scrubber&) = delete;
  Scrubber& operator=(const Scrubber&) = delete;

  // Every chunk has just been read for another reason.
  void note_verified();
  ScrubProgress progress() const;

 private:
  struct State {
    ScrubProgress progress;
    bool closed = false;
  };
  void run();
  bool rest(Duration duration);
  void check(const ScrubSubject& subject, ChunkIndex chunk);
  bool differs(const ScrubSubject& subject, ChunkIndex chunk, std::vector<std::byte>& bytes) const;
  Duration pace(const ScrubSubject& subject) const;

  const ScrubOptions options_;
  Guarded<State> state_;
  std::thread thread_;
};

}  // namespace weft::apply
