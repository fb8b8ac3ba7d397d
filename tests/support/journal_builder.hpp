// SPDX-License-Identifier: Apache-2.0
// Journals from two checkpoints without any frame in between, for tests of what lies behind them.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "apply/journal/journal_reader.hpp"
#include "apply/journal/journal_writer.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "support/checkpoint_files.hpp"
#include "weft/wire/digest.hpp"

namespace weft::test_support {

inline const std::vector<std::byte>& tensor_bytes(const TestCheckpoint& checkpoint,
                                                  const std::string& name) {
  for (const auto& [file, tensors] : checkpoint) {
    for (const TestTensor& tensor : tensors) {
      if (tensor.name == name) return tensor.bytes;
    }
  }
  static const std::vector<std::byte> none;
  return none;
}

inline RefitId test_refit(std::uint32_t attempt = 1) { return {{3, ProcessId{0xABC}}, attempt}; }

// Records of every chunk that differs, in an order that `seed` shuffles (0: lattice order), sealed.
inline Status write_journal(apply::Store& journals, const codec::Schema& schema,
                            const TestCheckpoint& base, const TestCheckpoint& target,
                            std::uint64_t seed = 0, const RefitId& refit = test_refit(),
                            Version base_version = {}) {
  WEFT_TRY(const auto lattice, codec::Lattice::default_for(schema));
  apply::DiskBudget budget(std::uint64_t{1} << 40);
  WEFT_TRY(auto writer, apply::JournalWriter::open(journals, refit, schema, budget));
  codec::DigestTable table(lattice.chunk_count());
  codec::DigestTable base_table(lattice.chunk_count());
  std::vector<std::vector<std::byte>> records;
  for (std::uint32_t i = 0; i < lattice.chunk_count(); ++i) {
    const auto place = lattice.place(ChunkIndex{i});
    const auto& name = schema.tensor(place.tensor).name;
    const std::size_t begin = place.first_element * place.element_bytes();
    const auto old_bytes = std::span(tensor_bytes(base, name)).subspan(begin, place.bytes());
    const auto new_bytes = std::span(tensor_bytes(target, name)).subspan(begin, place.bytes());
    table.set(ChunkIndex{i}, wire::digest64(new_bytes));
    base_table.set(ChunkIndex{i}, wire::digest64(old_bytes));
    std::vector<std::uint32_t> changed;
    const std::byte* const before = old_bytes.data();
    const std::byte* const after = new_bytes.data();
    const std::size_t width = place.element_bytes();
    for (std::uint32_t e = 0; e < place.element_count; ++e) {
      if (std::memcmp(before + e * width, after + e * width, width) != 0) changed.push_back(e);
    }
    if (changed.empty()) continue;
    records.emplace_back();
    apply::encode_record(place.tensor, place.first_element,
                         static_cast<std::uint8_t>(place.element_bytes()), changed, new_bytes,
                         records.back());
  }
  if (seed != 0) std::shuffle(records.begin(), records.end(), std::mt19937_64(seed));
  for (const auto& record : records) WEFT_TRY_STATUS(writer->append(record));
  wire::Manifest manifest;
  manifest.refit = refit;
  manifest.schema = schema.digest();
  manifest.base = {base_version, lattice.digest(), base_table.root(lattice)};
  manifest.target = {Version{base_version.value + 1}, lattice.digest(), table.root(lattice)};
  return writer->seal(manifest, lattice, table);
}

}  // namespace weft::test_support
