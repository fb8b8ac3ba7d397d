// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "agent/cli/commands.hpp"
#include "agent/cli/report.hpp"
#include "agent/lib/json_writer.hpp"
#include "agent/lib/parse_ids.hpp"
#include "agent/lib/units.hpp"
#include "apply/journal/journal_reader.hpp"
#include "apply/read/state_page.hpp"
#include "apply/spool/delta_file.hpp"
#include "apply/store/checkpoint_dir.hpp"
#include "codec/frame/frame_view.hpp"
#include "codec/project/lattice.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

// Lines and the same facts as JSON, side by side.
// Threads: one at a time.
class Findings {
 public:
  explicit Findings(const char* kind) {
    json_.begin_object().member("kind", kind);
    text_ = std::string(kind) + ":";
  }
  template <typename Value>
  void add(const char* key, const Value& value) {
    json_.member(key, value);
    if constexpr (std::is_arithmetic_v<Value>) {
      text_ += std::string("\n  ") + key + " " + std::to_string(value);
    } else {
      text_ += std::string("\n  ") + key + " " + std::string(value);
    }
  }
  agent::JsonWriter& json() { return json_; }
  void line(const std::string& text) { text_ += "\n" + text; }

  std::string take(bool as_json) { return as_json ? json_.end_object().take() : text_; }

 private:
  agent::JsonWriter json_;
  std::string text_;
};

void add_manifest(Findings& found, const wire::Manifest& manifest) {
  found.add("refit", to_string(manifest.refit));
  found.add("fleet", to_hex(manifest.fleet));
  found.add("schema", to_hex(manifest.schema));
  found.add("lattice", to_hex(manifest.target.lattice));
  found.add("base_version", manifest.base.version.value);
  found.add("base_root", to_hex(manifest.base.root));
  found.add("target_version", manifest.target.version.value);
  found.add("target_root", to_hex(manifest.target.root));
  std::uint64_t changed = 0;
  std::uint64_t frames = 0;
  for (const wire::ProducerSeal& seal : manifest.producers) {
    changed += seal.changed_elements;
    frames += seal.frame_count;
  }
  found.add("producers", manifest.producers.size());
  found.add("sealed_frames", frames);
  found.add("changed_elements", changed);
}

// One frame: header, counts per chunk type, and its chunks when asked.
void add_frame(Findings& found, const codec::FrameView& frame, const InspectOptions& options) {
  const wire::FrameHeader& header = frame.header();
  found.json().begin_object().member("producer", header.producer);
  found.json().member("sequence", header.sequence).member("bytes", header.frame_bytes());
  found.json().member("checksum", to_hex(header.checksum()));
  std::array<std::uint64_t, wire::kChunkTypeCount> types{};
  for (const wire::IndexEntry& entry : frame.entries())
    ++types[static_cast<std::size_t>(entry.type)];
  std::string line = "  frame " + std::to_string(header.producer) + "." +
                     std::to_string(header.sequence) + ": " +
                     agent::human_bytes(header.frame_bytes()) + ",";
  found.json().key("types").begin_object();
  for (std::size_t type = 0; type < types.size(); ++type) {
    if (types[type] == 0) continue;
    const char* name = wire::to_string(static_cast<wire::ChunkType>(type));
    found.json().member(name, types[type]);
    line += " " + std::to_string(types[type]) + " " + name;
  }
  found.json().end_object();
  found.line(line);
  if (options.chunks) {
    found.json().key("chunks").begin_array();
    for (const wire::IndexEntry& entry : frame.entries()) {
      found.json().begin_object().member("chunk", entry.chunk.value);
      found.json().member("type", wire::to_string(entry.type));
      found.json().member("bytes", entry.payload_bytes).member("changed", entry.changed_count);
      found.json().member("new_digest", to_hex(entry.new_digest)).end_object();
      found.line("    chunk " + std::to_string(entry.chunk.value) + " " +
                 wire::to_string(entry.type) + " " + std::to_string(entry.payload_bytes) +
                 " bytes, " + std::to_string(entry.changed_count) + " changed, digest " +
                 to_hex(entry.new_digest));
    }
    found.json().end_array();
  }
  found.json().end_object();
}

Result<std::string> inspect_delta(apply::Store& store, const std::string& name,
                                  const InspectOptions& options) {
  WEFT_TRY(const auto reader, apply::DeltaFileReader::open(store, name));
  Findings found("delta file");
  found.add("file_bytes", reader->file_bytes());
  add_manifest(found, reader->manifest());
  found.json().key("frames").begin_array();
  std::vector<std::byte> bytes;
  while (true) {
    WEFT_TRY(const auto header, reader->next_frame(bytes));
    if (!header) break;
    WEFT_TRY(const auto frame, codec::FrameView::open(bytes, {}));
    add_frame(found, frame, options);
  }
  found.json().end_array();
  return found.take(options.common.json);
}

