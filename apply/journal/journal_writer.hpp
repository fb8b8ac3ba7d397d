// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "apply/journal/journal_record.hpp"
#include "apply/store/disk_budget.hpp"
#include "apply/store/store.hpp"
#include "codec/digest/digest_table.hpp"
#include "codec/safetensors/schema.hpp"
#include "weft/wire/manifest.hpp"

namespace weft::apply {

// Where one record lies in its journal and which bytes of the checkpoint it is about; addresses
// count through all files of the schema, one behind the other.
// Threads: a value; one at a time.
struct JournalIndexEntry {
  std::uint64_t address = 0;
  std::uint64_t record_offset = 0;
  std::uint32_t bytes = 0;  // covered bytes of the checkpoint
  std::uint32_t record_bytes = 0;
  auto operator<=>(const JournalIndexEntry&) const = default;
};
inline constexpr std::uint32_t kJournalIndexEntryBytes = 24;
// Entries are sorted in runs of this many, so that memory does not grow with the model.
inline constexpr std::uint32_t kJournalRunEntries = 65'536;

// Where each file of a schema begins in those addresses; one more at the end.
std::vector<std::uint64_t> file_bases(const codec::Schema& schema);

// JournalWriter writes the journal of one refit below `<state>/journal/<refit>/`.
// 1. open(): an empty journal; what a former attempt left under this refit is removed.
// 2. append(): one record; disk space for it is allocated then, so that a full disk shows before
//    the vote.
// 3. seal(): table, index, manifest; everything durable, the manifest last. Without it the journal
//    does not count.
// Owns:    its files and up to 4 MiB of memory; charges the budget and gives it back on destruction
//          (whoever keeps the journal charges it from then on).
// Threads: any for append; the others one at a time.
class JournalWriter {
 public:
  // The store is `<state>/journal`; schema and budget must outlive the writer.
  static Result<std::unique_ptr<JournalWriter>> open(Store& store, const RefitId& refit,
                                                     const codec::Schema& schema,
                                                     DiskBudget& budget);
  ~JournalWriter();
  JournalWriter(const JournalWriter&) = delete;
  JournalWriter& operator=(const JournalWriter&) = delete;

  // `record` comes from encode_record.
  Status append(std::span<const std::byte> record);
  Status seal(const wire::Manifest& manifest, const codec::Lattice& lattice,
              const codec::DigestTable& table);

  std::uint64_t record_count() const;
  std::uint64_t bytes() const;

 private:
  struct State;
  JournalWriter(Store& parent, std::unique_ptr<Store> directory, const codec::Schema& schema,
                DiskBudget& budget);
  Status flush_records(State& state);
  Status flush_run(State& state);

  Store& parent_;
  std::unique_ptr<Store> directory_;
  const codec::Schema& schema_;
  DiskBudget& budget_;
  std::unique_ptr<State> state_;
};

}  // namespace weft::apply
