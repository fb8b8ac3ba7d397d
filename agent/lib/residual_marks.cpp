// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/residual_marks.hpp"

#include <algorithm>
#include <utility>

#include "weft/wire/digest.hpp"

namespace weft::agent {

namespace {

// What each range reads when a value depends on its own element alone.
std::vector<Digest> digests_by_range(const ResidualSource& source, std::uint64_t element_count,
                                     std::span<const ElementRange> ranges) {
  std::vector<Digest> digests;
  digests.reserve(ranges.size());
  for (const ElementRange& range : ranges) {
    wire::Digester digester;
    for (const auto part : source.parts) {
      const std::size_t width = part.size() / static_cast<std::size_t>(element_count);
      digester.update(part.subspan(static_cast<std::size_t>(range.first) * width,
                                   static_cast<std::size_t>(range.count) * width));
    }
    digests.push_back(digester.digest());
  }
  return digests;
}

// The lengths count: bytes that move from one part to the next are another source.
Digest digest_of_all(const ResidualSource& source) {
  wire::Digester digester;
  for (const auto part : source.parts) {
    const std::uint64_t bytes = part.size();
    digester.update(std::as_bytes(std::span(&bytes, 1)));
    digester.update(part);
  }
  return digester.digest();
}

bool is_elementwise(const ResidualSource& source, std::uint64_t element_count) {
  return source.elementwise &&
         std::all_of(source.parts.begin(), source.parts.end(),
                     [&](const auto part) { return part.size() % element_count == 0; });
}

}  // namespace

ResidualMarks::ResidualMarks(std::size_t tensor_count)
    : committed_(tensor_count), pending_(tensor_count) {}

std::vector<bool> ResidualMarks::changed(std::uint32_t tensor, std::uint64_t element_count,
                                         std::span<const ElementRange> ranges,
                                         const ResidualSource& source) {
  if (source.parts.empty() || ranges.empty()) {
    forget(tensor);
    return std::vector<bool>(ranges.size(), true);
  }
  Marks now = is_elementwise(source, element_count)
                  ? digests_by_range(source, element_count, ranges)
                  : Marks{digest_of_all(source)};
  const Marks& before = committed_[tensor];
  std::vector<bool> differs(ranges.size(), true);
  if (before.size() == now.size()) {
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const std::size_t mark = now.size() == 1 ? 0 : i;
      differs[i] = before[mark] != now[mark];
    }
  }
  pending_[tensor] = std::move(now);
  return differs;
}

void ResidualMarks::move() {
  for (std::size_t t = 0; t < pending_.size(); ++t) {
    if (pending_[t]) committed_[t] = *std::exchange(pending_[t], std::nullopt);
  }
}

void ResidualMarks::drop() {
  for (auto& marks : pending_) marks.reset();
}

}  // namespace weft::agent
