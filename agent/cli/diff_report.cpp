// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/diff_report.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "agent/lib/json_writer.hpp"
#include "agent/lib/units.hpp"

namespace weft::cli {
namespace {

using TypeCounts = std::array<std::uint64_t, wire::kChunkTypeCount>;

// What one line of a report says, of a tensor or of all.
// Threads: a value; one at a time.
struct Line {
  std::string name;
  std::string dtype;
  std::uint64_t elements = 0;
  std::uint64_t changed = 0;
  double bytes = 0;
  std::optional<double> bound_bytes;
  // Of what the bound covers: the tensors that have one and their changes.
  double covered_bytes = 0;
  std::uint64_t covered_changed = 0;
  TypeCounts chunks{};

  double changed_fraction() const {
    return per(static_cast<double>(changed), elements).value_or(0);
  }
  std::optional<double> bytes_per_changed() const { return per(bytes, changed); }
  std::optional<double> bound_per_changed() const {
    return bound_bytes ? per(*bound_bytes, covered_changed) : std::nullopt;
  }
  std::optional<double> ratio_to_bound() const {
    if (!bound_bytes || *bound_bytes <= 0) return std::nullopt;
    return covered_bytes / *bound_bytes;
  }

 private:
  static std::optional<double> per(double part, std::uint64_t count) {
    if (count == 0) return std::nullopt;
    return part / static_cast<double>(count);
  }
};

Line line_of(const Difference& difference, std::size_t place) {
  const codec::Tensor& tensor = difference.schema.tensors()[place];
  const codec::TensorEncodeStats& stats = difference.encoded.tensors[place];
  Line line;
  line.name = tensor.name;
  line.dtype = codec::name(tensor.dtype);
  line.elements = tensor.element_count;
  line.changed = stats.changed_elements;
  line.bytes = static_cast<double>(stats.payload_bits) / 8;
  std::copy(stats.chunks_by_type.begin(), stats.chunks_by_type.end(), line.chunks.begin());
  if (const auto bits = difference.bound_bits[place]; bits && line.changed > 0) {
    line.bound_bytes = *bits / 8;
    line.covered_bytes = line.bytes;
    line.covered_changed = line.changed;
  }
  return line;
}

// The file's own bytes (headers of frames, manifest) count against the bound like any other.
Line total_of(const Difference& difference) {
  Line total;
  total.name = "total";
  total.bytes = static_cast<double>(difference.file_bytes);
  total.covered_bytes = total.bytes;
  for (std::size_t i = 0; i < difference.encoded.tensors.size(); ++i) {
    const Line line = line_of(difference, i);
    total.elements += line.elements;
    total.changed += line.changed;
    total.covered_changed += line.covered_changed;
    if (line.bound_bytes) {
      total.bound_bytes = total.bound_bytes.value_or(0) + *line.bound_bytes;
    } else {
      total.covered_bytes -= line.bytes;
    }
    for (std::size_t t = 0; t < line.chunks.size(); ++t) total.chunks[t] += line.chunks[t];
  }
  return total;
}

// Places of the changed tensors.
std::vector<std::size_t> changed_tensors(const codec::EncodeSummary& encoded) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < encoded.tensors.size(); ++i) {
    if (encoded.tensors[i].changed_elements > 0) places.push_back(i);
  }
  return places;
}

const char* type_name(std::size_t type) {
  return wire::to_string(static_cast<wire::ChunkType>(type));
}

std::string number(const char* format, std::optional<double> value) {
  if (!value) return "";
  char text[48];
  std::snprintf(text, sizeof(text), format, *value);
  return text;
}

void member(agent::JsonWriter& json, const char* key, std::optional<double> value) {
  json.key(key);
  if (value) {
    json.value(*value);
  } else {
    json.null();
  }
}

void add_measures(agent::JsonWriter& json, const Line& line) {
  json.member("changed_fraction", line.changed_fraction());
  member(json, "bytes_per_changed", line.bytes_per_changed());
  member(json, "bound_bytes_per_changed", line.bound_per_changed());
  member(json, "ratio_to_bound", line.ratio_to_bound());
}

// Types of its chunks, most frequent first: "classed 12, same 3".
std::string types_text(const Line& line) {
  std::vector<std::size_t> types(line.chunks.size());
  std::iota(types.begin(), types.end(), 0);
  std::stable_sort(types.begin(), types.end(),
                   [&](auto a, auto b) { return line.chunks[a] > line.chunks[b]; });
  std::string text;
  for (const std::size_t type : types) {
    if (line.chunks[type] == 0) break;
    text += (text.empty() ? "" : ", ") + std::string(type_name(type)) + " " +
            std::to_string(line.chunks[type]);
  }
  return text;
}

std::string table_row(const Line& line) {
  char text[512];
  std::snprintf(text, sizeof(text), "\n%10s %9s %9s %8s %7s  %-28s %s",
                agent::human_bytes(static_cast<std::uint64_t>(line.bytes)).c_str(),
                number("%.4f %%", 100 * line.changed_fraction()).c_str(),
                number("%.3f", line.bytes_per_changed()).c_str(),
                number("%.3f", line.bound_per_changed()).c_str(),
                number("%.3f", line.ratio_to_bound()).c_str(), types_text(line).c_str(),
                line.name.substr(0, 300).c_str());
  return text;
}

