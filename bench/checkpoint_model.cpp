// SPDX-License-Identifier: Apache-2.0
#include "bench/checkpoint_model.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace weft::bench {
namespace {

constexpr std::uint32_t kWidthMax = 2048;
constexpr std::uint32_t kWidthMin = 32;
constexpr std::uint32_t kExpertCount = 12;
constexpr std::uint32_t kIdleExpertCount = 3;
constexpr std::uint64_t kSampleElementsMax = 4'000'000;
constexpr std::size_t kBlock = 256;

// Random numbers by place: number `index` of the stream `key` (the finaliser of SplitMix64).
std::uint64_t random_at(std::uint64_t key, std::uint64_t index) {
  std::uint64_t bits = key + (index + 1) * 0x9E37'79B9'7F4A'7C15ULL;
  bits = (bits ^ (bits >> 30)) * 0xBF58'476D'1CE4'E5B9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94D0'49BB'1331'11EBULL;
  return bits ^ (bits >> 31);
}

// Streams of one seed that have nothing to do with each other.
enum class Purpose : std::uint64_t {
  kTensor = 1,
  kSigma,
  kExpert,
  kColumn,
  kRow,
  kActive,
  kWeight,
  kUpdate,
  kSample,
};
std::uint64_t stream(std::uint64_t key, Purpose purpose) {
  return random_at(key, 0x5EED'0000ULL + static_cast<std::uint64_t>(purpose));
}

double uniform(std::uint64_t bits) { return static_cast<double>((bits >> 11) + 1) * 0x1p-53; }

// log-normal with a sigma of a quarter: how much rows and columns differ in the size of a step.
float scale_at(std::uint64_t key, std::uint64_t index) {
  const double radius = std::sqrt(-2.0 * std::log(uniform(random_at(key, 2 * index))));
  const double angle = 6.283185307179586 * uniform(random_at(key, 2 * index + 1));
  return static_cast<float>(std::exp(0.25 * radius * std::cos(angle)));
}

// -ln(x) of x in (0, 1]. Own arithmetic, so that the bits do not depend on a library's version and
// the loop below can be vectorised.
inline float minus_log(float x) {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t shifted = bits - 0x3F35'04F3U;  // the mantissa then lies around 1
  const float exponent = static_cast<float>(static_cast<std::int32_t>(shifted) >> 23);
  bits = (shifted & 0x007F'FFFFU) + 0x3F35'04F3U;
  const float mantissa = std::bit_cast<float>(bits);
  const float s = (mantissa - 1.0F) / (mantissa + 1.0F);
  const float square = s * s;
  const float series =
      2.0F * s *
      (1.0F + square * (0.33333334F + square * (0.2F + square * (0.14285715F + square * 0.1111F))));
  return -(exponent * 0.6931472F + series);
}

// The random bits of one element, split; every field is small enough to be exact in a float.
struct ElementBits {
  std::array<std::int32_t, kBlock> radius;       // 1 to 2^24
  std::array<std::int32_t, kBlock> turn;         // -2^21 to 2^21 - 1, of a quarter turn
  std::array<std::int32_t, kBlock> quarter;      // 0 to 3
  std::array<std::int32_t, kBlock> exponential;  // 1 to 2^16
};

void draw(std::uint64_t key, std::uint64_t first, std::size_t count, ElementBits& out) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = random_at(key, first + i);
    out.radius[i] = static_cast<std::int32_t>(bits >> 40) + 1;
    out.quarter[i] = static_cast<std::int32_t>((bits >> 38) & 3);
    out.turn[i] = static_cast<std::int32_t>((bits >> 16) & 0x3F'FFFF) - 0x20'0000;
    out.exponential[i] = static_cast<std::int32_t>(bits & 0xFFFF) + 1;
  }
}

// One normal of Box and Muller's two.
inline float normal(const ElementBits& bits, std::size_t i) {
  const float radius = std::sqrt(2.0F * minus_log(static_cast<float>(bits.radius[i]) * 0x1p-24F));
  const float angle = static_cast<float>(bits.turn[i]) * (1.5707964F * 0x1p-22F);
  const float square = angle * angle;
  const float sine =
      angle *
      (1.0F + square * (-0.16666667F + square * (0.0083333333F + square * (-0.00019841270F))));
  const float cosine =
      1.0F + square * (-0.5F + square * (0.041666667F +
                                         square * (-0.0013888889F + square * 0.000024801587F)));
  const float unsigned_part = (bits.quarter[i] & 1) != 0 ? -sine : cosine;
  return (bits.quarter[i] & 2) != 0 ? -radius * unsigned_part : radius * unsigned_part;
}

void shape_weights(const ElementBits& bits, float mean, float sigma, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = mean + sigma * normal(bits, i);
}

// A normal divided by the root of an exponential has heavy tails.
void shape_updates(const ElementBits& bits, float row_scale, const float* column_scales,
                   std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float tail =
        std::sqrt(0.5F * minus_log(static_cast<float>(bits.exponential[i]) * 0x1p-16F) + 0.5F);
    const float update = 0.22F * normal(bits, i) / tail * row_scale * column_scales[i];
    out[i] = std::min(1.0F, std::max(-1.0F, update));
  }
}

// Elements of an embedding and two layers in units of width²: 4 + (2.5 + 8.25) + (2.5 + 18).
std::uint64_t elements_of_mix(std::uint32_t width) {
  return std::uint64_t{width} * width * 141 / 4;
}

}  // namespace

