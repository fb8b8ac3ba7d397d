// SPDX-License-Identifier: Apache-2.0
// Makes a pair of checkpoints that differ as one optimizer step makes them differ: input for
// benchmarks, the demo and tests.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "weft/base/result.hpp"
#include "weft/base/units.hpp"

namespace weft::bench {

// Threads: a value; one at a time.
struct MakeCheckpointOptions {
  std::string directory;         // gets base/ and target/, which must not exist yet
  std::uint64_t bytes = kGiB;    // of tensor bytes of one checkpoint, at least 64 KiB; rounded down
                                 // to a whole row
  double changed_percent = 3;    // of all elements, above 0 and below 60
  std::uint64_t seed = 1;        // the same seed gives the same bytes, with any number of threads
  std::uint32_t file_count = 0;  // 0: one per 256 MiB; more than one also writes the index file
  std::uint32_t thread_count = 0;  // 0: one per hardware thread
  // Called from one thread at a time with bytes written so far and in all.
  std::function<void(std::uint64_t, std::uint64_t)> on_progress;
};

// Threads: a value; one at a time.
struct MadeCheckpoint {
  std::string base_directory;
  std::string target_directory;
  std::uint64_t tensor_count = 0;
  std::uint64_t file_count = 0;
  std::uint64_t tensor_bytes = 0;  // of one checkpoint, headers not counted
  std::uint64_t element_count = 0;
  std::uint64_t changed_count = 0;  // elements whose bits differ, counted
  double step = 0;                  // the learning rate found for the density

  double changed_percent() const {
    return element_count == 0
               ? 0
               : 100.0 * static_cast<double>(changed_count) / static_cast<double>(element_count);
  }
};

// Writes DIRECTORY/base and DIRECTORY/target: BF16 safetensors in Hugging Face layout of a
// decoder-like stack (attention, dense and expert feed-forward layers of which a quarter of the
// experts are idle, norms near 1, an embedding of which a quarter of the rows is touched). Base is
// the BF16 rounding of FP32 master weights, target that of the same weights after one Adam-like
// step of the size that changes the asked share of the stored values.
Result<MadeCheckpoint> make_checkpoint(const MakeCheckpointOptions& options);

}  // namespace weft::bench
