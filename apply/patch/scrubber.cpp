// SPDX-License-Identifier: Apache-2.0
#include "apply/patch/scrubber.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "apply/store/thread_priority.hpp"
#include "weft/wire/digest.hpp"

namespace weft::apply {

namespace {

// So long until an apply that is under way is looked at again.
constexpr Duration kBusyRest = std::chrono::milliseconds(200);
// A pass ends well before its period, so that a busy machine does not make it late.
constexpr double kPeriodShare = 0.9;

}  // namespace

Scrubber::Scrubber(ScrubOptions options) : options_(std::move(options)) {
  if (options_.period > Duration::zero()) thread_ = std::thread([this] { run(); });
}

Scrubber::~Scrubber() {
  state_.update([](State& state) { state.closed = true; });
  if (thread_.joinable()) thread_.join();
}

void Scrubber::note_verified() {
  state_.with([](State& state) { state.progress.pass_ended = std::chrono::steady_clock::now(); });
}

ScrubProgress Scrubber::progress() const {
  return state_.with([](const State& state) { return state.progress; });
}

// False when the scrubber is to end.
bool Scrubber::rest(Duration duration) {
  return !state_.wait_for(
      duration, [](const State& state) { return state.closed; },
      [](const State& state, bool) { return state.closed; });
}

// Between two chunks: spread over the period, and no faster than allowed.
Duration Scrubber::pace(const ScrubSubject& subject) const {
  const double chunks = std::max(1.0, static_cast<double>(subject.lattice->chunk_count()));
  const double bytes = static_cast<double>(subject.checkpoint->schema().tensor_bytes());
  const double spread =
      std::chrono::duration<double>(options_.period).count() * kPeriodShare / chunks;
  const double fastest = bytes / chunks / static_cast<double>(options_.bytes_per_second);
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::max(spread, fastest)));
}

void Scrubber::run() {
  give_way_to_readers(options_.nice_steps);
  Duration wait = Duration::zero();
  std::uint32_t next = 0;
  while (rest(wait)) {
    const auto subject = options_.subject();
    if (!subject || subject->lattice->chunk_count() == 0) {
      wait = kBusyRest;
      continue;
    }
    const std::uint32_t count = subject->lattice->chunk_count();
    if (next >= count) next = 0;
    check(*subject, ChunkIndex{next});
    ++next;
    state_.with([&](State& state) {
      state.progress.chunks_checked = next;
      state.progress.chunk_count = count;
      if (next < count) return;
      ++state.progress.passes;
      state.progress.pass_ended = std::chrono::steady_clock::now();
    });
    wait = pace(*subject);
  }
}

bool Scrubber::differs(const ScrubSubject& subject, ChunkIndex chunk,
                       std::vector<std::byte>& bytes) const {
  const codec::ChunkPlace place = subject.lattice->place(chunk);
  bytes.resize(place.bytes());
  const Status found = subject.checkpoint->read(place, bytes);
  return !found || wire::digest64(bytes) != subject.table->at(chunk);
}

// A difference counts when nothing was written around either look at the chunk.
void Scrubber::check(const ScrubSubject& subject, ChunkIndex chunk) {
  std::vector<std::byte> bytes;
  for (int look = 0; look < 2; ++look) {
    if (!differs(subject, chunk, bytes)) return;
    const auto now = options_.subject();
    if (!now || !(*now == subject)) return;  // an apply came between: the next pass has it
  }
  state_.with([](State& state) { ++state.progress.damaged_chunks; });
  const codec::ChunkPlace place = subject.lattice->place(chunk);
  const codec::Tensor& tensor = subject.checkpoint->schema().tensor(place.tensor);
  options_.on_damage(
      make_error(ErrorCode::kBaseMismatch, Stage::kScan,
                 "scrub: chunk " + std::to_string(chunk.value) + " (tensor " + tensor.name + ", " +
                     std::to_string(place.element_count) + " elements from element " +
                     std::to_string(place.element_at(0)) + " on, file " +
                     subject.checkpoint->schema().files()[tensor.file_index].name +
                     ") is not what the digest table says: the node needs a reseed"));
}

}  // namespace weft::apply
