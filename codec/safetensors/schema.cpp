// SPDX-License-Identifier: Apache-2.0
#include "codec/safetensors/schema.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "weft/base/limits.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::codec {

namespace {

constexpr std::uint32_t kSchemaMagic = 0x4353'4657;  // "WFSC"

Error inconsistent(const std::string& what) {
  return failure(ErrorCode::kInconsistentCheckpoint, Stage::kOpen, what);
}

Tensor make_tensor(HeaderTensor&& from, std::uint32_t file_index, std::uint64_t data_start) {
  Tensor tensor;
  tensor.name = std::move(from.name);
  tensor.dtype = from.dtype;
  tensor.shape = std::move(from.shape);
  tensor.bytes = from.end - from.begin;
  tensor.element_bytes = element_bytes(tensor.dtype);
  tensor.element_count = tensor.bytes / tensor.element_bytes;
  tensor.file_index = file_index;
  tensor.file_offset = data_start + from.begin;
  return tensor;
}

// What the index says of tensors found in files.
// Threads: one at a time.
class IndexCheck {
 public:
  explicit IndexCheck(const IndexFile& index) : index_(index) {}
  bool owns(std::string_view tensor, std::string_view file) {
    const auto entry = index_.weight_map.find(tensor);
    if (entry == index_.weight_map.end()) {
      ++unnamed_count_;
      return false;
    }
    if (entry->second != file) {
      ++stale_count_;
      return false;
    }
    ++found_count_;
    return true;
  }
  bool complete() const { return found_count_ == index_.weight_map.size(); }
  void warn(std::vector<std::string>& warnings) const {
    if (unnamed_count_ != 0) {
      warnings.push_back(std::to_string(unnamed_count_) +
                         " tensors are not named by the index and are left alone");
    }
    if (stale_count_ != 0) {
      warnings.push_back(std::to_string(stale_count_) +
                         " tensors lie in a file that the index does not give them to; these "
                         "copies are left alone");
    }
  }

 private:
  const IndexFile& index_;
  std::size_t unnamed_count_ = 0;
  std::size_t stale_count_ = 0;
  std::size_t found_count_ = 0;
};

// The first name of the index that no given file holds.
Error first_missing(const IndexFile& index, const std::vector<Tensor>& tensors) {
  for (const auto& [name, file] : index.weight_map) {
    const auto place = std::lower_bound(
        tensors.begin(), tensors.end(), name,
        [](const Tensor& tensor, const std::string& wanted) { return tensor.name < wanted; });
    if (place == tensors.end() || place->name != name) {
      return inconsistent("the index gives tensor " + name + " to " + file +
                          ", which does not hold it");
    }
  }
  return inconsistent("the index names tensors that no file holds");
}

std::string shape_text(const Tensor& tensor) {
  std::string text = std::string(name(tensor.dtype)) + "[";
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
  }
  return text + "]";
}

}  // namespace

std::optional<TensorIndex> Schema::find(std::string_view wanted) const {
  const auto place = std::lower_bound(
      tensors_.begin(), tensors_.end(), wanted,
      [](const Tensor& tensor, std::string_view name) { return tensor.name < name; });
  if (place == tensors_.end() || place->name != wanted) return std::nullopt;
  return TensorIndex{static_cast<std::uint32_t>(place - tensors_.begin())};
}

// Layout of what is hashed: docs/formats/frame.md "Digests".
void Schema::finish() {
  wire::ByteWriter out;
  out.write(kSchemaMagic);
  out.write(std::uint32_t{1});
  out.write(static_cast<std::uint32_t>(tensors_.size()));
  for (const Tensor& tensor : tensors_) {
    out.write_string(tensor.name);
    out.write(static_cast<std::uint32_t>(tensor.dtype));
    out.write(static_cast<std::uint32_t>(tensor.shape.size()));
    for (const std::uint64_t dimension : tensor.shape) out.write(dimension);
    tensor_bytes_ += tensor.bytes;
  }
  digest_ = wire::digest128(out.bytes());
}

Result<Schema> build_schema(std::vector<FileInput> files, const std::optional<IndexFile>& index) {
  if (files.size() > limits::kFilesMax) {
    return failure(
        ErrorCode::kResourceLimit, Stage::kOpen,
        std::to_string(files.size()) + " files, at most " + std::to_string(limits::kFilesMax));
  }
  std::sort(files.begin(), files.end(),
            [](const FileInput& a, const FileInput& b) { return a.name < b.name; });
  Schema schema;
  std::optional<IndexCheck> check;
  if (index) check.emplace(*index);
  std::size_t stray_count = 0;
  for (FileInput& file : files) {
    if (!is_plain_file_name(file.name)) {
      return failure(ErrorCode::kFormat, Stage::kOpen, "a file name is not a plain one");
    }
    if (index && !std::binary_search(index->files.begin(), index->files.end(), file.name)) {
      ++stray_count;
      continue;
    }
    const auto file_index = static_cast<std::uint32_t>(schema.files_.size());
    schema.files_.push_back({file.name, file.bytes, file.header.data_start});
    for (HeaderTensor& tensor : file.header.tensors) {
      if (check && !check->owns(tensor.name, file.name)) continue;
      schema.tensors_.push_back(make_tensor(std::move(tensor), file_index, file.header.data_start));
    }
  }
  if (schema.tensors_.size() > limits::kTensorsMax) {
    return failure(ErrorCode::kResourceLimit, Stage::kOpen,
                   std::to_string(schema.tensors_.size()) + " tensors, at most " +
                       std::to_string(limits::kTensorsMax));
  }
  std::sort(schema.tensors_.begin(), schema.tensors_.end(),
            [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < schema.tensors_.size(); ++i) {
    const Tensor& tensor = schema.tensors_[i];
    const Tensor& before = schema.tensors_[i - 1];
    if (tensor.name == before.name) {
      return inconsistent("tensor " + tensor.name + " is in both " +
                          schema.files_[before.file_index].name + " and " +
                          schema.files_[tensor.file_index].name + ", and there is no index");
    }
  }
  if (check) {
    if (!check->complete()) return first_missing(*index, schema.tensors_);
    check->warn(schema.warnings_);
  }
  if (stray_count != 0) {
    schema.warnings_.push_back(std::to_string(stray_count) +
                               " files are not named by the index and are left alone");
  }
  schema.finish();
  return schema;
}

Status schema_difference(const Schema& base, const Schema& target) {
  if (base.digest() == target.digest()) return ok();
  constexpr std::size_t kNamesShown = 10;
  std::size_t difference_count = 0;
  std::string shown;
  const auto note = [&](const std::string& text) {
    if (difference_count++ < kNamesShown) shown += (shown.empty() ? "" : "; ") + text;
  };
  auto a = base.tensors().begin();
  auto b = target.tensors().begin();
  while (a != base.tensors().end() || b != target.tensors().end()) {
    if (b == target.tensors().end() || (a != base.tensors().end() && a->name < b->name)) {
      note("removed " + a->name);
      ++a;
    } else if (a == base.tensors().end() || b->name < a->name) {
      note("added " + b->name);
      ++b;
    } else {
      if (a->dtype != b->dtype || a->shape != b->shape) {
        note("changed " + a->name + " from " + shape_text(*a) + " to " + shape_text(*b));
      }
      ++a;
      ++b;
    }
  }
  if (difference_count > kNamesShown) shown += "; ...";
  return failure(ErrorCode::kSchemaChanged, Stage::kOpen,
                 std::to_string(difference_count) + " tensors differ: " + shown);
}

}  // namespace weft::codec
