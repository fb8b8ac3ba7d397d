// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft::bench {

// One tensor of the made model. Rows are its first dimension; a norm has one row and is stored
// with one dimension.
// Threads: a value; one at a time.
struct MadeTensor {
  std::string name;
  std::uint32_t row_count = 0;
  std::uint32_t column_count = 0;
  float mean = 0;
  float sigma = 0;
  float active_row_share = 1;  // rows that the step touches; the rest keep every bit
  float update_scale = 1;      // 0: an idle expert
  std::uint64_t key = 0;       // of its random numbers
  std::vector<float> column_scales;

  bool is_vector() const { return row_count == 1; }
  std::uint64_t element_count() const { return std::uint64_t{row_count} * column_count; }
};

// CheckpointModel makes the numbers: FP32 master weights and the directions of Adam-like steps for
// any run of elements, from the seed and the place alone.
// Threads: immutable.
class CheckpointModel {
 public:
  // The tensor mix repeated until `bytes` of BF16 are full; the last tensor takes what is left.
  CheckpointModel(std::uint64_t bytes, std::uint64_t seed);

  const std::vector<MadeTensor>& tensors() const { return tensors_; }
  std::uint64_t element_count() const;

  // Master weights of part of one row, before any step.
  static void fill_weights(const MadeTensor& tensor, std::uint32_t row, std::uint32_t first_column,
                           std::span<float> weights);
  // Directions, at most 1 in size, of step number `step` (0-based) there.
  static void fill_updates(const MadeTensor& tensor, std::uint32_t row, std::uint32_t first_column,
                           std::uint32_t step, std::span<float> updates);

  // The step sizes at which these shares of all stored values change, one step after the other,
  // from a sample of every row.
  std::vector<float> calibrate(std::span<const double> shares) const;

 private:
  void add(std::string name, std::uint32_t row_count, std::uint32_t column_count, float mean,
           float sigma);
  void add_layer(std::uint32_t layer);
  void add_experts(const std::string& prefix, std::uint32_t layer);
  float linear_sigma() const;

  std::uint64_t seed_;
  std::uint32_t width_ = 0;
  std::uint64_t elements_left_ = 0;
  std::vector<MadeTensor> tensors_;
};

// Round to nearest, ties to even. Finite values only.
inline std::uint16_t to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace weft::bench
