// SPDX-License-Identifier: Apache-2.0
#include "codec/safetensors/index.hpp"

#include <algorithm>
#include <utility>

#include "codec/safetensors/json_walk.hpp"
#include "weft/base/limits.hpp"

namespace weft::codec {

namespace {

using internal::shown_name;
namespace ondemand = simdjson::ondemand;

Error index_error(const std::string& what) {
  return failure(ErrorCode::kFormat, Stage::kOpen, "index: " + what);
}

Status read_weight_map(ondemand::value value, IndexFile& index) {
  ondemand::object object;
  if (value.get_object().get(object)) return index_error("weight_map is not an object");
  for (auto each : object) {
    ondemand::field field;
    std::string_view tensor;
    std::string_view file;
    if (std::move(each).get(field) || field.unescaped_key().get(tensor)) {
      return index_error("weight_map is not JSON");
    }
    if (field.value().get_string().get(file)) {
      return index_error("weight_map of " + shown_name(tensor) + " is not a string");
    }
    if (!is_plain_file_name(file)) {
      return index_error("weight_map of " + shown_name(tensor) +
                         " is not a plain file name: " + shown_name(file));
    }
    if (tensor.size() > limits::kTensorNameBytesMax ||
        index.weight_map.size() == limits::kTensorsMax) {
      return failure(ErrorCode::kResourceLimit, Stage::kOpen,
                     "index: more tensors, or a longer name, than allowed");
    }
    if (!index.weight_map.emplace(tensor, file).second) {
      return index_error("tensor " + shown_name(tensor) + " is named twice");
    }
  }
  return ok();
}

}  // namespace

bool is_plain_file_name(std::string_view name) {
  constexpr std::size_t kNameBytesMax = 255;
  if (name.empty() || name.size() > kNameBytesMax || name == "." || name == "..") return false;
  return std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
}

Result<IndexFile> parse_index(std::span<const std::byte> text) {
  if (text.size() > limits::kIndexBytesMax) {
    return failure(ErrorCode::kResourceLimit, Stage::kOpen,
                   "index: " + std::to_string(text.size()) + " bytes, at most " +
                       std::to_string(limits::kIndexBytesMax));
  }
  IndexFile index;
  bool has_map = false;
  WEFT_TRY_STATUS(internal::for_each_root_field(
      text, "index", [&](std::string_view name, ondemand::value value) -> Status {
        if (name == "weight_map") {
          if (std::exchange(has_map, true)) return index_error("weight_map twice");
          return read_weight_map(value, index);
        }
        if (const auto code = internal::walk_value(value, limits::kSafetensorsNestingMax)) {
          return index_error("field " + shown_name(name) + ": " + simdjson::error_message(code));
        }
        return ok();
      }));
  if (!has_map) return index_error("no weight_map");
  for (const auto& [tensor, file] : index.weight_map) index.files.push_back(file);
  std::sort(index.files.begin(), index.files.end());
  index.files.erase(std::unique(index.files.begin(), index.files.end()), index.files.end());
  if (index.files.size() > limits::kFilesMax) {
    return failure(ErrorCode::kResourceLimit, Stage::kOpen,
                   "index: " + std::to_string(index.files.size()) + " files, at most " +
                       std::to_string(limits::kFilesMax));
  }
  return index;
}

}  // namespace weft::codec
