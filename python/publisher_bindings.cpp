// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include <fstream>
#include <iterator>
#include <tuple>

#include "python/bindings.hpp"
#include "python/failure.hpp"
#include "python/publisher_handle.hpp"

namespace py = pybind11;
using namespace py::literals;  // NOLINT(google-build-using-namespace)

namespace weft::python {

namespace {

std::string path_of(const py::object& path) {
  return path.is_none() ? std::string()
                        : py::cast<std::string>(py::module_::import("os").attr("fsdecode")(path));
}

// A str is the text itself, a path names a file with it.
std::string text_of(const py::handle& boxes) {
  if (py::isinstance<py::str>(boxes)) return py::cast<std::string>(boxes);
  const std::string path = path_of(py::reinterpret_borrow<py::object>(boxes));
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.is_open() || in.bad()) {
    throw Failure(failure(ErrorCode::kIoFailed, Stage::kOpen, path + ": cannot be read"));
  }
  return text;
}

std::shared_ptr<PublisherHandle> open_publisher(const py::object& fleet, const py::object& base,
                                                std::uint64_t base_version,
                                                const py::object& config, std::uint32_t producer,
                                                const py::iterable& boxes,
                                                const py::object& baseline_dir) {
  PublisherOptions options;
  if (!fleet.is_none()) options.coordinator = py::cast<std::string>(fleet);
  options.base_dir = path_of(base);
  options.base_version = Version{base_version};
  options.config_file = path_of(config);
  options.producer = producer;
  options.baseline_dir = path_of(baseline_dir);
  for (const py::handle each : boxes) options.box_files.push_back(text_of(each));
  return PublisherHandle::open(options);
}

ShardBox make_box(
    std::string tensor, std::uint64_t source_offset, std::uint64_t target_offset,
    const std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>>& axes) {
  ShardBox box{std::move(tensor), source_offset, target_offset, {}};
  for (const auto& [extent, source_stride, target_stride] : axes) {
    box.axes.push_back({extent, source_stride, target_stride});
  }
  return box;
}

double changed_fraction(const RefitReport& report) {
  return report.total_elements == 0 ? 0.0
                                    : static_cast<double>(report.changed_elements) /
                                          static_cast<double>(report.total_elements);
}

std::string describe(const RefitReport& report) {
  return "<weft.RefitReport version=" + std::to_string(report.version.value) + " changed " +
         std::to_string(report.changed_elements) + " of " + std::to_string(report.total_elements) +
         ", " + std::to_string(report.wire_bytes) + " bytes on the wire, put " +
         std::to_string(report.put_seconds) + " s, commit " +
         std::to_string(report.commit_seconds) + " s>";
}

void define_box(py::module_& module) {
  py::class_<ShardBox>(
      module, "Box",
      "Elements of a checkpoint tensor that lie in a view, for Refit.put_shard.\n\n"
      "axes is a list of (extent, source stride, target stride); offsets and strides count "
      "elements, flat\nand row-major, in the view and in the checkpoint's tensor.")
      .def(py::init(&make_box), "tensor"_a, "source_offset"_a, "target_offset"_a,
           "axes"_a = py::tuple())
      .def_readonly("tensor", &ShardBox::tensor)
      .def_readonly("source_offset", &ShardBox::source_offset)
      .def_readonly("target_offset", &ShardBox::target_offset)
      .def_property_readonly(
          "axes",
          [](const ShardBox& box) {
            py::list axes;
            for (const ShardBoxAxis& axis : box.axes) {
              axes.append(py::make_tuple(axis.extent, axis.source_stride, axis.target_stride));
            }
            return axes;
          })
      .def("__repr__", [](const ShardBox& box) {
        return "<weft.Box " + box.tensor + " [" + std::to_string(box.target_offset) + "] of " +
               std::to_string(box.axes.size()) + " axes>";
      });
}

void define_values(py::module_& module) {
  py::class_<Content>(module, "Content", "What a set of weights is: version, lattice, root.")
      .def_property_readonly("version",
                             [](const Content& content) { return content.version.value; })
      .def_property_readonly("lattice",
                             [](const Content& content) { return to_hex(content.lattice); })
      .def_property_readonly("root", [](const Content& content) { return to_hex(content.root); })
      .def("__eq__", [](const Content& left, const Content& right) { return left == right; })
      .def("__repr__", [](const Content& content) {
        return "<weft.Content version=" + std::to_string(content.version.value) +
               " root=" + to_hex(content.root) + ">";
      });
  py::class_<ShardTensor>(module, "ShardTensor", "A tensor that Refit.put takes.")
      .def_readonly("name", &ShardTensor::name)
      .def_readonly("element_count", &ShardTensor::element_count)
      .def_readonly("dtype", &ShardTensor::dtype)
      .def("__repr__", [](const ShardTensor& tensor) {
        return "<weft.ShardTensor " + tensor.name + " " + tensor.dtype + " " +
               std::to_string(tensor.element_count) + ">";
      });
  py::class_<RefitReport>(module, "RefitReport", "What a committed refit has cost this producer.")
      .def_property_readonly("version",
                             [](const RefitReport& report) { return report.version.value; })
      .def_readonly("already_committed", &RefitReport::already_committed)
      .def_readonly("changed_elements", &RefitReport::changed_elements)
      .def_readonly("total_elements", &RefitReport::total_elements)
      .def_property_readonly("changed_fraction", &changed_fraction)
      .def_readonly("skipped_elements", &RefitReport::skipped_elements)
      .def_readonly("frames", &RefitReport::frames)
      .def_readonly("wire_bytes", &RefitReport::wire_bytes)
      .def_readonly("baseline_bytes", &RefitReport::baseline_bytes)
      .def_readonly("pending_bytes", &RefitReport::pending_bytes)
      .def_readonly("put_seconds", &RefitReport::put_seconds)
      .def_readonly("commit_seconds", &RefitReport::commit_seconds)
      .def("__repr__", &describe);
}

void define_refit(py::module_& module) {
  py::class_<RefitHandle, std::shared_ptr<RefitHandle>>(
      module, "Refit",
      "One attempt at one version: put every tensor of the shard, then commit.\n\n"
      "As a context manager it commits at the end of the block, or aborts when the block raises.")
      .def(
          "put", &RefitHandle::put, "name"_a, "tensor"_a, py::kw_only(), "cast"_a = false,
          "Scans, encodes and sends what has changed in one tensor of the shard.\n\n"
          "The tensor lies contiguously in the CPU's memory (buffer protocol or DLPack); it is not "
          "copied,\nand may be changed as soon as this returns. Its type is the checkpoint's, or "
          "an integer of the\nsame width (numpy has no bfloat16: pass its bits as uint16). With "
          "cast=True a float32 tensor\nis rounded to the checkpoint's BF16 or F16, to nearest, "
          "ties to even.")
      .def(
          "put_shard", &RefitHandle::put_shard, "boxes"_a, "tensor"_a, py::kw_only(),
          "cast"_a = false,
          "The same for elements of this producer's part wherever they lie in a tensor.\n\n"
          "boxes says which elements these are (weft.Box); others may come in any further calls, "
          "each element\nonce. tensor is as for put. An element that is another producer's, or was "
          "given before, is a\nConfigError that names tensor and range; so is a gap, at commit.")
      .def("put_residual", &RefitHandle::put_residual, "name"_a, "converter"_a,
           "source"_a = py::none(), py::kw_only(), "elementwise"_a = false,
           "The same for values that are no copies of the shard's.\n\n"
           "converter(first_element, buffer) fills the memoryview `buffer` with elements from\n"
           "first_element on, in the checkpoint's type; it is called for any ranges, on any "
           "thread.\n"
           "source is the tensor, or all the tensors, that the values are made of: where they are "
           "what they\nwere when the committed values were made, the converter is not called. With "
           "elementwise=True value i\ndepends on element i of each of them alone, and that is "
           "looked at chunk by chunk.")
      .def("commit", &RefitHandle::commit, py::kw_only(), "partial"_a = false,
           "Seals this producer's part and waits for the decision.\n\n"
           "With partial=True what was not put counts as unchanged; else it is a ConfigError. "
           "Ctrl-C "
           "aborts\na refit that is not sealed yet; after that the decision stands, and the next "
           "refit waits for it.")
      .def("abort", &RefitHandle::abort, "Gives the refit up; the fleet keeps the last version.")
      .def("__enter__", [](const std::shared_ptr<RefitHandle>& refit) { return refit; })
      .def("__exit__", [](RefitHandle& refit, const py::object& type, const py::object&,
                          const py::object&) { refit.leave(!type.is_none()); })
      .def_property_readonly("version",
                             [](const RefitHandle& refit) { return refit.version().value; })
      .def_property_readonly("is_open", &RefitHandle::is_open)
      .def_property_readonly("stats", &RefitHandle::stats,
                             "The report of the commit; None before it.");
}

}  // namespace