CheckpointModel::CheckpointModel(std::uint64_t bytes, std::uint64_t seed)
    : seed_(random_at(seed, 0)), width_(kWidthMax), elements_left_(bytes / 2) {
  while (width_ > kWidthMin && elements_of_mix(width_) > elements_left_) width_ /= 2;
  add("model.embed_tokens.weight", 4 * width_, width_, 0, 0.02F);
  if (!tensors_.empty()) tensors_.back().active_row_share = 0.25F;
  for (std::uint32_t layer = 0; elements_left_ >= width_; ++layer) add_layer(layer);
}

std::uint64_t CheckpointModel::element_count() const {
  std::uint64_t count = 0;
  for (const MadeTensor& tensor : tensors_) count += tensor.element_count();
  return count;
}

// Takes what is left, in whole rows: the model ends in the middle of a layer or a tensor.
void CheckpointModel::add(std::string name, std::uint32_t row_count, std::uint32_t column_count,
                          float mean, float sigma) {
  const std::uint64_t rows_left = elements_left_ / column_count;
  row_count = static_cast<std::uint32_t>(std::min<std::uint64_t>(row_count, rows_left));
  if (row_count == 0) return;
  MadeTensor tensor;
  tensor.name = std::move(name);
  tensor.row_count = row_count;
  tensor.column_count = column_count;
  tensor.mean = mean;
  tensor.sigma = sigma;
  tensor.key = random_at(stream(seed_, Purpose::kTensor), tensors_.size());
  tensor.column_scales.resize(column_count);
  const std::uint64_t column_key = stream(tensor.key, Purpose::kColumn);
  for (std::uint32_t c = 0; c < column_count; ++c)
    tensor.column_scales[c] = scale_at(column_key, c);
  elements_left_ -= tensor.element_count();
  tensors_.push_back(std::move(tensor));
}

// Log-uniform between 0.01 and 0.05.
float CheckpointModel::linear_sigma() const {
  const double place = uniform(random_at(stream(seed_, Purpose::kSigma), tensors_.size()));
  return static_cast<float>(0.01 * std::pow(5.0, place));
}

void CheckpointModel::add_layer(std::uint32_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  add(prefix + "input_layernorm.weight", 1, width_, 1, 0.05F);
  add(prefix + "self_attn.q_proj.weight", width_, width_, 0, linear_sigma());
  add(prefix + "self_attn.k_proj.weight", width_ / 4, width_, 0, linear_sigma());
  add(prefix + "self_attn.v_proj.weight", width_ / 4, width_, 0, linear_sigma());
  add(prefix + "self_attn.o_proj.weight", width_, width_, 0, linear_sigma());
  add(prefix + "post_attention_layernorm.weight", 1, width_, 1, 0.05F);
  if (layer % 2 == 1) return add_experts(prefix, layer);
  const std::uint32_t inner = width_ * 11 / 4;
  add(prefix + "mlp.gate_proj.weight", inner, width_, 0, linear_sigma());
  add(prefix + "mlp.up_proj.weight", inner, width_, 0, linear_sigma());
  add(prefix + "mlp.down_proj.weight", width_, inner, 0, linear_sigma());
}

// A quarter of the experts saw no token and are idle; the others differ in the size of their step.
void CheckpointModel::add_experts(const std::string& prefix, std::uint32_t layer) {
  const std::uint64_t key = random_at(stream(seed_, Purpose::kExpert), layer);
  std::array<std::pair<std::uint64_t, std::uint32_t>, kExpertCount> order;
  for (std::uint32_t e = 0; e < kExpertCount; ++e) order[e] = {random_at(key, e), e};
  std::sort(order.begin(), order.end());
  std::array<bool, kExpertCount> is_idle{};
  for (std::uint32_t i = 0; i < kIdleExpertCount; ++i) is_idle[order[i].second] = true;

  for (std::uint32_t e = 0; e < kExpertCount; ++e) {
    const double place = uniform(random_at(key, kExpertCount + e));
    const float update_scale = is_idle[e] ? 0.0F : 0.5F + static_cast<float>(place);
    const float sigma = linear_sigma();
    const std::string expert = prefix + "mlp.experts." + std::to_string(e) + ".";
    const std::size_t first = tensors_.size();
    add(expert + "gate_proj.weight", width_ / 2, width_, 0, sigma);
    add(expert + "up_proj.weight", width_ / 2, width_, 0, sigma);
    add(expert + "down_proj.weight", width_, width_ / 2, 0, sigma);
    for (std::size_t t = first; t < tensors_.size(); ++t) tensors_[t].update_scale = update_scale;
  }
}

