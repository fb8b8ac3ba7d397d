// SPDX-License-Identifier: Apache-2.0
#include "codec/encode/class_choice.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

namespace weft::codec {

namespace {

// Threads: immutable.
struct LogTable {
  static constexpr std::uint32_t kSteps = 256;
  double at[kSteps + 1];
  LogTable() {
    for (std::uint32_t i = 0; i <= kSteps; ++i) at[i] = std::log2(1.0 + i / double{kSteps});
  }
};

// log2 of a positive number, to about 3e-6: the cost model needs no more.
double quick_log2(double number) {
  static const LogTable table;
  std::uint64_t pattern;
  std::memcpy(&pattern, &number, sizeof(pattern));
  const auto exponent = static_cast<double>(static_cast<std::int64_t>(pattern >> 52) - 1023);
  const auto step = static_cast<std::uint32_t>(pattern >> 44) & (LogTable::kSteps - 1);
  const double part = static_cast<double>(pattern & 0x0000'0FFF'FFFF'FFFFULL) * 0x1p-44;
  return exponent + table.at[step] + part * (table.at[step + 1] - table.at[step]);
}

}  // namespace

double entropy_bits(double part, double whole) {
  if (part <= 0 || part >= whole) return 0;
  const double rest = whole - part;
  return whole * quick_log2(whole) - part * quick_log2(part) - rest * quick_log2(rest);
}

namespace {

// x log2 x
double times_log2(double x) { return x > 0 ? x * quick_log2(x) : 0; }

// Bits to say which elements changed and which of those are exceptions; what is common to both
// entropies has gone.
double two_entropies(double elements, double changed, double exceptions) {
  return times_log2(elements) - times_log2(elements - changed) - times_log2(exceptions) -
         times_log2(changed - exceptions);
}

// Rice codes come within about 1.2 % of that.
constexpr double kRiceLoss = 1.012;
// Codes and counts of a class's two sequences, and its share of the parameters.
constexpr double kClassOverheadBits = 40;

// Exponents from the highest that occurs down, as a list; the last entry stands for all below.
// Threads: a value; one at a time.
struct Buckets {
  std::uint32_t highest = 0;
  std::uint32_t count = 1;
  double elements[kExponentSpan + 1] = {};  // running sums
  double changed[kExponentSpan + 1] = {};
  double exceptions[kExponentSpan + 1] = {};
};

Buckets make_buckets(const ChangeStats& stats) {
  Buckets buckets;
  std::uint32_t lowest = 0;
  for (std::uint32_t e = 256; e-- > 0;) {
    if (stats.elements[e] > 0) {
      lowest = e;
      buckets.highest = std::max(buckets.highest, e);
    }
  }
  buckets.count = std::min(kExponentSpan, buckets.highest - lowest + 1);
  for (std::uint32_t b = 0; b < buckets.count; ++b) {
    double elements = 0;
    double changed = 0;
    double exceptions = 0;
    const std::uint32_t top = buckets.highest - b;
    const std::uint32_t bottom = b + 1 == buckets.count ? 0 : top;
    for (std::uint32_t e = bottom; e <= top; ++e) {
      elements += stats.elements[e];
      changed += stats.changed[e];
      exceptions += stats.exceptions[e];
    }
    buckets.elements[b + 1] = buckets.elements[b] + elements;
    buckets.changed[b + 1] = buckets.changed[b] + changed;
    buckets.exceptions[b + 1] = buckets.exceptions[b] + exceptions;
  }
  return buckets;
}

// The cheapest place below `b` to begin the last of several classes: `before` is the cheapest cost
// up to each place from `first` on, `last` that of one class from there up to `b`.
template <typename Cost>
std::pair<std::uint32_t, double> cheapest_start(std::uint32_t first, std::uint32_t b,
                                                const double* before, Cost&& last) {
  std::pair<std::uint32_t, double> best{first, before[first] + last(first)};
  for (std::uint32_t a = first + 1; a < b; ++a) {
    const double total = before[a] + last(a);
    if (total < best.second) best = {a, total};
  }
  return best;
}

// Cheapest cut of the buckets into at most classes_max runs.
double cut_buckets(const Buckets& buckets, double share, std::uint32_t classes_max, ClassCut& cut) {
  const std::uint32_t n = buckets.count;
  double cost[kExponentSpan + 1][kExponentSpan + 1];  // of one class from bucket a up to b
  for (std::uint32_t a = 0; a < n; ++a) {
    for (std::uint32_t b = a + 1; b <= n; ++b) {
      const double elements = buckets.elements[b] - buckets.elements[a];
      const double changed = buckets.changed[b] - buckets.changed[a];
      const double exceptions = buckets.exceptions[b] - buckets.exceptions[a];
      cost[a][b] =
          kClassOverheadBits * share + kRiceLoss * two_entropies(elements, changed, exceptions);
    }
  }
  double best[kClassesMax + 1][kExponentSpan + 1];
  std::uint32_t from[kClassesMax + 1][kExponentSpan + 1];
  const std::uint32_t k_max = std::min(classes_max, n);
  std::uint32_t k_best = 1;
  for (std::uint32_t b = 1; b <= n; ++b) {
    best[1][b] = cost[0][b];
    from[1][b] = 0;
  }
  for (std::uint32_t k = 2; k <= k_max; ++k) {
    for (std::uint32_t b = k; b <= n; ++b) {
      std::tie(from[k][b], best[k][b]) =
          cheapest_start(k - 1, b, best[k - 1], [&](std::uint32_t a) { return cost[a][b]; });
    }
    if (best[k][n] < best[k_best][n]) k_best = k;
  }
  cut.count = k_best;
  std::uint32_t end = n;
  for (std::uint32_t k = k_best; k > 1; --k) {
    end = from[k][end];
    // The class ends above bucket `end`: its lowest exponent is that of bucket end - 1.
    cut.thresholds[k - 2] = static_cast<std::uint8_t>(buckets.highest - (end - 1));
  }
  return best[k_best][n];
}

double magnitude_bits(const ChangeStats& stats, std::uint32_t reference, std::uint32_t lowest,
                      std::uint32_t highest) {
  double bits = 0;
  for (std::uint32_t e = lowest; e <= highest; ++e) {
    const std::uint32_t k = magnitude_parameter(reference, e);
    bits += stats.exceptions[e] * (k + 1.0) + static_cast<double>(stats.magnitude_sums[e] >> k);
  }
  return bits;
}

}  // namespace

ClassChoice choose_classes(const ChangeStats& stats, const ElementFormat& format,
                           std::uint32_t classes_max) {
  ClassChoice choice;
  const Buckets buckets = make_buckets(stats);
  const double cut_bits = cut_buckets(buckets, stats.share, classes_max, choice.cut);
  double best = std::numeric_limits<double>::max();
  if (stats.exception_count == 0) best = 0;
  std::uint32_t lowest = 0;  // exponent with an exception
  while (lowest < buckets.highest && stats.exceptions[lowest] == 0) ++lowest;
  for (std::uint32_t b = 0; stats.exception_count != 0 && b < buckets.count; ++b) {
    const std::uint32_t reference = buckets.highest - b;
    const double bits = magnitude_bits(stats, reference, lowest, buckets.highest);
    if (bits < best) {
      best = bits;
      choice.magnitude_reference = reference;
    }
  }
  choice.bits =
      (3.0 + 2.0 * format.exponent_bits) * stats.share + cut_bits + stats.changed_count + best;
  return choice;
}

}  // namespace weft::codec
