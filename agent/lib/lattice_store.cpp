// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/lattice_store.hpp"

#include <string>
#include <utility>

#include "apply/store/native_error.hpp"
#include "weft/base/limits.hpp"

namespace weft::agent {
namespace {

// A file of an earlier run is of no use to this one, and there are few.
constexpr std::size_t kFilesMax = 8;

}  // namespace

Result<std::unique_ptr<LatticeStore>> LatticeStore::open(apply::Store& state,
                                                         const codec::Schema& schema) {
  std::unique_ptr<LatticeStore> store(new LatticeStore(schema));
  WEFT_TRY(store->directory_, state.open_directory("lattice", true));
  WEFT_TRY(auto lattice, codec::Lattice::default_for(schema));
  store->lattices_.with([&](auto& lattices) {
    lattices.push_back(std::make_unique<const codec::Lattice>(std::move(lattice)));
    store->default_ = lattices.front().get();
  });
  store->use(*store->default_);
  return store;
}

const codec::Lattice* LatticeStore::known(const Digest& digest) const {
  return lattices_.with([&](const auto& lattices) -> const codec::Lattice* {
    for (const auto& lattice : lattices) {
      if (lattice->digest() == digest) return lattice.get();
    }
    return nullptr;
  });
}

Result<const codec::Lattice*> LatticeStore::find(const Digest& digest) {
  if (const codec::Lattice* lattice = known(digest)) return lattice;
  auto file = directory_->open(to_hex(digest), apply::Access::kRead);
  if (!file && apply::is_missing(file.error())) {
    return failure(ErrorCode::kUnsupported, Stage::kRecover,
                   "lattice " + to_hex(digest) + " is not known here");
  }
  if (!file) return file.error();
  WEFT_TRY(const std::uint64_t bytes, (*file)->size());
  if (bytes > limits::kLatticeBytesMax) {
    return failure(ErrorCode::kUnsupported, Stage::kRecover,
                   "lattice file " + to_hex(digest) + " is too large");
  }
  std::vector<std::byte> body(static_cast<std::size_t>(bytes));
  WEFT_TRY_STATUS((*file)->read(0, body));
  return decode(digest, body);
}

Result<const codec::Lattice*> LatticeStore::decode(const Digest& digest,
                                                   std::span<const std::byte> body) {
  WEFT_TRY(auto lattice, codec::Lattice::decode(schema_, body));
  if (lattice.digest() != digest) {
    return failure(ErrorCode::kUnsupported, Stage::kRecover,
                   "lattice " + to_hex(digest) + " has other bytes");
  }
  auto kept = std::make_unique<const codec::Lattice>(std::move(lattice));
  const codec::Lattice* const found = kept.get();
  lattices_.with([&](auto& lattices) { lattices.push_back(std::move(kept)); });
  return found;
}

Result<const codec::Lattice*> LatticeStore::add(const Digest& digest,
                                                std::span<const std::byte> body) {
  if (const codec::Lattice* lattice = known(digest)) return lattice;
  WEFT_TRY(const codec::Lattice* lattice, decode(digest, body));
  WEFT_TRY(const auto entries, directory_->list());
  for (std::size_t i = 0; i + kFilesMax <= entries.size(); ++i) {
    WEFT_TRY_STATUS(directory_->remove_tree(entries[i].name));
  }
  const std::string name = to_hex(digest);
  WEFT_TRY_STATUS(directory_->remove_tree(name + ".new"));
  WEFT_TRY(auto file, directory_->create(name + ".new"));
  WEFT_TRY_STATUS(file->write(0, body));
  WEFT_TRY_STATUS(file->sync());
  WEFT_TRY_STATUS(directory_->rename(name + ".new", name));
  WEFT_TRY_STATUS(directory_->sync_directory());
  return lattice;
}

}  // namespace weft::agent
