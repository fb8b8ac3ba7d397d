// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "apply/store/checkpoint_dir.hpp"
#include "codec/digest/digest_table.hpp"
#include "codec/flow/encode_flow.hpp"
#include "codec/project/lattice.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

// Bytes hashed and in all; false stops (kTimeout).
using DigestProgress = std::function<bool(std::uint64_t done, std::uint64_t total)>;

// The digest table of what lies in a directory, read with pread by several threads. The caller
// checks the identity behind it.
Result<codec::DigestTable> digest_directory(const CheckpointDir& checkpoint,
                                            const codec::Lattice& lattice, std::uint32_t threads,
                                            const DigestProgress& on_progress = {});

// The same of the new bytes of any source, `total` bytes in all.
Result<codec::DigestTable> digest_source(codec::ChunkSource& source, std::uint64_t total,
                                         const codec::Lattice& lattice, std::uint32_t threads,
                                         const DigestProgress& on_progress = {});

}  // namespace weft::apply
