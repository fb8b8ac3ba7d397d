// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "apply/store/checkpoint_dir.hpp"
#include "codec/project/box_file.hpp"
#include "codec/project/derive.hpp"
#include "codec/project/layouts.hpp"
#include "python/bindings.hpp"
#include "python/failure.hpp"
#include "python/host_array.hpp"

namespace py = pybind11;
using namespace py::literals;  // NOLINT(google-build-using-namespace)

namespace weft::python {

namespace {

using Part = std::pair<std::uint32_t, std::uint32_t>;  // rank, size

codec::ParallelRank parallel(const char* what, const Part& part) {
  if (part.second == 0 || part.first >= part.second) {
    throw misuse(std::string(what) + "=(" + std::to_string(part.first) + ", " +
                 std::to_string(part.second) + "): rank and size, the rank below the size");
  }
  return {part.first, part.second};
}

codec::Schema schema_of(const py::object& base) {
  const auto path = py::cast<std::string>(py::module_::import("os").attr("fsdecode")(base));
  NullEventSink no_events;
  return must(apply::CheckpointDir::open_path(path, apply::Access::kRead,
                                              {apply::Engine::kPosix, apply::Durability::kProcess},
                                              no_events))
      .schema();
}

// The boxes of one process, with the checkpoint's schema that they are checked against.
// Threads: with the interpreter's lock.
class BoxesHandle {
 public:
  BoxesHandle(const py::object& base, const Part& tensor, const Part& expert, const Part& replica)
      : schema_(schema_of(base)),
        placement_{parallel("tensor", tensor), parallel("expert", expert),
                   parallel("replica", replica)},
        builder_(schema_, placement_) {}
  BoxesHandle(const BoxesHandle&) = delete;
  BoxesHandle& operator=(const BoxesHandle&) = delete;

  codec::ProjectionBuilder& builder() { return builder_; }
  std::string text() const { return codec::format_boxes(builder_.projection(), schema_); }

