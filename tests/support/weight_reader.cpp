// SPDX-License-Identifier: Apache-2.0
// A runtime's side of the weights, for system tests. Reads until its standard input ends, then
// prints one JSON object and leaves.
//   weft_weight_reader hash DIR     takes the lock, hashes every byte, compares with the root told
//   weft_weight_reader follow DIR   keeps a copy up to date from what changes, compares its root
//   weft_weight_reader gap DIR      polls every 0.1 ms: the longest time without the right to read
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "apply/patch/digest_directory.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "codec/project/lattice.hpp"
#include "weft/weight_view.hpp"
#include "weft/wire/digest.hpp"

namespace {

using namespace weft;  // NOLINT(google-build-using-namespace)
using namespace std::chrono_literals;

constexpr Duration kPatience = 60s;
NullEventSink no_events;

bool input_ended(int patience_ms) {
  pollfd ready{STDIN_FILENO, POLLIN, 0};
  char byte = 0;
  return ::poll(&ready, 1, patience_ms) == 1 && ::read(STDIN_FILENO, &byte, 1) <= 0;
}

struct Outcome {
  std::uint64_t reads = 0;
  std::uint64_t mixtures = 0;
  std::uint64_t full_copies = 0;
  std::uint64_t elements = 0;
  double longest_gap_ms = 0;
  std::set<std::uint64_t> versions;
  std::string error;
};

apply::CheckpointDir open_dir(const std::string& path) {
  return *apply::CheckpointDir::open_path(
      path, apply::Access::kRead, {apply::Engine::kPosix, apply::Durability::kProcess}, no_events);
}

void hash(WeightView& view, Outcome& outcome) {
  while (!input_ended(0)) {
    const auto lock = view.acquire(kPatience);
    if (!lock) {
      outcome.error = lock.error().message();
      return;
    }
    const auto checkpoint = open_dir(lock->path());
    const auto lattice = *codec::Lattice::default_for(checkpoint.schema());
    const auto table = apply::digest_directory(checkpoint, lattice, 1);
    if (!table || table->root(lattice) != lock->content().root) ++outcome.mixtures;
    ++outcome.reads;
    outcome.versions.insert(lock->version().value);
  }
}

// The tensors in this process's memory, as an engine would have them on a device.
// Threads: one at a time.
class Copy {
 public:
  explicit Copy(const std::string& path)
      : schema_(open_dir(path).schema()), lattice_(*codec::Lattice::default_for(schema_)) {}

  void read_all(const std::string& path) {
    const auto checkpoint = open_dir(path);
    tensors_.clear();
    for (const codec::Tensor& tensor : schema_.tensors()) {
      tensors_.emplace_back(tensor.bytes);
      static_cast<void>(
          checkpoint.file(tensor.file_index).read(tensor.file_offset, tensors_.back()));
    }
  }
  void take(const TensorChange& change) {
    auto& bytes = tensors_[schema_.find(change.name)->value];
    for (std::size_t i = 0; i < change.offsets.size(); ++i) {
      std::memcpy(bytes.data() + change.offsets[i] * change.element_bytes,
                  change.values.data() + i * change.element_bytes, change.element_bytes);
    }
  }
  Digest root() const {
    codec::DigestTable table(lattice_.chunk_count());
    for (std::uint32_t i = 0; i < lattice_.chunk_count(); ++i) {
      const auto place = lattice_.place(ChunkIndex{i});
      table.set(
          ChunkIndex{i},
          wire::digest64(std::span(tensors_[place.tensor.value])
                             .subspan(place.first_element * place.element_bytes(), place.bytes())));
    }
    return table.root(lattice_);
  }

 private:
  codec::Schema schema_;
  codec::Lattice lattice_;
  std::vector<std::vector<std::byte>> tensors_;
};

void follow(WeightView& view, Outcome& outcome) {
  auto first = view.acquire(kPatience);
  if (!first) {
    outcome.error = first.error().message();
    return;
  }
  Copy copy(first->path());
  copy.read_all(first->path());
  Version version = first->version();
  { const WeightLock done = *std::move(first); }
  while (!input_ended(0)) {
    const auto step = view.wait(100ms);
    if (!step) continue;
    const auto summary =
        view.changes(version, step->to, [&](const TensorChange& change) { copy.take(change); });
    const auto lock = view.acquire(kPatience);
    if (!summary || !lock) {
      outcome.error = !summary ? summary.error().message() : lock.error().message();
      return;
    }
    if (summary->needs_full || lock->version() != step->to) {
      ++outcome.full_copies;
      copy.read_all(lock->path());
      version = lock->version();
      continue;
    }
    version = step->to;
    outcome.elements += summary->changed_elements;
    if (copy.root() != lock->content().root) ++outcome.mixtures;
    ++outcome.reads;
    outcome.versions.insert(version.value);
  }
}

void measure_gap(WeightView& view, Outcome& outcome) {
  auto last = std::chrono::steady_clock::now();
  while (!input_ended(0)) {
    const auto lock = view.acquire(kPatience);
    if (!lock) {
      outcome.error = lock.error().message();
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (outcome.reads != 0) {
      outcome.longest_gap_ms = std::max(
          outcome.longest_gap_ms, std::chrono::duration<double, std::milli>(now - last).count());
    }
    last = now;
    ++outcome.reads;
    outcome.versions.insert(lock->version().value);
    const timespec pause{0, 100'000};
    ::ppoll(nullptr, 0, &pause, nullptr);
  }
}

int finish(const Outcome& outcome) {
  std::string versions;
  for (const std::uint64_t version : outcome.versions) {
    versions += (versions.empty() ? "" : ",") + std::to_string(version);
  }
  std::printf(
      "{\"reads\":%llu,\"mixtures\":%llu,\"full_copies\":%llu,\"elements\":%llu,"
      "\"longest_gap_ms\":%.3f,\"versions\":[%s]}\n",
      static_cast<unsigned long long>(outcome.reads),
      static_cast<unsigned long long>(outcome.mixtures),
      static_cast<unsigned long long>(outcome.full_copies),
      static_cast<unsigned long long>(outcome.elements), outcome.longest_gap_ms, versions.c_str());
  if (!outcome.error.empty()) std::fprintf(stderr, "%s\n", outcome.error.c_str());
  return outcome.error.empty() && outcome.mixtures == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count == 3 ? arguments[1] : "";
  if (mode != "hash" && mode != "follow" && mode != "gap") {
    std::fprintf(stderr, "usage: weft_weight_reader hash|follow|gap DIR\n");
    return 2;
  }
  auto view = WeightView::open(arguments[2]);
  if (!view) {
    std::fprintf(stderr, "%s\n", view.error().message().c_str());
    return 1;
  }
  Outcome outcome;
  if (mode == "hash") hash(*view, outcome);
  if (mode == "follow") follow(*view, outcome);
  if (mode == "gap") measure_gap(*view, outcome);
  return finish(outcome);
}