void CheckpointModel::fill_weights(const MadeTensor& tensor, std::uint32_t row,
                                   std::uint32_t first_column, std::span<float> weights) {
  const std::uint64_t first = std::uint64_t{row} * tensor.column_count + first_column;
  const std::uint64_t key = stream(tensor.key, Purpose::kWeight);
  ElementBits bits;
  for (std::size_t i = 0; i < weights.size(); i += kBlock) {
    const std::size_t count = std::min(kBlock, weights.size() - i);
    draw(key, first + i, count, bits);
    shape_weights(bits, tensor.mean, tensor.sigma, weights.subspan(i, count));
  }
}

void CheckpointModel::fill_updates(const MadeTensor& tensor, std::uint32_t row,
                                   std::uint32_t first_column, std::uint32_t step,
                                   std::span<float> updates) {
  const std::uint64_t step_key = random_at(stream(tensor.key, Purpose::kUpdate), step);
  const bool is_active =
      tensor.update_scale > 0 &&
      uniform(random_at(stream(step_key, Purpose::kActive), row)) <= tensor.active_row_share;
  if (!is_active) {
    std::fill(updates.begin(), updates.end(), 0.0F);
    return;
  }
  const float row_scale = tensor.update_scale * scale_at(stream(tensor.key, Purpose::kRow), row);
  const std::uint64_t first = std::uint64_t{row} * tensor.column_count + first_column;
  ElementBits bits;
  for (std::size_t i = 0; i < updates.size(); i += kBlock) {
    const std::size_t count = std::min(kBlock, updates.size() - i);
    draw(step_key, first + i, count, bits);
    shape_updates(bits, row_scale, tensor.column_scales.data() + first_column + i,
                  updates.subspan(i, count));
  }
}

namespace {

// A run of every row of one tensor.
struct Sample {
  std::uint32_t length = 0;                  // elements of each row
  std::vector<std::uint32_t> first_columns;  // by row
  std::vector<float> weights;
  std::vector<float> updates;
  double weight_of_each = 0;  // elements of the tensor that one sampled element stands for

  std::span<float> row_of(std::vector<float>& values, std::uint32_t row) const {
    return std::span(values).subspan(std::size_t{row} * length, length);
  }
};

Sample take_sample(const MadeTensor& tensor, double density) {
  Sample sample;
  sample.length =
      std::min(tensor.column_count, 1 + static_cast<std::uint32_t>(tensor.column_count * density));
  const std::size_t count = std::size_t{sample.length} * tensor.row_count;
  sample.weights.resize(count);
  sample.updates.resize(count);
  sample.weight_of_each = static_cast<double>(tensor.element_count()) / static_cast<double>(count);
  const std::uint64_t key = stream(tensor.key, Purpose::kSample);
  for (std::uint32_t row = 0; row < tensor.row_count; ++row) {
    const auto first =
        static_cast<std::uint32_t>(random_at(key, row) % (tensor.column_count - sample.length + 1));
    sample.first_columns.push_back(first);
    CheckpointModel::fill_weights(tensor, row, first, sample.row_of(sample.weights, row));
  }
  return sample;
}

// The estimated number of elements of the model whose stored bits a step of this size changes.
double count_changed(const std::vector<Sample>& samples, float size) {
  double changed = 0;
  for (const Sample& sample : samples) {
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < sample.weights.size(); ++i) {
      const float weight = sample.weights[i];
      count += to_bfloat16(weight) != to_bfloat16(weight - size * sample.updates[i]) ? 1U : 0U;
    }
    changed += static_cast<double>(count) * sample.weight_of_each;
  }
  return changed;
}

float find_size(const std::vector<Sample>& samples, double changed_wanted) {
  double low = 1e-10;
  double high = 1;
  for (int round = 0; round < 40; ++round) {
    const double middle = std::sqrt(low * high);
    (count_changed(samples, static_cast<float>(middle)) < changed_wanted ? low : high) = middle;
  }
  return static_cast<float>(std::sqrt(low * high));
}

}  // namespace

std::vector<float> CheckpointModel::calibrate(std::span<const double> shares) const {
  const auto total = static_cast<double>(element_count());
  const double density = std::min(1.0, static_cast<double>(kSampleElementsMax) / total);
  std::vector<Sample> samples;
  for (const MadeTensor& tensor : tensors_) samples.push_back(take_sample(tensor, density));

  std::vector<float> sizes;
  for (std::uint32_t step = 0; step < shares.size(); ++step) {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      Sample& sample = samples[t];
      for (std::uint32_t row = 0; row < tensors_[t].row_count; ++row)
        fill_updates(tensors_[t], row, sample.first_columns[row], step,
                     sample.row_of(sample.updates, row));
    }
    sizes.push_back(find_size(samples, shares[step] * total));
    for (Sample& sample : samples)
      for (std::size_t i = 0; i < sample.weights.size(); ++i)
        sample.weights[i] -= sizes.back() * sample.updates[i];
  }
  return sizes;
}

}  // namespace weft::bench