 private:
  const codec::Schema schema_;
  const codec::Placement placement_;
  codec::ProjectionBuilder builder_;
};

std::vector<std::uint64_t> numbers_of(const std::string& name, const HostArray& array) {
  if (array.element_bytes() != 8 || !array.is_opaque()) {
    throw misuse("what was exported as " + name + " must be 64-bit integers, not " + array.dtype());
  }
  std::vector<std::uint64_t> numbers(array.bytes().size() / 8);
  if (!numbers.empty()) std::memcpy(numbers.data(), array.bytes().data(), array.bytes().size());
  return numbers;
}

std::string derive(const py::object& base, const py::dict& sources, const py::dict& exported) {
  const codec::Schema schema = schema_of(base);
  codec::Projection projection;
  for (const auto& [name, count] : sources) {
    projection.sources.push_back({py::cast<std::string>(name), py::cast<std::uint64_t>(count)});
  }
  for (const auto& [key, value] : exported) {
    const auto name = py::cast<std::string>(key);
    const bool has_offset = py::isinstance<py::tuple>(value);
    const auto offset =
        has_offset ? py::cast<std::uint64_t>(py::reinterpret_borrow<py::tuple>(value)[0]) : 0;
    const py::object array = has_offset ? py::object(py::reinterpret_borrow<py::tuple>(value)[1])
                                        : py::reinterpret_borrow<py::object>(value);
    const auto target = schema.find(name);
    if (!target) throw misuse(name + " is no tensor of the checkpoint");
    const auto numbers = numbers_of(name, HostArray(array));
    must(codec::derive_boxes(schema, *target, offset, numbers, projection));
  }
  return codec::format_boxes(projection, schema);
}

using Handle = py::class_<BoxesHandle, std::shared_ptr<BoxesHandle>>;

void define_dense(Handle& boxes) {
  boxes
      .def(
          "replicated",
          [](BoxesHandle& self, const std::string& source, const std::string& target) {
            must(self.builder().replicated(source, target));
          },
          "source"_a, "target"_a, "Whole on every tensor-parallel rank: norms, routers, biases.")
      .def(
          "column_parallel",
          [](BoxesHandle& self, const std::string& source, const std::string& target) {
            must(self.builder().column_parallel(source, target));
          },
          "source"_a, "target"_a, "Cut on dimension 0.")
      .def(
          "row_parallel",
          [](BoxesHandle& self, const std::string& source, const std::string& target) {
            must(self.builder().row_parallel(source, target));
          },
          "source"_a, "target"_a, "Cut on dimension 1.")
      .def(
          "gate_up",
          [](BoxesHandle& self, const std::string& source, const std::string& gate,
             const std::string& up) { must(self.builder().gate_up(source, gate, up)); },
          "source"_a, "gate"_a, "up"_a, "[gate; up] on dimension 0, each of them cut.")
      .def(
          "attention",
          [](BoxesHandle& self, const std::string& source, const std::string& query,
             const std::string& key, const std::string& value, std::uint64_t query_heads,
             std::uint64_t groups, std::uint64_t head_width) {
            must(self.builder().attention(source, query, key, value,
                                          {query_heads, groups, head_width}));
          },
          "source"_a, "query"_a, "key"_a, "value"_a, py::kw_only(), "query_heads"_a, "groups"_a,
          "head_width"_a,
          "Fused by groups: per group its query blocks, a key block, a value block. With fewer "
          "groups\nthan ranks key and value rows are replicated.")
      .def(
          "vocabulary",
          [](BoxesHandle& self, const std::string& source, const std::string& target,
             std::uint64_t padded_rows) {
            must(self.builder().vocabulary(source, target, padded_rows));
          },
          "source"_a, "target"_a, py::kw_only(), "padded_rows"_a,
          "Cut on dimension 0 after padding to padded_rows; the padding is not emitted.")
      .def(
          "concatenated",
          [](BoxesHandle& self, const std::string& source, const std::string& target,
             const std::vector<std::uint64_t>& component_rows) {
            must(self.builder().concatenated(source, target, component_rows));
          },
          "source"_a, "target"_a, "component_rows"_a,
          "Components one behind the other on dimension 0, each of them cut (Mamba).")
      .def(
          "flat",
          [](BoxesHandle& self, const std::string& source, std::uint64_t source_offset,
             const std::string& target, std::uint64_t target_offset, std::uint64_t count) {
            must(self.builder().flat(source, source_offset, target, target_offset, count));
          },
          "source"_a, "source_offset"_a, "target"_a, "target_offset"_a, "count"_a,
          "A run of `count` elements in a flat shard (FSDP, ZeRO).");
}

void define_experts(Handle& boxes) {
  boxes
      .def(
          "grouped_gate_up",
          [](BoxesHandle& self, const std::string& source, const std::string& target) {
            must(self.builder().grouped_gate_up(source, target));
          },
          "source"_a, "target"_a,
          "The checkpoint has [E, 2F, H], the shard [E, 2F/T, H], gate before up for each expert.")
      .def(
          "expert_stack",
          [](BoxesHandle& self, const std::string& source, const std::string& target,
             bool transposed, bool interleaved) {
            must(self.builder().expert_stack(source, target, {transposed, interleaved}));
          },
          "source"_a, "target"_a, py::kw_only(), "transposed"_a = false, "interleaved"_a = false,
          "A stack [E/EP, rows, columns]; the checkpoint has the whole stack, or one tensor each\n"
          "('{}' in the name stands for the expert's number).")
      .def(
          "expert_gate_up_stack",
          [](BoxesHandle& self, const std::string& source, const std::string& gate,
             const std::string& up, bool transposed, bool interleaved) {
            must(self.builder().expert_gate_up_stack(source, gate, up, {transposed, interleaved}));
          },
          "source"_a, "gate"_a, "up"_a, py::kw_only(), "transposed"_a = false,
          "interleaved"_a = false, "The same of fused gate and up, [E/EP, 2F, H].");
}

}  // namespace

void define_boxes(py::module_& module) {
  Handle boxes(
      module, "Boxes",
      "The boxes of one process: which elements of its shard are which of the "
      "checkpoint.\n\n"
      "base is the checkpoint; tensor, expert and replica are (rank, size). Every call "
      "names a tensor of\nthe shard and the checkpoint tensors that it holds a part of; "
      "where another replica is the owner,\nnothing is added. str(boxes) is the box file.");
  boxes.def(py::init<const py::object&, const Part&, const Part&, const Part&>(), "base"_a,
            py::kw_only(), "tensor"_a = Part{0, 1}, "expert"_a = Part{0, 1},
            "replica"_a = Part{0, 1});
  define_dense(boxes);
  define_experts(boxes);
  boxes.def("__str__", &BoxesHandle::text);
  module.def("derive_boxes", &derive, "base"_a, "sources"_a, "exported"_a,
             "The box file of an exporter that nobody wants to describe.\n\n"
             "sources: name -> element count of the shard's tensors. Their elements are numbered "
             "from 0 on, the\nfirst one's first; run the exporter on those numbers. exported: "
             "checkpoint tensor -> array of\n64-bit numbers that came out, or (offset, array) for "
             "a part of it.");
}

}  // namespace weft::python