void define_publisher(py::module_& module) {
  define_values(module);
  define_box(module);
  define_refit(module);
  py::class_<PublisherHandle, std::shared_ptr<PublisherHandle>>(
      module, "Publisher",
      "One producer of a fleet: hands its own part of a model over, step by step.\n\n"
      "fleet is the coordinator's host:port; base the checkpoint that the fleet has now (or starts "
      "from,\nas base_version); config a TOML file as for `weft publish --config`. boxes are the "
      "box files of all\nproducers (str: the text, a path: a file), this one's at place "
      "`producer`; "
      "without them the shard's\ntensors are the checkpoint's, by name. With baseline_dir the "
      "baseline is on disk: a publisher that\nis opened again goes on from it, whatever base "
      "holds. "
      "One thread at a time.")
      .def(py::init(&open_publisher), "fleet"_a = py::none(), "base"_a = py::none(), py::kw_only(),
           "base_version"_a = 1, "config"_a = py::none(), "producer"_a = 0, "boxes"_a = py::tuple(),
           "baseline_dir"_a = py::none())
      .def("refit", &PublisherHandle::begin, "version"_a, py::kw_only(), "partial"_a = false,
           "Waits until all producers have begun and the fleet is planned.\n\n"
           "partial is what a `with` block commits with.")
      .def(
          "cancel", &PublisherHandle::cancel,
          "From another thread: ends a refit() or put() that waits there, and a commit() that has\n"
          "not sealed; they raise BusyError. Say it until they do.")
      .def("close", &PublisherHandle::close, "Aborts an open refit and leaves the fleet.")
      .def("__enter__", [](const std::shared_ptr<PublisherHandle>& handle) { return handle; })
      .def("__exit__", [](PublisherHandle& handle, const py::object&, const py::object&,
                          const py::object&) { handle.close(); })
      .def_property_readonly("content", &PublisherHandle::content, "What the baseline is.")
      .def_property_readonly(
          "version", [](PublisherHandle& handle) { return handle.content().version.value; },
          "The version of the baseline.")
      .def_property_readonly("shard_tensors", &PublisherHandle::shard_tensors,
                             "What Refit.put takes.");
}

}  // namespace weft::python
