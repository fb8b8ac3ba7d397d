// SPDX-License-Identifier: Apache-2.0
// Makes a pair of checkpoints that differ as one optimizer step makes them differ: input for
// benchmarks, the demo and tests.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weft/base/result.hpp"
#include "weft/base/units.hpp"

namespace weft::bench {

// Threads: a value; one at a time.
struct MakeCheckpointOptions {
  std::string directory;       // gets the checkpoints' directories, which must not exist yet
  std::uint64_t bytes = kGiB;  // of tensor bytes of one checkpoint, at least 64 KiB; rounded down
                               // to a whole row
  std::vector<double> changed_percents{3.0};  // one per step: the share of all elements whose bits
                                              // change, above 0 and below 60
  std::uint64_t seed = 1;          // the same seed gives the same bytes, with any number of threads
  std::uint32_t file_count = 0;    // 0: one per 256 MiB; more than one also writes the index file
  std::uint32_t thread_count = 0;  // 0: one per hardware thread
  // Called from one thread at a time with bytes written so far and in all.
  std::function<void(std::uint64_t, std::uint64_t)> on_progress;
  std::function<bool()> stop_requested;  // asked now and then, by any thread; optional
};

// Threads: a value; one at a time.
struct MadeStep {
  std::uint64_t changed_count = 0;  // elements whose bits differ from the step before, counted
  double changed_percent = 0;       // the same, of all elements
  double step = 0;                  // the learning rate found for the density
};

// Threads: a value; one at a time.
struct MadeCheckpoint {
  std::vector<std::string> directories;  // one more than steps
  std::vector<MadeStep> steps;
  std::uint64_t tensor_count = 0;
  std::uint64_t file_count = 0;    // per checkpoint, without the index
  std::uint64_t tensor_bytes = 0;  // per checkpoint, headers not counted
  std::uint64_t element_count = 0;
};

// Writes DIRECTORY/base and DIRECTORY/target, or, for several steps, DIRECTORY/step-0, step-1 and
// so on: BF16 safetensors in Hugging Face layout of a decoder-like stack (attention, dense and
// expert feed-forward layers of which a quarter of the experts are idle, norms near 1, an embedding
// of which a quarter of the rows is touched). The first is the BF16 rounding of FP32 master
// weights, each following one that of the same master weights after one more Adam-like step of the
// size that changes the asked share of the stored values. What was written is removed on failure.
// Errors: kConfig, kNoSpace, kIoFailed; kTimeout when stop_requested said so.
Result<MadeCheckpoint> make_checkpoint(const MakeCheckpointOptions& options);

}  // namespace weft::bench
