// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/kept_frames.hpp"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "agent/lib/random_id.hpp"

namespace weft::agent {
namespace {

std::string temporary_directory() {
  const char* const named = std::getenv("TMPDIR");
  return named == nullptr || *named == '\0' ? "/tmp" : named;
}

}  // namespace

KeptFrames::~KeptFrames() {
  held_.with([&](Held& held) {
    if (!held.spool) return;
    held.spool.reset();
    held.store.reset();
    if (const Status removed = held.directory->remove_tree(name_); !removed) {
      const EventField fields[] = {{"error", removed.error().message()}};
      events_.report(Severity::kWarning, "producer_spool_not_removed", fields);
    }
  });
}

Status KeptFrames::open_spool(Held& held) {
  const std::string path = options_.directory.empty() ? temporary_directory() : options_.directory;
  apply::StoreOptions store;
  store.durability = apply::Durability::kProcess;  // of no use to the next process
  WEFT_TRY(held.directory, apply::open_store(path, store, events_));
  name_ = "weft-frames-" + to_hex(random_u64());
  WEFT_TRY(held.store, held.directory->open_directory(name_, true));
  WEFT_TRY(held.spool,
           apply::Spool::open(*held.store, options_.refit, options_.producer_count, budget_));
  const EventField fields[] = {{"directory", path + "/" + name_},
                               {"memory_bytes", std::to_string(held.bytes)}};
  events_.report(Severity::kInfo, "producer_spool_opened", fields);
  return ok();
}

Status KeptFrames::keep(FrameSequence sequence, std::span<const std::byte> frame) {
  return held_.with([&](Held& held) -> Status {
    if (held.bytes + frame.size() > options_.memory_bytes) {
      if (!held.spool) WEFT_TRY_STATUS(open_spool(held));
      return held.spool->append(options_.producer, sequence, frame);
    }
    if (held.frames.size() <= sequence.value) held.frames.resize(sequence.value + std::size_t{1});
    held.frames[sequence.value].assign(frame.begin(), frame.end());
    held.bytes += frame.size();
    return ok();
  });
}

Result<std::uint32_t> KeptFrames::read(FrameSequence sequence, std::span<std::byte> into) const {
  return held_.with([&](const Held& held) -> Result<std::uint32_t> {
    const bool here = sequence.value < held.frames.size() && !held.frames[sequence.value].empty();
    if (here) {
      const auto& frame = held.frames[sequence.value];
      if (frame.size() > into.size()) {
        return failure(ErrorCode::kProtocol, Stage::kRelay,
                       "frame " + std::to_string(sequence.value) + " does not fit the room");
      }
      std::memcpy(into.data(), frame.data(), frame.size());
      return static_cast<std::uint32_t>(frame.size());
    }
    if (held.spool) return held.spool->read(options_.producer, sequence, into);
    return failure(ErrorCode::kProtocol, Stage::kRelay,
                   "frame " + std::to_string(sequence.value) + " is not kept here");
  });
}

std::uint64_t KeptFrames::memory_bytes() const {
  return held_.with([](const Held& held) { return held.bytes; });
}

std::uint64_t KeptFrames::spool_bytes() const {
  return held_.with([](const Held& held) { return held.spool ? held.spool->bytes() : 0; });
}

}  // namespace weft::agent
