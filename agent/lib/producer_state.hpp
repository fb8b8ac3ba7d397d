// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apply/commit/producer_log.hpp"
#include "apply/store/record_log.hpp"
#include "apply/store/store.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/result.hpp"

namespace weft::agent {

// A chunk's new values as a journal record, counted within the chunk.
// Threads: a value; one at a time.
struct PendingChunk {
  ChunkIndex chunk;
  std::vector<std::byte> record;
};

// ProducerState is what a producer has on disk (docs/formats/producer-state.md): the log that says
// which content its baseline is, the baseline's bytes as a mapped file, and the new values of the
// refit at hand beside it.
// Invariant: pending values are durable before their record is, and stay until the record that ends
//            them is.
// Owns:      the directory's lock, the log, the mapping.
// Threads:   one at a time.
class ProducerState {
 public:
  // Makes the directory (0700) when it is missing. Errors: kBusy (another producer has it), and
  // those of RecordLog::open.
  static Result<std::unique_ptr<ProducerState>> open(const std::string& directory,
                                                     EventSink& events);
  ~ProducerState();
  ProducerState(const ProducerState&) = delete;
  ProducerState& operator=(const ProducerState&) = delete;

  // What the log says; without a baseline the directory is new.
  apply::ProducerFold fold() const { return apply::fold_producer(records_); }
  // Durable when it returns. A half-full log is rewritten from its fold first. Behind a record that
  // ends a refit its pending values are removed.
  Status append(const apply::ProducerRecord& record);

  // The baseline file, mapped for this object's life. A new directory's is made, of real blocks.
  // Errors: kNeedsReseed (another size), kNoSpace, I/O.
  Result<std::span<std::byte>> map_baseline(std::uint64_t bytes);
  // What was written through the mapping survives a power cut.
  Status sync_baseline();

  // Replaces what is pending; durable when it returns.
  Status write_pending(const RefitId& refit, std::span<const PendingChunk> chunks);
  // Errors: kNeedsReseed (not what was written), I/O.
  Result<std::vector<PendingChunk>> read_pending(const RefitId& refit) const;

 private:
  ProducerState(std::string directory, std::unique_ptr<apply::Store> store,
                std::unique_ptr<apply::FileLock> lock, apply::RecordLog log,
                std::vector<apply::ProducerRecord> records)
      : directory_(std::move(directory)),
        store_(std::move(store)),
        lock_(std::move(lock)),
        log_(std::move(log)),
        records_(std::move(records)) {}
  Error damaged(std::string_view name, const std::string& what) const;

  const std::string directory_;
  std::unique_ptr<apply::Store> store_;
  std::unique_ptr<apply::FileLock> lock_;
  apply::RecordLog log_;
  std::vector<apply::ProducerRecord> records_;
  std::unique_ptr<apply::File> baseline_;
  std::span<std::byte> mapping_;
};

}  // namespace weft::agent
