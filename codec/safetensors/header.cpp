// SPDX-License-Identifier: Apache-2.0
#include "codec/safetensors/header.hpp"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "codec/safetensors/json_walk.hpp"
#include "weft/base/limits.hpp"
#include "weft/wire/byte_io.hpp"

namespace weft::codec {

namespace {

using internal::shown_name;
namespace ondemand = simdjson::ondemand;

Error format_error(std::string_view file_name, const std::string& what) {
  return failure(ErrorCode::kFormat, Stage::kOpen, std::string(file_name) + ": " + what);
}

// Reads the fields of one tensor's entry. Names the tensor in every error.
// Threads: one at a time.
class EntryReader {
 public:
  EntryReader(std::string_view file_name, std::string_view tensor_name)
      : file_name_(file_name), tensor_name_(tensor_name) {}

  Result<HeaderTensor> read(ondemand::value value) {
    ondemand::object object;
    if (value.get_object().get(object)) return wrong("is not an object");
    HeaderTensor tensor;
    tensor.name = tensor_name_;
    for (auto each : object) {
      ondemand::field field;
      std::string_view key;
      if (std::move(each).get(field)) return wrong("is not JSON");
      if (field.unescaped_key().get(key)) return wrong("has a field name that is not JSON");
      WEFT_TRY_STATUS(read_field(key, field.value(), tensor));
    }
    if (!has_dtype_) return wrong("has no dtype");
    if (!has_shape_) return wrong("has no shape");
    if (!has_offsets_) return wrong("has no data_offsets");
    return tensor;
  }

 private:
  Error wrong(const std::string& what) const {
    return format_error(file_name_, "tensor " + shown_name(tensor_name_) + " " + what);
  }

  Status read_field(std::string_view key, ondemand::value value, HeaderTensor& tensor) {
    if (key == "dtype") return read_dtype(value, tensor);
    if (key == "shape") return read_shape(value, tensor);
    if (key == "data_offsets") return read_offsets(value, tensor);
    if (internal::walk_value(value, limits::kSafetensorsNestingMax)) {
      return wrong("has an unreadable value in field " + shown_name(key));
    }
    return ok();
  }

  Status read_dtype(ondemand::value value, HeaderTensor& tensor) {
    if (std::exchange(has_dtype_, true)) return wrong("has two dtypes");
    std::string_view spelling;
    if (value.get_string().get(spelling)) return wrong("has a dtype that is not a string");
    const auto dtype = parse_dtype(spelling);
    if (!dtype) return wrong("has unknown dtype " + shown_name(spelling));
    tensor.dtype = *dtype;
    return ok();
  }

  Status read_shape(ondemand::value value, HeaderTensor& tensor) {
    if (std::exchange(has_shape_, true)) return wrong("has two shapes");
    ondemand::array array;
    if (value.get_array().get(array)) return wrong("has a shape that is not an array");
    // A vector that grows takes up to three times what it holds.
    std::size_t rank = 0;
    if (array.count_elements().get(rank)) return wrong("has a shape that is not an array");
    tensor.shape.reserve(rank);
    for (auto each : array) {
      ondemand::value item;
      std::uint64_t dimension = 0;
      if (std::move(each).get(item) || internal::read_unsigned(item, dimension)) {
        return wrong("has a shape that is not a list of natural numbers");
      }
      tensor.shape.push_back(dimension);
    }
    return ok();
  }

  Status read_offsets(ondemand::value value, HeaderTensor& tensor) {
    if (std::exchange(has_offsets_, true)) return wrong("has data_offsets twice");
    ondemand::array array;
    if (value.get_array().get(array)) return wrong("has data_offsets that are not an array");
    std::uint64_t offsets[2] = {0, 0};
    std::size_t count = 0;
    for (auto each : array) {
      ondemand::value item;
      std::uint64_t offset = 0;
      if (std::move(each).get(item) || internal::read_unsigned(item, offset)) {
        return wrong("has data_offsets that are not natural numbers");
      }
      if (count == 2) return wrong("has more than two data_offsets");
      offsets[count++] = offset;
    }
    if (count != 2) return wrong("has fewer than two data_offsets");
    tensor.begin = offsets[0];
    tensor.end = offsets[1];
    return ok();
  }

