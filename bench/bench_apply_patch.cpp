// SPDX-License-Identifier: Apache-2.0
// Applying one journal to one weight file: io_uring, pread and pwrite, and stores through a
// mapping, on the same file in the same run, its pages written back (clean) before each pass. What
// they are compared with: the same file rewritten with pread and pwrite of 1 MiB. Passes take
// turns.
//   bench_apply_patch DIRECTORY [MiB 512] [percent 3] [runs 5]
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "apply/journal/journal_reader.hpp"
#include "apply/journal/journal_writer.hpp"
#include "apply/patch/patcher.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "weft/base/assert.hpp"
#include "weft/base/units.hpp"

namespace {

using namespace weft;         // NOLINT(google-build-using-namespace)
using namespace weft::apply;  // NOLINT(google-build-using-namespace)

constexpr const char* kFileName = "model.safetensors";
const RefitId kRefit{{1, ProcessId{1}}, 1};
NullEventSink no_events;

struct Setup {
  std::string directory;
  std::uint64_t model_bytes = 0;
  double percent = 3;
  int runs = 5;
};

std::uint64_t next_random(std::uint64_t& state) {
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return state >> 32;
}

void write_model(Store& store, std::uint64_t bytes) {
  std::string header = "{\"w\":{\"dtype\":\"BF16\",\"shape\":[" + std::to_string(bytes / 2) +
                       "],\"data_offsets\":[0," + std::to_string(bytes) + "]}}";
  const std::uint64_t length = header.size();
  std::vector<std::byte> head(8);
  std::memcpy(head.data(), &length, 8);
  const auto text = std::as_bytes(std::span(header));
  head.insert(head.end(), text.begin(), text.end());
  WEFT_ASSERT(store.remove_tree(kFileName));
  auto file = *store.create(kFileName);
  WEFT_ASSERT(file->write(0, head));
  std::vector<std::byte> part(kMiB, std::byte{0x3F});
  for (std::uint64_t at = 0; at < bytes; at += part.size()) {
    WEFT_ASSERT(file->write(head.size() + at, part));
  }
  WEFT_ASSERT(file->sync());
}

std::uint64_t write_journal(Store& journals, const CheckpointDir& checkpoint, double percent) {
  const auto lattice = *codec::Lattice::default_for(checkpoint.schema());
  DiskBudget budget(std::uint64_t{1} << 50);
  auto writer = *JournalWriter::open(journals, kRefit, checkpoint.schema(), budget);
  const auto threshold = static_cast<std::uint64_t>(percent / 100 * 4294967296.0);
  std::uint64_t state = 1;
  std::vector<std::byte> values(limits::kChunkBytesMax);
  for (std::byte& value : values) value = static_cast<std::byte>(next_random(state));
  std::vector<std::uint32_t> changed;
  std::vector<std::byte> record;
  std::uint64_t changes = 0;
  for (std::uint32_t i = 0; i < lattice.chunk_count(); ++i) {
    const auto place = lattice.place(ChunkIndex{i});
    changed.clear();
    for (std::uint32_t e = 0; e < place.element_count; ++e) {
      if (next_random(state) < threshold) changed.push_back(e);
    }
    if (changed.empty()) continue;
    record.clear();
    encode_record(place.tensor, place.first_element, 2, changed,
                  std::span(values).first(place.bytes()), record);
    WEFT_ASSERT(writer->append(record));
    changes += changed.size();
  }
  wire::Manifest manifest;
  manifest.refit = kRefit;
  WEFT_ASSERT(writer->seal(manifest, lattice, codec::DigestTable(lattice.chunk_count())));
  return changes;
}

double seconds_of(const std::chrono::steady_clock::time_point& start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Status apply_through_mapping(const JournalReader& journal, CheckpointDir& checkpoint) {
  File& file = checkpoint.file(0);
  WEFT_TRY(const std::uint64_t bytes, file.size());
  void* memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.native_handle(), 0);
  WEFT_ASSERT(memory != MAP_FAILED);
  const std::span<std::byte> whole(static_cast<std::byte*>(memory), bytes);
  auto cursor = journal.cursor();
  std::vector<std::byte> record;
  while (true) {
    WEFT_TRY(const auto entry, cursor.next());
    if (!entry) break;
    WEFT_TRY_STATUS(journal.read_record(*entry, record));
    apply_record({record, entry->address, 0}, whole);
  }
  ::munmap(memory, bytes);
  return ok();
}

Status rewrite(CheckpointDir& checkpoint) {
  File& file = checkpoint.file(0);
  WEFT_TRY(const std::uint64_t bytes, file.size());
  std::vector<std::byte> part(kMiB);
  for (std::uint64_t at = 0; at < bytes; at += kMiB) {
    const auto now =
        std::span(part).first(static_cast<std::size_t>(std::min<std::uint64_t>(kMiB, bytes - at)));
    WEFT_TRY_STATUS(file.read(at, now));
    WEFT_TRY_STATUS(file.write(at, now));
  }
  return ok();
}

// One way to change the file, and how long its passes took.
struct Contender {
  std::string name;
  CheckpointDir* checkpoint = nullptr;
  std::function<Status()> pass;
  std::vector<double> applied;
  std::vector<double> synced;
};

double middle(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

void take_turns(const Setup& setup, std::vector<Contender>& contenders) {
  for (int i = 0; i < setup.runs; ++i) {
    for (Contender& contender : contenders) {
      WEFT_ASSERT(contender.checkpoint->sync());
      const auto start = std::chrono::steady_clock::now();
      WEFT_ASSERT(contender.pass());
      contender.applied.push_back(seconds_of(start));
      WEFT_ASSERT(contender.checkpoint->sync());
      contender.synced.push_back(seconds_of(start));
    }
  }
  const double mb = static_cast<double>(setup.model_bytes) / 1e6;
  const double plain = middle(contenders.front().applied);
  const double plain_synced = middle(contenders.front().synced);
  for (const Contender& contender : contenders) {
    const double seconds = middle(contender.applied);
    const double synced = middle(contender.synced);
    std::printf("%-24s %6.0f MB/s applied, %.2f of rewriting; %6.0f MB/s with data sync, %.2f\n",
                contender.name.c_str(), mb / seconds, plain / seconds, mb / synced,
                plain_synced / synced);
  }
}

void run(const Setup& setup) {
  auto store = *open_store(setup.directory, {Engine::kPosix, Durability::kDisk}, no_events);
  write_model(*store, setup.model_bytes);
  auto journals = *store->open_directory("bench-journal", true);
  const auto open_by = [&](Engine engine) {
    return *CheckpointDir::open_path(setup.directory, Access::kReadWrite,
                                     {engine, Durability::kDisk}, no_events);
  };
  auto by_uring = open_by(Engine::kUring);
  auto by_posix = open_by(Engine::kPosix);
  const std::uint64_t changes = write_journal(*journals, by_posix, setup.percent);
  const auto journal = *JournalReader::open(*journals, kRefit, by_posix.schema());
  std::printf("%llu MiB, %.2f %% of BF16 changed (%llu), journal %.3f bytes per change\n",
              static_cast<unsigned long long>(setup.model_bytes / kMiB), setup.percent,
              static_cast<unsigned long long>(changes),
              static_cast<double>(journal->record_bytes()) / static_cast<double>(changes));
  std::vector<Contender> contenders;
  contenders.push_back({"rewriting, 1 MiB", &by_posix, [&] { return rewrite(by_posix); }, {}, {}});
  for (CheckpointDir* checkpoint : {&by_uring, &by_posix}) {
    for (const std::uint32_t threads : {1U, 2U}) {
      const std::string engine = checkpoint == &by_uring ? "io_uring, " : "pread/pwrite, ";
      contenders.push_back({engine + std::to_string(threads) + " thread(s)",
                            checkpoint,
                            [&journal, checkpoint, threads]() -> Status {
                              PatchOptions options;
                              options.threads = threads;
                              WEFT_TRY(const auto stats,
                                       apply_journal(*journal, *checkpoint, options));
                              static_cast<void>(stats);
                              return ok();
                            },
                            {},
                            {}});
    }
  }
  contenders.push_back({"mapping, 1 thread",
                        &by_posix,
                        [&] { return apply_through_mapping(*journal, by_posix); },
                        {},
                        {}});
  take_turns(setup, contenders);
  WEFT_ASSERT(store->remove_tree("bench-journal") && store->remove_tree(kFileName));
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: bench_apply_patch DIRECTORY [MiB] [percent] [runs]\n");
    return 2;
  }
  Setup setup;
  setup.directory = arguments[1];
  setup.model_bytes = (count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 512) * kMiB;
  if (count > 3) setup.percent = std::strtod(arguments[3], nullptr);
  if (count > 4) setup.runs = std::max(1, std::atoi(arguments[4]));
  run(setup);
  return 0;
}
