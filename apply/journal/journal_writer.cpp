// SPDX-License-Identifier: Apache-2.0
#include "apply/journal/journal_writer.hpp"

#include <algorithm>

#include "apply/journal/journal_layout.hpp"
#include "apply/store/native_error.hpp"
#include "weft/base/assert.hpp"
#include "weft/base/units.hpp"
#include "weft/wire/digest.hpp"

namespace weft::apply {

namespace {

constexpr std::size_t kBufferBytes = kMiB;
constexpr std::uint64_t kAllocationStep = 4 * kMiB;
// The disk writes while frames arrive, so that the sync before the vote finds little left.
constexpr std::uint64_t kWritebackStep = kMiB;

}  // namespace

// What one file of the journal has taken so far.
// Threads: one at a time.
struct AppendFile {
  std::unique_ptr<File> file;
  std::uint64_t end = 0;
  std::uint64_t allocated = 0;
  std::uint64_t started = 0;  // below this the disk has been asked to write

  // Room first, in steps, so that the disk is full before the vote and not behind it.
  Status append(std::span<const std::byte> bytes) {
    if (end + bytes.size() > allocated) {
      const std::uint64_t step = std::max<std::uint64_t>(bytes.size(), kAllocationStep);
      Status reserved = file->allocate(end, step, false);
      if (!reserved && reserved.error().code == ErrorCode::kNoSpace) {
        reserved = file->allocate(end, bytes.size(), false);
        allocated = end + bytes.size();
      } else {
        allocated = end + step;
      }
      if (!reserved && reserved.error().code != ErrorCode::kUnsupported) return reserved;
    }
    WEFT_TRY_STATUS(file->write(end, bytes));
    end += bytes.size();
    if (end - started >= kWritebackStep) {
      file->start_writeback(started, end - started);
      started = end;
    }
    return ok();
  }
  // Gives back what was reserved and not needed, then syncs.
  Status close() {
    WEFT_TRY_STATUS(file->truncate(end));
    return file->sync();
  }
};

struct JournalWriter::State {
  std::mutex mutex;
  AppendFile records;
  AppendFile index;
  std::vector<std::byte> buffer;  // records not yet written
  std::vector<JournalIndexEntry> run;
  std::vector<std::uint64_t> bases;
  wire::Digester index_digest;
  std::uint64_t record_count = 0;
  std::uint64_t charged = 0;
  Status broken;
  std::optional<Digest> sealed;  // the manifest's digest
};

JournalWriter::JournalWriter(Store& parent, std::unique_ptr<Store> directory,
                             const codec::Schema& schema, DiskBudget& budget)
    : parent_(parent),
      directory_(std::move(directory)),
      schema_(schema),
      budget_(budget),
      state_(std::make_unique<State>()) {
  state_->bases = file_bases(schema);
  state_->buffer.reserve(kBufferBytes + kRecordBytesMax);
}

JournalWriter::~JournalWriter() { budget_.give_back(state_->charged); }

Result<std::unique_ptr<JournalWriter>> JournalWriter::open(Store& store, const RefitId& refit,
                                                           const codec::Schema& schema,
                                                           DiskBudget& budget) {
  WEFT_TRY_STATUS(store.remove_tree(to_string(refit)));
  WEFT_TRY(auto directory, store.open_directory(to_string(refit), true));
  std::unique_ptr<JournalWriter> writer(
      new JournalWriter(store, std::move(directory), schema, budget));
  WEFT_TRY(writer->state_->records.file, writer->directory_->create(kRecordsName));
  WEFT_TRY(writer->state_->index.file, writer->directory_->create(kIndexName));
  return writer;
}

Status JournalWriter::append(std::span<const std::byte> record) {
  WEFT_TRY(const RecordHeader header, load_record_header(record));
  const codec::Tensor& tensor = schema_.tensor(header.tensor);
  WEFT_ASSERT(tensor.element_bytes == header.element_bytes &&
              header.first_element + header.element_count <= tensor.element_count);
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  WEFT_TRY_STATUS(state.broken);
  WEFT_ASSERT(!state.sealed);
  const std::uint64_t bytes = record.size() + kJournalIndexEntryBytes;
  WEFT_TRY_STATUS(budget_.charge(bytes));
  state.charged += bytes;
  state.run.push_back({state.bases[tensor.file_index] + tensor.file_offset +
                           header.first_element * header.element_bytes,
                       state.records.end + state.buffer.size(),
                       header.element_count * header.element_bytes,
                       static_cast<std::uint32_t>(record.size())});
  state.buffer.insert(state.buffer.end(), record.begin(), record.end());
  ++state.record_count;
  if (state.buffer.size() >= kBufferBytes) state.broken = flush_records(state);
  if (state.broken && state.run.size() == kJournalRunEntries) state.broken = flush_run(state);
  return state.broken;
}

Status JournalWriter::flush_records(State& state) {
  const Status written = state.records.append(state.buffer);
  if (!written) return at_stage(written.error(), Stage::kResolve);
  state.buffer.clear();
  return ok();
}

Status JournalWriter::flush_run(State& state) {
  std::sort(state.run.begin(), state.run.end());
  std::vector<std::byte> bytes(state.run.size() * kJournalIndexEntryBytes);
  for (std::size_t i = 0; i < state.run.size(); ++i) {
    encode_entry(state.run[i], bytes.data() + i * kJournalIndexEntryBytes);
  }
  state.index_digest.update(bytes);
  const Status written = state.index.append(bytes);
  if (!written) return at_stage(written.error(), Stage::kResolve);
  state.run.clear();
  return ok();
}

Status JournalWriter::seal(const wire::Manifest& manifest, const codec::Lattice& lattice,
                           const codec::DigestTable& table) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  WEFT_TRY_STATUS(state.broken);
  if (state.sealed) {
    if (*state.sealed == manifest.digest()) return ok();
    return failure(ErrorCode::kPayloadConflict, Stage::kPrepare,
                   "the journal is sealed under another manifest");
  }
  const auto build = [&]() -> Status {
    WEFT_TRY_STATUS(flush_records(state));
    WEFT_TRY_STATUS(flush_run(state));
    WEFT_TRY_STATUS(state.records.close());
    WEFT_TRY_STATUS(state.index.close());
    const auto table_bytes = table.encode(lattice);
    JournalSeal seal{schema_.digest(),
                     state.records.end,
                     state.record_count,
                     state.index_digest.digest(),
                     wire::digest128(table_bytes),
                     manifest};
    const auto seal_bytes = seal.encode();
    WEFT_TRY_STATUS(budget_.charge(table_bytes.size() + seal_bytes.size()));
    state.charged += table_bytes.size() + seal_bytes.size();
    WEFT_TRY(auto table_file, directory_->create(kTableName));
    WEFT_TRY_STATUS(table_file->write(0, table_bytes));
    WEFT_TRY_STATUS(table_file->sync());
    WEFT_TRY_STATUS(directory_->sync_directory());
    WEFT_TRY(auto seal_file, directory_->create(kSealName));
    WEFT_TRY_STATUS(seal_file->write(0, seal_bytes));
    WEFT_TRY_STATUS(seal_file->sync());
    WEFT_TRY_STATUS(directory_->sync_directory());
    return parent_.sync_directory();
  };
  if (const Status built = build(); !built) {
    state.broken = at_stage(built.error(), Stage::kPrepare);
    return state.broken;
  }
  state.sealed = manifest.digest();
  return ok();
}

std::uint64_t JournalWriter::record_count() const {
  const std::lock_guard lock(state_->mutex);
  return state_->record_count;
}

std::uint64_t JournalWriter::bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->charged;
}

}  // namespace weft::apply
