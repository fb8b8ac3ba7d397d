// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "apply/journal/journal_writer.hpp"

namespace weft::apply {

// Walks the index of a journal in the order of addresses, merging its sorted runs.
// Owns:    a buffer of 6 KiB per run.
// Threads: one at a time.
class JournalCursor {
 public:
  // The next entry, or nullopt at the end. Errors: kNeedsReseed (out of order or beyond the
  // files), I/O.
  Result<std::optional<JournalIndexEntry>> next();

 private:
  friend class JournalReader;
  struct Run {
    std::uint64_t next_entry = 0;  // in the file
    std::uint64_t end_entry = 0;
    std::vector<JournalIndexEntry> buffer;
    std::size_t place = 0;
  };
  JournalCursor(const File& index, std::uint64_t entry_count, std::uint64_t address_end,
                std::uint64_t records_bytes);
  Status fill(Run& run);

  const File* index_;
  std::uint64_t address_end_;
  std::uint64_t records_bytes_;
  std::vector<Run> runs_;
  std::vector<std::uint32_t> heap_;  // runs by their next address, smallest first
  std::uint64_t last_address_ = 0;
  bool started_ = false;
};

// JournalReader opens a sealed journal.
// Owns:    its files.
// Threads: any for read_record; cursors are independent.
class JournalReader {
 public:
  // Errors: kNeedsReseed (missing, not sealed, damaged), kSchemaChanged (of another schema).
  static Result<std::unique_ptr<JournalReader>> open(Store& store, const RefitId& refit,
                                                     const codec::Schema& schema);

  const wire::Manifest& manifest() const { return manifest_; }
  std::uint64_t record_count() const { return entry_count_; }
  std::uint64_t record_bytes() const { return records_bytes_; }
  Result<codec::DigestTable> table(const codec::Lattice& lattice) const;
  JournalCursor cursor() const;
  // Reads and checks one record; `into` is resized. Errors: kNeedsReseed, I/O.
  Status read_record(const JournalIndexEntry& entry, std::vector<std::byte>& into) const;
  const std::vector<std::uint64_t>& bases() const { return bases_; }

 private:
  JournalReader() = default;

  std::unique_ptr<Store> directory_;
  std::unique_ptr<File> records_;
  std::unique_ptr<File> index_;
  wire::Manifest manifest_;
  Digest table_digest_;
  std::uint64_t records_bytes_ = 0;
  std::uint64_t entry_count_ = 0;
  std::vector<std::uint64_t> bases_;
};

// What lies below a `journal` or `spool` directory. Names that are no refit are left out.
Result<std::vector<RefitId>> list_refits(const Store& store);
std::optional<RefitId> parse_refit_name(std::string_view name);
// Success when there is none. Gives nothing back to a budget.
Status remove_journal(Store& store, const RefitId& refit);
// Bytes on disk below it.
Result<std::uint64_t> refit_bytes(Store& store, const RefitId& refit);

}  // namespace weft::apply
