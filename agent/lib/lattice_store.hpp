// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "apply/store/store.hpp"
#include "codec/project/lattice.hpp"
#include "codec/safetensors/schema.hpp"
#include "weft/base/guarded.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft::agent {

// LatticeStore is the lattices that an agent knows: the default one of its files, and those that
// it fetched, kept below `<state_dir>/lattice/` under their digests.
// Owns:    every lattice it has handed out, until it is destroyed: a run has one or two.
// Threads: any; use() one at a time.
class LatticeStore {
 public:
  static Result<std::unique_ptr<LatticeStore>> open(apply::Store& state,
                                                    const codec::Schema& schema);

  // The one that the digest table is under; at first the default one.
  const codec::Lattice& current() const { return *current_.load(); }
  const codec::Lattice& default_lattice() const { return *default_; }
  // One that find() or add() gave.
  void use(const codec::Lattice& lattice) { current_.store(&lattice); }

  // In memory, or in a file of an earlier process. Errors: kUnsupported (not known here).
  Result<const codec::Lattice*> find(const Digest& digest);
  // Keeps it, durably. Errors: of Lattice::decode, I/O.
  Result<const codec::Lattice*> add(const Digest& digest, std::span<const std::byte> body);

 private:
  explicit LatticeStore(const codec::Schema& schema) : schema_(schema) {}
  Result<const codec::Lattice*> decode(const Digest& digest, std::span<const std::byte> body);
  const codec::Lattice* known(const Digest& digest) const;

  const codec::Schema& schema_;
  std::unique_ptr<apply::Store> directory_;
  Guarded<std::vector<std::unique_ptr<const codec::Lattice>>> lattices_;
  const codec::Lattice* default_ = nullptr;
  std::atomic<const codec::Lattice*> current_{nullptr};
};

}  // namespace weft::agent
