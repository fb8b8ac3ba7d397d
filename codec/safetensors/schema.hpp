// SPDX-License-Identifier: Apache-2.0
// What a checkpoint is: its tensors by name, and where each one lies in which file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/safetensors/dtype.hpp"
#include "codec/safetensors/header.hpp"
#include "codec/safetensors/index.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft::codec {

// Threads: a value; one at a time.
struct FileInput {
  std::string name;  // base name
  std::uint64_t bytes = 0;
  FileHeader header;
};

// Threads: a value; one at a time.
struct SchemaFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t header_bytes = 0;  // length field and header text: data starts here
};

// Threads: a value; one at a time.
struct Tensor {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<std::uint64_t> shape;
  std::uint32_t element_bytes = 1;  // storage word
  std::uint64_t element_count = 0;  // storage words: bytes / element_bytes
  std::uint32_t file_index = 0;     // into Schema::files()
  std::uint64_t file_offset = 0;    // of the first byte, from the start of the file
  std::uint64_t bytes = 0;
  ElementFormat format() const { return codec::element_format(dtype); }
};

// Schema is the list of a checkpoint's tensors in the order of their names' bytes.
// Invariant: names are unique; a tensor that the index does not give to the file that holds it is
//            not part of the schema (it is neither diffed nor patched) but counted in a warning.
// Threads:   immutable.
class Schema {
 public:
  Schema() = default;

  const std::vector<SchemaFile>& files() const { return files_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor& tensor(TensorIndex index) const { return tensors_[index.value]; }
  std::optional<TensorIndex> find(std::string_view name) const;
  // Of names, types and shapes; the same whatever the split into files.
  const Digest& digest() const { return digest_; }
  std::uint64_t tensor_bytes() const { return tensor_bytes_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  friend Result<Schema> build_schema(std::vector<FileInput> files,
                                     const std::optional<IndexFile>& index);
  void finish();

  std::vector<SchemaFile> files_;
  std::vector<Tensor> tensors_;
  std::vector<std::string> warnings_;
  std::uint64_t tensor_bytes_ = 0;
  Digest digest_;
};

// With an index, it is authoritative: a name mapped to a file that lacks it, or to a file not among
// `files`, is kInconsistentCheckpoint; files and tensors it does not name are left out and counted
// in warnings. Without one, a name in two files is kInconsistentCheckpoint.
Result<Schema> build_schema(std::vector<FileInput> files, const std::optional<IndexFile>& index);

// Ok when both have the same names, types and shapes; else kSchemaChanged with the first 10
// differing names and their count.
Status schema_difference(const Schema& base, const Schema& target);

}  // namespace weft::codec
