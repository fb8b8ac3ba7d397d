// SPDX-License-Identifier: Apache-2.0
#include "codec/project/box_file.hpp"

#include <charconv>
#include <optional>
#include <unordered_map>

namespace weft::codec {

namespace {

constexpr std::string_view kFirstLine = "weft-boxes 1";
constexpr std::size_t kLinesMax = 4'000'000;

// The words of one line.
// Threads: one at a time.
class LineWords {
 public:
  explicit LineWords(std::string_view line) : rest_(line) {}

  bool at_end() {
    skip_blanks();
    return rest_.empty() || rest_.front() == '#';
  }
  bool take(std::string_view word) {
    skip_blanks();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  std::optional<std::uint64_t> number() {
    skip_blanks();
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return std::nullopt;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  // In double quotes; \" and \\ stand for themselves.
  std::optional<std::string> name() {
    if (!take("\"")) return std::nullopt;
    std::string text;
    while (!rest_.empty()) {
      const char next = rest_.front();
      rest_.remove_prefix(1);
      if (next == '"') return text;
      if (next == '\\') {
        if (rest_.empty() || (rest_.front() != '"' && rest_.front() != '\\')) return std::nullopt;
        text += rest_.front();
        rest_.remove_prefix(1);
      } else {
        text += next;
      }
    }
    return std::nullopt;
  }

 private:
  void skip_blanks() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) {
      rest_.remove_prefix(1);
    }
  }
  std::string_view rest_;
};

std::string quoted(std::string_view name) {
  std::string text = "\"";
  for (const char each : name) {
    if (each == '"' || each == '\\') text += '\\';
    text += each;
  }
  return text + '"';
}

// Threads: one at a time.
class BoxReader {
 public:
  explicit BoxReader(const Schema& schema) : schema_(schema) {}

  Status line(std::string_view text) {
    ++number_;
    LineWords words(text);
    if (number_ == 1) {
      return words.take(kFirstLine) && words.at_end() ? ok() : wrong("is not 'weft-boxes 1'");
    }
    if (number_ > kLinesMax) {
      return failure(ErrorCode::kResourceLimit, Stage::kOpen,
                     "box file: more than " + std::to_string(kLinesMax) + " lines");
    }
    if (words.at_end()) return ok();
    if (words.take("source ")) return source(words);
    if (words.take("box ")) return box(words);
    return wrong("begins with neither 'source' nor 'box'");
  }
  Result<Projection> finish() {
    if (number_ == 0) return Error(wrong("is missing").error());
    return std::move(projection_);
  }

 private:
  Status wrong(const std::string& what, ErrorCode code = ErrorCode::kFormat) const {
    return failure(code, Stage::kOpen,
                   "box file: line " + std::to_string(number_ == 0 ? 1 : number_) + " " + what);
  }

  Status source(LineWords& words) {
    const auto name = words.name();
    const auto count = name ? words.number() : std::nullopt;
    if (!count || !words.at_end()) return wrong("is not: source \"name\" elements");
    if (!places_.emplace(*name, static_cast<std::uint32_t>(projection_.sources.size())).second) {
      return wrong("names source " + *name + " again");
    }
    projection_.sources.push_back({*name, *count});
    return ok();
  }

  Status box(LineWords& words) {
    Status shape =
        wrong("is not: box \"source\" offset -> \"target\" offset (extent source target) ...");
    const auto from = words.name();
    const auto from_offset = from ? words.number() : std::nullopt;
    if (!from_offset || !words.take("->")) return shape;
    const auto to = words.name();
    const auto to_offset = to ? words.number() : std::nullopt;
    if (!to_offset) return shape;
    Box box;
    box.source_offset = *from_offset;
    box.target_offset = *to_offset;
    while (!words.at_end()) {
      if (box.rank == limits::kBoxRankMax) return wrong("has too many axes");
      if (!words.take("(")) return shape;
      const auto extent = words.number();
      const auto source_stride = words.number();
      const auto target_stride = words.number();
      if (!extent || !source_stride || !target_stride || !words.take(")")) return shape;
      box.axes[box.rank++] = {*extent, *source_stride, *target_stride};
    }
    const auto place = places_.find(*from);
    if (place == places_.end()) return wrong("names no source that was declared: " + *from);
    const auto target = schema_.find(*to);
    if (!target) return wrong("names no tensor of the checkpoint: " + *to, ErrorCode::kConfig);
    box.source = place->second;
    box.target = *target;
    const Status sound = check_box(schema_, projection_, box);
    if (!sound) return wrong(": " + sound.error().detail, sound.error().code);
    projection_.boxes.push_back(box);
    return ok();
  }

  const Schema& schema_;
  std::size_t number_ = 0;
  Projection projection_;
  std::unordered_map<std::string, std::uint32_t> places_;
};

}  // namespace

Result<Projection> parse_boxes(std::string_view text, const Schema& schema) {
  BoxReader reader(schema);
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    WEFT_TRY_STATUS(reader.line(line));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return reader.finish();
}

std::string format_boxes(const Projection& projection, const Schema& schema) {
  std::string text(kFirstLine);
  text += '\n';
  for (const ShardTensor& source : projection.sources) {
    text += "source " + quoted(source.name) + ' ' + std::to_string(source.element_count) + '\n';
  }
  for (const Box& box : projection.boxes) {
    text += "box " + quoted(projection.sources[box.source].name) + ' ' +
            std::to_string(box.source_offset) + " -> " + quoted(schema.tensor(box.target).name) +
            ' ' + std::to_string(box.target_offset);
    for (const BoxAxis& axis : box.used_axes()) {
      text += " (" + std::to_string(axis.extent) + ' ' + std::to_string(axis.source_stride) + ' ' +
              std::to_string(axis.target_stride) + ')';
    }
    text += '\n';
  }
  return text;
}

}  // namespace weft::codec