  std::string_view file_name_;
  std::string_view tensor_name_;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
};

// null, or an object of strings; a key may repeat.
Status check_metadata(std::string_view file_name, ondemand::value value) {
  const auto wrong = [&] {
    return format_error(file_name, "__metadata__ is not an object of strings");
  };
  ondemand::json_type type{};
  if (value.type().get(type)) return wrong();
  if (type == ondemand::json_type::null) {
    if (internal::walk_value(value, 1)) return wrong();
    return ok();
  }
  ondemand::object object;
  if (value.get_object().get(object)) return wrong();
  for (auto each : object) {
    ondemand::field field;
    std::string_view text;
    if (std::move(each).get(field) || field.unescaped_key().get(text) ||
        field.value().get_string().get(text)) {
      return wrong();
    }
  }
  return ok();
}

// The bytes that type and shape ask for, nothing on overflow or on half a byte.
struct Extent {
  std::uint64_t bytes = 0;
  const char* fault = nullptr;
};
Extent extent_of(const HeaderTensor& tensor) {
  std::uint64_t count = 1;
  for (const std::uint64_t dimension : tensor.shape) {
    if (__builtin_mul_overflow(count, dimension, &count)) return {0, "has a shape that overflows"};
  }
  std::uint64_t bit_count = 0;
  if (__builtin_mul_overflow(count, std::uint64_t{bits(tensor.dtype)}, &bit_count)) {
    return {0, "has a shape that overflows"};
  }
  if (bit_count % 8 != 0) return {0, "does not end on a byte (misaligned)"};
  return {bit_count / 8, nullptr};
}

// In offset order each tensor begins where the one before it ended, and the last ends the file.
Status check_cover(std::string_view file_name, const FileHeader& header, std::uint64_t file_bytes) {
  std::uint64_t next = 0;
  for (const HeaderTensor& tensor : header.tensors) {
    const auto wrong = [&](const std::string& what) {
      return format_error(file_name, "tensor " + shown_name(tensor.name) + " " + what);
    };
    if (tensor.end < tensor.begin) return wrong("ends before it begins (offset)");
    if (tensor.begin != next) {
      return wrong((tensor.begin > next ? "leaves a hole before it" : "overlaps another") +
                   std::string(" (offset): begins at ") + std::to_string(tensor.begin) +
                   ", expected " + std::to_string(next));
    }
    next = tensor.end;
    const Extent extent = extent_of(tensor);
    if (extent.fault != nullptr) return wrong(extent.fault);
    if (extent.bytes != tensor.end - tensor.begin) {
      return wrong("has a range of " + std::to_string(tensor.end - tensor.begin) +
                   " bytes; type and shape need " + std::to_string(extent.bytes));
    }
  }
  const std::uint64_t body_bytes = file_bytes - header.data_start;
  if (next == body_bytes) return ok();
  return format_error(file_name, (next > body_bytes ? "truncated: " : "trailing bytes: ") +
                                     std::string("tensors need ") + std::to_string(next) +
                                     " bytes behind the header, the file has " +
                                     std::to_string(body_bytes));
}

}  // namespace

Result<std::uint64_t> parse_header_length(std::span<const std::byte> first_bytes,
                                          std::uint64_t file_bytes, std::string_view file_name) {
  if (file_bytes < kHeaderLengthBytes || first_bytes.size() < kHeaderLengthBytes) {
    return format_error(file_name, "header too small: the file has " + std::to_string(file_bytes) +
                                       " bytes, the length field alone needs 8");
  }
  const auto length = wire::load_le<std::uint64_t>(first_bytes.data());
  if (length > limits::kSafetensorsHeaderBytesMax) {
    return format_error(file_name, "header too large: claims " + std::to_string(length) +
                                       " bytes, at most 100000000 are allowed");
  }
  if (length > file_bytes - kHeaderLengthBytes) {
    return format_error(file_name, "truncated in the header: claims " + std::to_string(length) +
                                       " bytes, the file has " + std::to_string(file_bytes));
  }
  return length;
}

Result<FileHeader> parse_header(std::span<const std::byte> text, std::uint64_t file_bytes,
                                std::string_view file_name) {
  FileHeader header;
  header.data_start = kHeaderLengthBytes + text.size();
  if (text.size() > limits::kSafetensorsHeaderBytesMax || header.data_start > file_bytes) {
    return format_error(
        file_name, "header of " + std::to_string(text.size()) + " bytes does not fit the file");
  }
  bool has_metadata = false;
  const auto on_field = [&](std::string_view name, ondemand::value value) -> Status {
    if (name == "__metadata__") {
      if (std::exchange(has_metadata, true)) return format_error(file_name, "__metadata__ twice");
      return check_metadata(file_name, value);
    }
    if (name.size() > limits::kTensorNameBytesMax || header.tensors.size() == limits::kTensorsMax) {
      return failure(ErrorCode::kResourceLimit, Stage::kOpen,
                     std::string(file_name) + ": more tensors, or a longer name, than allowed (" +
                         std::to_string(limits::kTensorsMax) + ", " +
                         std::to_string(limits::kTensorNameBytesMax) + " bytes)");
    }
    WEFT_TRY(HeaderTensor tensor, EntryReader(file_name, name).read(value));
    header.tensors.push_back(std::move(tensor));
    return ok();
  };
  WEFT_TRY_STATUS(
      internal::for_each_root_field(text, std::string(file_name) + ": header", on_field));

  std::unordered_set<std::string_view> names;
  names.reserve(header.tensors.size());
  for (const HeaderTensor& tensor : header.tensors) {
    if (!names.insert(tensor.name).second) {
      return format_error(file_name, "tensor " + shown_name(tensor.name) + " is named twice");
    }
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const HeaderTensor& a, const HeaderTensor& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  WEFT_TRY_STATUS(check_cover(file_name, header, file_bytes));
  return header;
}

}  // namespace weft::codec