Result<std::string> inspect_frame(std::span<const std::byte> bytes, const InspectOptions& options) {
  WEFT_TRY(const auto frame, codec::FrameView::open(bytes, {}));
  Findings found("frame");
  found.add("refit", to_string(frame.header().refit()));
  found.add("fleet", to_hex(frame.header().fleet()));
  found.add("lattice", to_hex(frame.header().lattice()));
  found.json().key("frames").begin_array();
  add_frame(found, frame, options);
  found.json().end_array();
  return found.take(options.common.json);
}

Result<std::string> inspect_checkpoint(const InspectOptions& options) {
  NullEventSink events;
  WEFT_TRY(const auto checkpoint,
           apply::CheckpointDir::open_path(options.path, apply::Access::kRead, {}, events));
  const codec::Schema& schema = checkpoint.schema();
  WEFT_TRY(const auto lattice, codec::Lattice::default_for(schema));
  Findings found("checkpoint");
  found.add("files", schema.files().size());
  found.add("tensors", schema.tensors().size());
  found.add("tensor_bytes", schema.tensor_bytes());
  found.add("schema", to_hex(schema.digest()));
  found.add("default_lattice", to_hex(lattice.digest()));
  found.add("chunks", lattice.chunk_count());
  if (const auto page = apply::StatePage::open(checkpoint.store())) {
    WEFT_TRY(const auto state, (*page)->read());
    constexpr std::array kPhases = {"not_ready", "ready", "apply_pending", "applying"};
    found.add("phase", kPhases[static_cast<std::size_t>(state.phase)]);
    found.add("version", state.content.version.value);
    found.add("root", to_hex(state.content.root));
  }
  for (const std::string& warning : checkpoint.warnings()) found.line("  note: " + warning);
  found.json().key("tensor_list").begin_array();
  for (const codec::Tensor& tensor : schema.tensors()) {
    std::string shape;
    for (const std::uint64_t size : tensor.shape) {
      shape += (shape.empty() ? "" : "x") + std::to_string(size);
    }
    found.json().begin_object().member("name", tensor.name);
    found.json().member("dtype", codec::name(tensor.dtype)).member("shape", shape);
    found.json().member("bytes", tensor.bytes);
    found.json().member("file", schema.files()[tensor.file_index].name).end_object();
    if (options.chunks) {
      found.line("  " + tensor.name + " " + std::string(codec::name(tensor.dtype)) + " " + shape +
                 " " + agent::human_bytes(tensor.bytes));
    }
  }
  found.json().end_array();
  return found.take(options.common.json);
}

// A journal's records mean nothing without the tensors that they are for.
Result<std::string> inspect_journal(const fs::path& path, const RefitId& refit,
                                    const InspectOptions& options) {
  if (options.weights_dir.empty()) {
    return failure(ErrorCode::kConfig, Stage::kOpen,
                   "a journal needs --weights DIR, the checkpoint that it is for");
  }
  NullEventSink events;
  WEFT_TRY(const auto checkpoint,
           apply::CheckpointDir::open_path(options.weights_dir, apply::Access::kRead, {}, events));
  WEFT_TRY(const auto store, apply::open_store(path.parent_path().string(), {}, events));
  WEFT_TRY(const auto journal, apply::JournalReader::open(*store, refit, checkpoint.schema()));
  Findings found("journal");
  add_manifest(found, journal->manifest());
  found.add("records", journal->record_count());
  found.add("record_bytes", journal->record_bytes());
  return found.take(options.common.json);
}

Result<std::string> inspect(const InspectOptions& options) {
  std::error_code error;
  fs::path path = fs::absolute(options.path, error);
  if (!path.has_filename()) path = path.parent_path();
  if (fs::is_directory(path, error)) {
    const auto refit = agent::parse_refit_id(path.filename().string());
    return refit ? inspect_journal(path, *refit, options) : inspect_checkpoint(options);
  }
  NullEventSink events;
  WEFT_TRY(const auto store, apply::open_store(path.parent_path().string(), {}, events));
  WEFT_TRY(const auto file, store->open(path.filename().string(), apply::Access::kRead));
  // The largest frame, and enough to tell what a file is.
  std::vector<std::byte> bytes(limits::kFrameBytesMax);
  WEFT_TRY(const std::size_t filled, file->read_up_to(0, bytes));
  bytes.resize(filled);
  constexpr std::string_view kDeltaMagic = "WEFTDLTA";
  if (filled >= 8 && std::memcmp(bytes.data(), kDeltaMagic.data(), 8) == 0) {
    return inspect_delta(*store, path.filename().string(), options);
  }
  if (filled >= 4 && wire::load_le<std::uint32_t>(bytes.data()) == wire::kFrameMagic) {
    return inspect_frame(bytes, options);
  }
  return failure(ErrorCode::kFormat, Stage::kOpen,
                 options.path + " is no delta file, frame, journal or checkpoint");
}

}  // namespace

int run_inspect(const InspectOptions& options, StopToken&) {
  const auto text = inspect(options);
  if (!text) return report_failure(text.error(), options.common);
  return report_result(*text);
}

}  // namespace weft::cli