// A name may hold commas and quotes.
std::string quoted(const std::string& name) {
  if (name.find_first_of(",\"\n\r") == std::string::npos) return name;
  std::string text = "\"";
  for (const char c : name) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}

std::string csv_row(const Line& line) {
  std::string row =
      quoted(line.name) + "," + line.dtype + "," + std::to_string(line.elements) + "," +
      std::to_string(line.changed) + "," + number("%.9g", line.changed_fraction()) + "," +
      number("%.12g", line.bytes) + "," + number("%.6g", line.bytes_per_changed()) + "," +
      number("%.6g", line.bound_per_changed()) + "," + number("%.6g", line.ratio_to_bound());
  for (const std::uint64_t chunks : line.chunks) row += "," + std::to_string(chunks);
  return row;
}

}  // namespace

std::string as_json(const Difference& difference, const DiffOptions& options) {
  const codec::EncodeSummary& encoded = difference.encoded;
  const Line total = total_of(difference);
  agent::JsonWriter json;
  json.begin_object().member("changed_elements", total.changed);
  json.member("total_elements", total.elements);
  json.member("tensor_bytes", difference.schema.tensor_bytes());
  json.member("file_bytes", difference.file_bytes).member("frames", encoded.seal.frame_count);
  add_measures(json, total);
  json.member("base_root", to_hex(difference.base_root));
  json.member("target_root", to_hex(difference.target_root));
  json.member("file", options.output_file).key("types").begin_object();
  for (std::size_t type = 0; type < wire::kChunkTypeCount; ++type) {
    json.key(type_name(type)).begin_object();
    json.member("chunks", encoded.chunks_by_type[type]);
    json.member("bytes", encoded.payload_bytes_by_type[type]).end_object();
  }
  json.end_object().key("tensors").begin_array();
  for (const std::size_t place : changed_tensors(encoded)) {
    const Line line = line_of(difference, place);
    json.begin_object().member("name", line.name).member("dtype", line.dtype);
    json.member("elements", line.elements).member("changed", line.changed);
    json.member("bytes", line.bytes);
    add_measures(json, line);
    json.key("types").begin_object();
    for (std::size_t type = 0; type < line.chunks.size(); ++type) {
      if (line.chunks[type] > 0) json.member(type_name(type), line.chunks[type]);
    }
    json.end_object().end_object();
  }
  return json.end_array().end_object().take();
}

std::string as_csv(const Difference& difference) {
  std::string text =
      "tensor,dtype,elements,changed,changed_fraction,bytes,bytes_per_changed,"
      "bound_bytes_per_changed,ratio_to_bound";
  for (std::size_t type = 0; type < wire::kChunkTypeCount; ++type) {
    text += "," + std::string(type_name(type)) + "_chunks";
  }
  for (std::size_t i = 0; i < difference.encoded.tensors.size(); ++i) {
    text += "\n" + csv_row(line_of(difference, i));
  }
  return text + "\n" + csv_row(total_of(difference));
}

std::string as_text(const Difference& difference, const DiffOptions& options) {
  const codec::EncodeSummary& encoded = difference.encoded;
  const Line total = total_of(difference);
  const auto tensor_bytes = difference.schema.tensor_bytes();
  char line[512];
  std::snprintf(line, sizeof(line),
                "%llu of %llu elements changed (%.4f %%)\n%s in %u frames, %.1f times less than "
                "%s\nroot %s -> %s",
                static_cast<unsigned long long>(total.changed),
                static_cast<unsigned long long>(total.elements), 100 * total.changed_fraction(),
                agent::human_bytes(difference.file_bytes).c_str(), encoded.seal.frame_count,
                static_cast<double>(tensor_bytes) / static_cast<double>(difference.file_bytes),
                agent::human_bytes(tensor_bytes).c_str(), to_hex(difference.base_root).c_str(),
                to_hex(difference.target_root).c_str());
  std::string text = line;
  std::vector<std::size_t> places = changed_tensors(encoded);
  const auto larger = [&](std::size_t a, std::size_t b) {
    return encoded.tensors[a].payload_bits > encoded.tensors[b].payload_bits;
  };
  std::stable_sort(places.begin(), places.end(), larger);
  const std::size_t shown = options.tensors_shown == 0
                                ? places.size()
                                : std::min<std::size_t>(options.tensors_shown, places.size());
  std::snprintf(line, sizeof(line), "\n\n%10s %9s %9s %8s %7s  %-28s %s", "bytes", "changed",
                "B/change", "bound", "ratio", "chunks", "tensor");
  text += line + table_row(total);
  for (std::size_t i = 0; i < shown; ++i) text += table_row(line_of(difference, places[i]));
  if (shown < places.size()) {
    text += "\n(" + std::to_string(places.size() - shown) +
            " more tensors changed: --tensors 0 shows all)";
  }
  if (!options.output_file.empty()) text += "\n\nwritten to " + options.output_file;
  return text;
}

}  // namespace weft::cli
