// SPDX-License-Identifier: Apache-2.0
// Whole checkpoints in memory, for tests that start from real files. The pairs of the project's
// shared folder are found by WEFT_SHARED, else beside the checkout.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "codec/flow/encode_flow.hpp"
#include "codec/safetensors/schema.hpp"

namespace weft::test_support {

inline std::filesystem::path shared_folder() {
  const char* named = std::getenv("WEFT_SHARED");
  return named != nullptr ? std::filesystem::path(named)
                          : std::filesystem::path(WEFT_SOURCE_DIR) / ".." / "shared";
}

inline std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) throw std::runtime_error("cannot read " + path.string() + " (set WEFT_SHARED)");
  std::vector<std::byte> bytes(static_cast<std::size_t>(in.tellg()));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

// Threads: immutable once loaded.
struct MemoryCheckpoint {
  codec::Schema schema;
  std::vector<std::vector<std::byte>> files;  // in the order of schema.files()

  static MemoryCheckpoint load(const std::filesystem::path& directory) {
    MemoryCheckpoint loaded;
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    std::vector<codec::FileInput> inputs;
    for (const auto& path : paths) {
      loaded.files.push_back(read_file(path));
      const std::span<const std::byte> bytes = loaded.files.back();
      const std::string name = path.filename().string();
      const auto length = codec::parse_header_length(bytes.first(8), bytes.size(), name);
      if (!length) throw std::runtime_error(length.error().message());
      auto header = codec::parse_header(bytes.subspan(8, *length), bytes.size(), name);
      if (!header) throw std::runtime_error(header.error().message());
      inputs.push_back({name, bytes.size(), std::move(*header)});
    }
    std::optional<codec::IndexFile> index;
    if (const auto path = directory / "model.safetensors.index.json";
        std::filesystem::exists(path)) {
      auto parsed = codec::parse_index(read_file(path));
      if (!parsed) throw std::runtime_error(parsed.error().message());
      index = std::move(*parsed);
    }
    auto schema = codec::build_schema(std::move(inputs), index);
    if (!schema) throw std::runtime_error(schema.error().message());
    loaded.schema = std::move(*schema);
    return loaded;
  }

  // Chunks of one run each.
  std::span<const std::byte> chunk(const codec::ChunkPlace& place) const {
    const codec::Tensor& tensor = schema.tensor(place.tensor);
    return std::span(files[tensor.file_index])
        .subspan(tensor.file_offset + place.first_element * place.element_bytes(), place.bytes());
  }
  std::span<std::byte> chunk(const codec::ChunkPlace& place) {
    const codec::Tensor& tensor = schema.tensor(place.tensor);
    return std::span(files[tensor.file_index])
        .subspan(tensor.file_offset + place.first_element * place.element_bytes(), place.bytes());
  }
};

// Old and new values from two checkpoints with the same lattice.
// Threads: any.
class MemoryChunkSource final : public codec::ChunkSource {
 public:
  MemoryChunkSource(const codec::Lattice& lattice, const MemoryCheckpoint& base,
                    const MemoryCheckpoint& target)
      : lattice_(lattice), base_(base), target_(target) {}
  Status read(ChunkIndex chunk, std::span<std::byte> old_bytes,
              std::span<std::byte> new_bytes) override {
    const codec::ChunkPlace place = lattice_.place(chunk);
    if (!old_bytes.empty()) copy(base_.chunk(place), old_bytes);
    copy(target_.chunk(place), new_bytes);
    return ok();
  }

 private:
  static void copy(std::span<const std::byte> from, std::span<std::byte> to) {
    std::memcpy(to.data(), from.data(), to.size());
  }
  const codec::Lattice& lattice_;
  const MemoryCheckpoint& base_;
  const MemoryCheckpoint& target_;
};

}  // namespace weft::test_support
