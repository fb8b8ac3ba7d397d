// SPDX-License-Identifier: Apache-2.0
#include "apply/journal/journal_reader.hpp"

#include <algorithm>

#include "apply/journal/journal_layout.hpp"
#include "weft/base/limits.hpp"
#include "weft/base/units.hpp"
#include "weft/wire/digest.hpp"

namespace weft::apply {

namespace {

constexpr std::size_t kRunBufferEntries = 256;
constexpr std::uint64_t kSealBytesMax = 8 * kMiB;
constexpr std::uint64_t kTableBytesMax = 16 * kGiB;

Error unsound(const std::string& why) {
  return failure(ErrorCode::kNeedsReseed, Stage::kRecover, "journal: " + why);
}

Result<std::vector<std::byte>> read_whole(Store& directory, std::string_view name,
                                          std::uint64_t bytes_max) {
  auto file = directory.open(name, Access::kRead);
  if (!file && is_missing(file.error())) return unsound(std::string(name) + " is missing");
  if (!file) return file.error();
  WEFT_TRY(const std::uint64_t bytes, (*file)->size());
  if (bytes > bytes_max) return unsound(std::string(name) + " is too long");
  std::vector<std::byte> content(static_cast<std::size_t>(bytes));
  WEFT_TRY_STATUS((*file)->read(0, content));
  return content;
}

Result<Digest> digest_of(const File& file) {
  WEFT_TRY(const std::uint64_t bytes, file.size());
  std::vector<std::byte> part(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kMiB)));
  wire::Digester digester;
  for (std::uint64_t at = 0; at < bytes; at += part.size()) {
    part.resize(static_cast<std::size_t>(std::min<std::uint64_t>(bytes - at, kMiB)));
    WEFT_TRY_STATUS(file.read(at, part));
    digester.update(part);
  }
  return digester.digest();
}

}  // namespace

Result<std::unique_ptr<JournalReader>> JournalReader::open(Store& store, const RefitId& refit,
                                                           const codec::Schema& schema) {
  auto directory = store.open_directory(to_string(refit), false);
  if (!directory && is_missing(directory.error())) {
    return unsound(to_string(refit) + " is missing");
  }
  if (!directory) return directory.error();
  std::unique_ptr<JournalReader> reader(new JournalReader());
  reader->directory_ = *std::move(directory);
  WEFT_TRY(const auto seal_bytes, read_whole(*reader->directory_, kSealName, kSealBytesMax));
  WEFT_TRY(JournalSeal seal, JournalSeal::decode(seal_bytes));
  if (seal.manifest.refit != refit) return unsound("its manifest is of another refit");
  if (seal.schema != schema.digest()) {
    return failure(ErrorCode::kSchemaChanged, Stage::kApply,
                   "the journal is of another schema than the checkpoint");
  }
  WEFT_TRY(reader->records_, reader->directory_->open(kRecordsName, Access::kRead));
  WEFT_TRY(reader->index_, reader->directory_->open(kIndexName, Access::kRead));
  WEFT_TRY(const std::uint64_t records_bytes, reader->records_->size());
  WEFT_TRY(const std::uint64_t index_bytes, reader->index_->size());
  if (records_bytes != seal.records_bytes ||
      index_bytes != seal.entry_count * kJournalIndexEntryBytes) {
    return unsound("its files have other lengths than its seal says");
  }
  WEFT_TRY(const Digest index_digest, digest_of(*reader->index_));
  if (index_digest != seal.index) return unsound("its index is damaged");
  reader->manifest_ = std::move(seal.manifest);
  reader->records_bytes_ = records_bytes;
  reader->entry_count_ = seal.entry_count;
  reader->table_digest_ = seal.table;
  reader->bases_ = file_bases(schema);
  return reader;
}

Result<codec::DigestTable> JournalReader::table(const codec::Lattice& lattice) const {
  WEFT_TRY(const auto bytes, read_whole(*directory_, kTableName, kTableBytesMax));
  if (wire::digest128(bytes) != table_digest_) return unsound("its table is damaged");
  return codec::DigestTable::decode(lattice, bytes);
}

JournalCursor JournalReader::cursor() const {
  return JournalCursor(*index_, entry_count_, bases_.back(), records_bytes_);
}

Status JournalReader::read_record(const JournalIndexEntry& entry,
                                  std::vector<std::byte>& into) const {
  into.resize(entry.record_bytes);
  Status found = records_->read(entry.record_offset, into);
  if (!found) return found;
  WEFT_TRY_STATUS(check_record(into));
  WEFT_TRY(const RecordHeader header, load_record_header(into));
  if (header.element_count * header.element_bytes != entry.bytes) {
    return unsound("a record is not what its index says");
  }
  return ok();
}

JournalCursor::JournalCursor(const File& index, std::uint64_t entry_count,
                             std::uint64_t address_end, std::uint64_t records_bytes)
    : index_(&index), address_end_(address_end), records_bytes_(records_bytes) {
  for (std::uint64_t at = 0; at < entry_count; at += kJournalRunEntries) {
    runs_.push_back({at, std::min<std::uint64_t>(at + kJournalRunEntries, entry_count), {}, 0});
  }
}

Status JournalCursor::fill(Run& run) {
  const auto count = static_cast<std::size_t>(
      std::min<std::uint64_t>(run.end_entry - run.next_entry, kRunBufferEntries));
  std::vector<std::byte> bytes(count * kJournalIndexEntryBytes);
  WEFT_TRY_STATUS(index_->read(run.next_entry * kJournalIndexEntryBytes, bytes));
  run.buffer.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    run.buffer[i] = decode_entry(bytes.data() + i * kJournalIndexEntryBytes);
  }
  run.next_entry += count;
  run.place = 0;
  return ok();
}

Result<std::optional<JournalIndexEntry>> JournalCursor::next() {
  const auto later = [this](std::uint32_t a, std::uint32_t b) {
    return runs_[b].buffer[runs_[b].place] < runs_[a].buffer[runs_[a].place];
  };
  if (!started_) {
    started_ = true;
    for (std::uint32_t i = 0; i < runs_.size(); ++i) {
      WEFT_TRY_STATUS(fill(runs_[i]));
      heap_.push_back(i);
    }
    std::make_heap(heap_.begin(), heap_.end(), later);
  }
  if (heap_.empty()) return std::optional<JournalIndexEntry>();
  std::pop_heap(heap_.begin(), heap_.end(), later);
  Run& run = runs_[heap_.back()];
  const JournalIndexEntry entry = run.buffer[run.place++];
  if (run.place == run.buffer.size() && run.next_entry < run.end_entry) {
    WEFT_TRY_STATUS(fill(run));
  }
  if (run.place < run.buffer.size()) {
    std::push_heap(heap_.begin(), heap_.end(), later);
  } else {
    heap_.pop_back();
  }
  if (entry.address < last_address_) return unsound("entries do not ascend");
  if (entry.bytes == 0 || entry.bytes > limits::kChunkBytesMax || entry.address > address_end_ ||
      entry.bytes > address_end_ - entry.address || entry.record_bytes < kRecordHeaderBytes ||
      entry.record_bytes > kRecordBytesMax || entry.record_offset > records_bytes_ ||
      entry.record_bytes > records_bytes_ - entry.record_offset) {
    return unsound("an index entry is out of range");
  }
  last_address_ = entry.address;
  return std::optional(entry);
}

}  // namespace weft::apply
