// SPDX-License-Identifier: Apache-2.0
#include "codec/project/layouts.hpp"

#include <algorithm>

#include "weft/wire/digest.hpp"

namespace weft::codec {

namespace {

Error misfit(std::string_view target, const std::string& what) {
  return failure(ErrorCode::kConfig, Stage::kOpen,
                 "projection of " + std::string(target) + ": " + what);
}

Error indivisible(std::string_view target, std::uint64_t size, std::uint64_t parts) {
  return misfit(target, std::to_string(size) + " does not divide into " + std::to_string(parts) +
                            " equal parts");
}

}  // namespace

struct ProjectionBuilder::Matrix {
  TensorIndex index;
  const Tensor* tensor = nullptr;
  std::uint64_t rows = 0;
  std::uint64_t width = 0;  // elements of a row
};

std::uint32_t owner_of(std::string_view tensor_name, std::uint32_t holder_count) {
  const std::uint64_t hash =
      wire::digest64(std::as_bytes(std::span(tensor_name.data(), tensor_name.size())));
  return static_cast<std::uint32_t>(hash % holder_count);
}

bool is_expert_name(std::string_view pattern) {
  return pattern.find("{}") != std::string_view::npos;
}

std::string expert_name(std::string_view pattern, std::uint64_t local, std::uint64_t local_count,
                        const ParallelRank& expert) {
  std::string name(pattern);
  const auto place = name.find("{}");
  if (place == std::string::npos) return name;
  return name.replace(place, 2, std::to_string(local + local_count * expert.rank));
}

Result<ProjectionBuilder::Matrix> ProjectionBuilder::find(std::string_view target) const {
  const auto index = schema_.find(target);
  if (!index) return misfit(target, "the checkpoint has no such tensor");
  const Tensor& tensor = schema_.tensor(*index);
  if (tensor.shape.empty() || tensor.element_count == 0) {
    return Matrix{*index, &tensor, 1, tensor.element_count};
  }
  if (tensor.element_count % tensor.shape[0] != 0) {
    return misfit(target, "its elements do not fill whole bytes");
  }
  return Matrix{*index, &tensor, tensor.shape[0], tensor.element_count / tensor.shape[0]};
}

bool ProjectionBuilder::owns(std::string_view target, std::uint32_t holder,
                             std::uint32_t holder_count) const {
  const std::uint32_t replicas = placement_.replica.size;
  return owner_of(target, holder_count * replicas) == holder * replicas + placement_.replica.rank;
}

std::uint32_t ProjectionBuilder::source_of(const std::string& name, std::uint64_t element_count) {
  auto& sources = projection_.sources;
  const auto found = std::find_if(sources.rbegin(), sources.rend(),
                                  [&](const ShardTensor& source) { return source.name == name; });
  if (found != sources.rend()) {
    found->element_count = std::max(found->element_count, element_count);
    return static_cast<std::uint32_t>(sources.rend() - found) - 1;
  }
  sources.push_back({name, element_count});
  return static_cast<std::uint32_t>(sources.size()) - 1;
}

void ProjectionBuilder::add(std::uint32_t source, std::uint64_t source_offset, TensorIndex target,
                            std::uint64_t target_offset, const std::vector<BoxAxis>& axes) {
  Box box;
  box.source = source;
  box.target = target;
  box.source_offset = source_offset;
  box.target_offset = target_offset;
  for (const BoxAxis& axis : axes) {
    if (axis.extent == 0) return;
    box.axes[box.rank++] = axis;
  }
  projection_.boxes.push_back(box);
}

Status ProjectionBuilder::replicated(const std::string& source, std::string_view target) {
  WEFT_TRY(const Matrix matrix, find(target));
  const std::uint64_t count = matrix.tensor->element_count;
  const std::uint32_t from = source_of(source, count);
  if (!owns(target, placement_.tensor.rank, placement_.tensor.size)) return ok();
  add(from, 0, matrix.index, 0, {{count, 1, 1}});
  return ok();
}

Status ProjectionBuilder::column_parallel(const std::string& source, std::string_view target) {
  WEFT_TRY(const Matrix matrix, find(target));
  return concatenated(source, target, {matrix.rows});
}

Status ProjectionBuilder::row_parallel(const std::string& source, std::string_view target) {
  WEFT_TRY(const Matrix matrix, find(target));
  const auto& shape = matrix.tensor->shape;
  if (shape.size() < 2) return misfit(target, "it has no dimension 1 to cut");
  const auto [rank, size] = placement_.tensor;
  if (shape[1] % size != 0) return indivisible(target, shape[1], size);
  const std::uint64_t part = matrix.width / size;
  const std::uint32_t from = source_of(source, matrix.rows * part);
  if (!owns(target, 0, 1)) return ok();
  add(from, 0, matrix.index, rank * part, {{matrix.rows, part, matrix.width}, {part, 1, 1}});
  return ok();
}

Status ProjectionBuilder::gate_up(const std::string& source, std::string_view gate,
                                  std::string_view up) {
  const auto [rank, size] = placement_.tensor;
  std::uint64_t begin = 0;
  for (const std::string_view target : {gate, up}) {
    WEFT_TRY(const Matrix matrix, find(target));
    if (matrix.rows % size != 0) return indivisible(target, matrix.rows, size);
    const std::uint64_t count = matrix.rows / size * matrix.width;
    const std::uint32_t from = source_of(source, begin + count);
    if (owns(target, 0, 1)) {
      add(from, begin, matrix.index, rank * count, {{count, 1, 1}});
    }
    begin += count;
  }
  return ok();
}

Status ProjectionBuilder::grouped_gate_up(const std::string& source, std::string_view target) {
  WEFT_TRY(const Matrix matrix, find(target));
  const auto& shape = matrix.tensor->shape;
  const auto [rank, size] = placement_.tensor;
  if (shape.size() < 2 || shape[1] % 2 != 0) return misfit(target, "it is not [E, 2F, ...]");
  if (shape[1] / 2 % size != 0) return indivisible(target, shape[1] / 2, size);
  const std::uint64_t half = matrix.width / 2;  // F rows
  const std::uint64_t part = half / size;
  const std::uint32_t from = source_of(source, matrix.rows * part * 2);
  if (!owns(target, 0, 1)) return ok();
  add(from, 0, matrix.index, rank * part,
      {{matrix.rows, 2 * part, matrix.width}, {2, part, half}, {part, 1, 1}});
  return ok();
}

Status ProjectionBuilder::attention(const std::string& source, std::string_view query,
                                    std::string_view key, std::string_view value,
                                    const AttentionShape& shape) {
  const std::uint64_t rank = placement_.tensor.rank;
  const std::uint64_t size = placement_.tensor.size;
  WEFT_TRY(const Matrix q, find(query));
  WEFT_TRY(const Matrix k, find(key));
  WEFT_TRY(const Matrix v, find(value));
  if (shape.groups == 0 || shape.query_heads % shape.groups != 0) {
    return indivisible(query, shape.query_heads, shape.groups);
  }
  if (shape.query_heads % size != 0) return indivisible(query, shape.query_heads, size);
  const bool replicas = shape.groups < size;
  if (replicas ? size % shape.groups != 0 : shape.groups % size != 0) {
    return indivisible(key, std::max(shape.groups, size), std::min(shape.groups, size));
  }
  if (q.rows != shape.query_heads * shape.head_width || k.rows != shape.groups * shape.head_width ||
      v.rows != k.rows || q.width != k.width || q.width != v.width) {
    return misfit(query, "its heads do not fill query, key and value");
  }
  const std::uint64_t block = shape.head_width * q.width;
  const std::uint64_t groups = replicas ? 1 : shape.groups / size;  // here
  const std::uint64_t queries = shape.query_heads / size / groups;  // per group, here
  const std::uint64_t first_group = rank * shape.groups / size;
  const std::uint32_t from = source_of(source, groups * (queries + 2) * block);
  const auto put = [&](const Matrix& target, std::uint64_t begin, std::uint64_t first,
                       std::uint64_t blocks) {
    add(from, begin, target.index, first,
        {{groups, (queries + 2) * block, blocks * block}, {blocks * block, 1, 1}});
  };
  if (owns(query, 0, 1)) put(q, 0, rank * groups * queries * block, queries);
  // Ranks with the same group are holders of its key and value.
  const auto holders = static_cast<std::uint32_t>(replicas ? size / shape.groups : 1);
  const auto holder = static_cast<std::uint32_t>(rank % holders);
  if (owns(key, holder, holders)) put(k, queries * block, first_group * block, 1);
  if (owns(value, holder, holders)) put(v, (queries + 1) * block, first_group * block, 1);
  return ok();
}

Status ProjectionBuilder::expert_stack(const std::string& source, std::string_view target,
                                       const StackShape& shape) {
  return stack_part(source, {target}, shape);
}

Status ProjectionBuilder::expert_gate_up_stack(const std::string& source, std::string_view gate,
                                               std::string_view up, const StackShape& shape) {
  return stack_part(source, {gate, up}, shape);
}

// How many experts lie here: all there are, in equal shares.
Result<std::uint64_t> ProjectionBuilder::local_experts(std::string_view pattern) const {
  const ParallelRank& expert = placement_.expert;
  std::uint64_t global = 0;
  if (is_expert_name(pattern)) {
    while (schema_.find(expert_name(pattern, global, 0, {}))) ++global;
  } else {
    WEFT_TRY(const Matrix stack, find(pattern));
    if (stack.tensor->shape.size() < 2) return misfit(pattern, "it is no stack of experts");
    global = stack.rows;
  }
  if (global == 0 || global % expert.size != 0) return indivisible(pattern, global, expert.size);
  return global / expert.size;
}

// Experts of the stack, each with the rows of all `targets`, one behind the other or alternating.
Status ProjectionBuilder::stack_part(const std::string& source,
                                     const std::vector<std::string_view>& targets,
                                     const StackShape& shape) {
  WEFT_TRY(const std::uint64_t local_count, local_experts(targets[0]));
  for (std::uint64_t local = 0; local < local_count; ++local) {
    for (std::uint64_t part = 0; part < targets.size(); ++part) {
      const StackPart one{local, local_count, part, targets.size()};
      WEFT_TRY_STATUS(expert_part(source, targets[part], one, shape));
    }
  }
  return ok();
}

Status ProjectionBuilder::expert_part(const std::string& source, std::string_view target,
                                      const StackPart& at, const StackShape& shape) {
  const bool named = is_expert_name(target);
  const std::string name = expert_name(target, at.local, at.local_count, placement_.expert);
  WEFT_TRY(const Matrix found, find(name));
  const auto& dims = found.tensor->shape;
  const std::size_t skip = named ? 0 : 1;
  const std::uint64_t rows = dims.size() > skip ? dims[skip] : 1;
  if (rows == 0) return misfit(name, "its experts have no rows");
  const std::uint64_t count = named ? found.tensor->element_count : found.width;
  const std::uint64_t width = count / rows;
  const std::uint64_t all_rows = rows * at.parts;
  const std::uint64_t row_step = shape.interleaved ? at.parts : 1;
  const std::uint64_t first_row = shape.interleaved ? at.part : at.part * rows;
  const std::uint32_t from = source_of(source, at.local_count * all_rows * width);
  if (!owns(name, placement_.tensor.rank, placement_.tensor.size)) return ok();
  const std::uint64_t row_stride = shape.transposed ? 1 : width;
  const std::uint64_t column_stride = shape.transposed ? all_rows : 1;
  const std::uint64_t target_begin =
      named ? 0 : (at.local + at.local_count * placement_.expert.rank) * found.width;
  add(from, at.local * all_rows * width + first_row * row_stride, found.index, target_begin,
      {{rows, row_step * row_stride, width}, {width, column_stride, 1}});
  return ok();
}

Status ProjectionBuilder::concatenated(const std::string& source, std::string_view target,
                                       const std::vector<std::uint64_t>& component_rows) {
  WEFT_TRY(const Matrix matrix, find(target));
  const auto [rank, size] = placement_.tensor;
  std::uint64_t source_row = 0;
  std::uint64_t target_row = 0;
  for (const std::uint64_t rows : component_rows) {
    if (rows % size != 0) return indivisible(target, rows, size);
    if (rows > matrix.rows - target_row) return misfit(target, "its components have more rows");
    const std::uint64_t part = rows / size;
    const std::uint32_t from = source_of(source, (source_row + part) * matrix.width);
    if (owns(target, 0, 1)) {
      add(from, source_row * matrix.width, matrix.index, (target_row + rank * part) * matrix.width,
          {{part * matrix.width, 1, 1}});
    }
    source_row += part;
    target_row += rows;
  }
  if (target_row != matrix.rows) return misfit(target, "its components have fewer rows");
  return ok();
}

Status ProjectionBuilder::vocabulary(const std::string& source, std::string_view target,
                                     std::uint64_t padded_rows) {
  WEFT_TRY(const Matrix matrix, find(target));
  const auto [rank, size] = placement_.tensor;
  if (padded_rows < matrix.rows) return misfit(target, "it has more rows than with padding");
  if (padded_rows % size != 0) return indivisible(target, padded_rows, size);
  const std::uint64_t part = padded_rows / size;
  const std::uint64_t begin = std::min(matrix.rows, rank * part);
  const std::uint64_t end = std::min(matrix.rows, begin + part);
  const std::uint32_t from = source_of(source, part * matrix.width);
  if (!owns(target, 0, 1)) return ok();
  add(from, 0, matrix.index, begin * matrix.width, {{(end - begin) * matrix.width, 1, 1}});
  return ok();
}

Status ProjectionBuilder::flat(const std::string& source, std::uint64_t source_offset,
                               std::string_view target, std::uint64_t target_offset,
                               std::uint64_t count) {
  WEFT_TRY(const Matrix matrix, find(target));
  const std::uint64_t all = matrix.tensor->element_count;
  if (target_offset > all || count > all - target_offset) {
    return misfit(target, "elements [" + std::to_string(target_offset) + ", + " +
                              std::to_string(count) + ") leave it");
  }
  const std::uint32_t from = source_of(source, source_offset + count);
  if (!owns(target, 0, 1)) return ok();
  add(from, source_offset, matrix.index, target_offset, {{count, 1, 1}});
  return ok();
}

}  // namespace weft::codec
