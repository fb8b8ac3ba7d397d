// SPDX-License-Identifier: Apache-2.0
#include "support/checkpoint_files.hpp"

#include <cstring>

#include "weft/base/assert.hpp"

namespace weft::test_support {

namespace {

std::size_t element_bytes(const std::string& dtype) {
  if (dtype == "BF16" || dtype == "F16") return 2;
  if (dtype == "F32" || dtype == "I32") return 4;
  if (dtype == "F64" || dtype == "I64") return 8;
  return 1;
}

// Plain and fast, because tests make millions of elements in a debug build.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint64_t operator()() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return state_ ^ (state_ >> 29);
  }

 private:
  std::uint64_t state_;
};

TestTensor make_tensor(std::string name, std::string dtype, std::uint64_t elements,
                       Random& random) {
  TestTensor tensor{std::move(name), std::move(dtype), {elements}, {}};
  tensor.bytes.resize(static_cast<std::size_t>(elements) * element_bytes(tensor.dtype));
  std::size_t at = 0;
  for (; at + 8 <= tensor.bytes.size(); at += 8) {
    const std::uint64_t word = random();
    std::memcpy(&tensor.bytes[at], &word, 8);
  }
  for (; at < tensor.bytes.size(); ++at) tensor.bytes[at] = static_cast<std::byte>(random() >> 40);
  return tensor;
}

}  // namespace

std::vector<std::byte> safetensors_bytes(const std::vector<TestTensor>& tensors,
                                         std::size_t header_padding) {
  std::string header = "{";
  std::uint64_t offset = 0;
  for (const TestTensor& tensor : tensors) {
    if (header.size() > 1) header += ",";
    header += "\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      header += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    }
    header += "],\"data_offsets\":[" + std::to_string(offset) + "," +
              std::to_string(offset + tensor.bytes.size()) + "]}";
    offset += tensor.bytes.size();
  }
  header += "}" + std::string(header_padding, ' ');
  const std::uint64_t length = header.size();
  std::vector<std::byte> bytes(sizeof(length) + header.size());
  bytes.reserve(bytes.size() + offset);
  std::memcpy(bytes.data(), &length, sizeof(length));
  std::memcpy(bytes.data() + sizeof(length), header.data(), header.size());
  for (const TestTensor& tensor : tensors) {
    bytes.insert(bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  return bytes;
}

std::string index_text(const TestCheckpoint& checkpoint) {
  std::string text = "{\"metadata\":{},\"weight_map\":{";
  bool first = true;
  for (const auto& [file, tensors] : checkpoint) {
    for (const TestTensor& tensor : tensors) {
      text += std::string(first ? "" : ",") + "\"" + tensor.name + "\":\"" + file + "\"";
      first = false;
    }
  }
  return text + "}}";
}

void write_whole(apply::Store& store, const std::string& name, std::span<const std::byte> bytes) {
  auto file = store.open(name, apply::Access::kReadWrite);
  if (!file) file = store.create(name);
  WEFT_ASSERT(file && (*file)->truncate(0) && (*file)->write(0, bytes) && (*file)->sync());
}

void write_checkpoint(apply::Store& store, const TestCheckpoint& checkpoint, bool with_index) {
  for (const auto& [name, tensors] : checkpoint) {
    write_whole(store, name, safetensors_bytes(tensors));
  }
  if (with_index) {
    const std::string text = index_text(checkpoint);
    write_whole(store, "model.safetensors.index.json", std::as_bytes(std::span(text)));
  }
  WEFT_ASSERT(store.sync_directory());
}

TestCheckpoint make_checkpoint(std::uint64_t bytes, std::uint64_t seed) {
  Random random(seed);
  TestCheckpoint checkpoint;
  auto& first = checkpoint["model-00001-of-00002.safetensors"];
  first.push_back(make_tensor("embed", "BF16", bytes / 4, random));
  first.push_back(make_tensor("flags", "BOOL", 13, random));  // what follows lies at odd places
  first.push_back(make_tensor("layer.0.up", "BF16", bytes / 8 + 1, random));
  first.push_back(make_tensor("layer.0.scale", "F32", bytes / 64 + 3, random));
  auto& second = checkpoint["model-00002-of-00002.safetensors"];
  second.push_back(make_tensor("norm", "F64", 5, random));
  second.push_back(make_tensor("layer.1.q", "F8_E4M3", bytes / 8 + 7, random));
  second.push_back(make_tensor("layer.1.up", "BF16", bytes / 8 + 5, random));
  second.push_back(make_tensor("step", "I64", 1, random));
  second.push_back(make_tensor("empty", "BF16", 0, random));
  return checkpoint;
}

TestCheckpoint change_elements(const TestCheckpoint& from, double density, std::uint64_t seed) {
  Random random(seed);
  const auto threshold = static_cast<std::uint64_t>(density * 4294967296.0);
  TestCheckpoint to = from;
  for (auto& [file, tensors] : to) {
    for (TestTensor& tensor : tensors) {
      const std::size_t width = element_bytes(tensor.dtype);
      std::byte* const bytes = tensor.bytes.data();
      const std::size_t end = tensor.bytes.size();
      for (std::size_t at = 0; at < end; at += width) {
        const std::uint64_t dice = random();
        if ((dice >> 32) >= threshold) continue;
        // Mostly the smallest step, sometimes anything.
        const bool wild = (dice & 7) == 0;
        bytes[at + (wild ? (dice >> 3) % width : 0)] ^=
            static_cast<std::byte>(1U << (wild ? (dice >> 8) & 7 : 0));
      }
    }
  }
  return to;
}

}  // namespace weft::test_support
