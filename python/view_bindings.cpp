// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include <utility>

#include "python/array.hpp"
#include "python/bindings.hpp"
#include "python/failure.hpp"
#include "python/view_handle.hpp"

namespace py = pybind11;
using namespace py::literals;  // NOLINT(google-build-using-namespace)

namespace weft::python {

namespace {

// What `for version in view.wait()` goes through.
// Threads: as ViewHandle.
struct Versions {
  std::shared_ptr<ViewHandle> view;
  Seconds timeout;
};

// One OwnedChange as arrays.
// Threads: immutable.
struct Change {
  std::string name;
  Array offsets;
  Array values;
};

template <typename T>
Array keep(std::vector<T>&& elements, std::string dtype, std::uint32_t element_bytes,
           std::size_t count) {
  auto owner = std::make_shared<std::vector<T>>(std::move(elements));
  Array array;
  array.begin = reinterpret_cast<std::byte*>(owner->data());
  array.owner = std::move(owner);
  array.dtype = std::move(dtype);
  array.element_bytes = element_bytes;
  array.shape = {static_cast<std::int64_t>(count)};
  array.writable = true;
  return array;
}

Change next_change(ChangeStream& stream) {
  auto change = stream.next();
  if (!change) throw py::stop_iteration();
  const std::size_t count = change->offsets.size();
  // Signed: what arrays are indexed with. No tensor has 2^63 elements.
  return {std::move(change->name), keep(std::move(change->offsets), "I64", 8, count),
          keep(std::move(change->values), std::move(change->dtype), change->element_bytes, count)};
}

std::string directory_of(const py::object& path) {
  return path.is_none() ? std::string()
                        : py::cast<std::string>(py::module_::import("os").attr("fsdecode")(path));
}

void define_changes(py::module_& module) {
  py::class_<Change>(module, "Change", "New values of some elements of one tensor.")
      .def_readonly("name", &Change::name)
      .def_readonly("offsets", &Change::offsets, "Flat element indices, ascending (int64).")
      .def_readonly("values", &Change::values, "Their new values, in the checkpoint's type.")
      .def_property_readonly("dtype", [](const Change& change) { return change.values.dtype; })
      .def("__iter__",
           [](const Change& change) {
             return py::iter(py::make_tuple(change.name, change.offsets, change.values));
           })
      .def("__len__", [](const Change& change) { return change.offsets.element_count(); })
      .def("__repr__", [](const Change& change) {
        return "<weft.Change " + change.name + " " + change.values.dtype + " " +
               std::to_string(change.offsets.element_count()) + " elements>";
      });
  py::class_<ChangeStream, std::shared_ptr<ChangeStream>>(
      module, "Changes", "What differs between two versions, piece by piece (WeightView.changes).")
      .def("__iter__", [](const std::shared_ptr<ChangeStream>& stream) { return stream; })
      .def("__next__", &next_change)
      .def_property_readonly(
          "changed_elements",
          [](const ChangeStream& stream) { return stream.summary().changed_elements; },
          "How many there were; 0 until the last piece has been taken.")
      .def_property_readonly(
          "refits", [](const ChangeStream& stream) { return stream.summary().refits; },
          "How many refits were folded; 0 until the last piece has been taken.");
}

void define_lock(py::module_& module) {
  py::class_<LockHandle, std::shared_ptr<LockHandle>>(
      module, "WeightLock",
      "The right to read one whole version, and its tensors; released at the end of a `with` "
      "block.\n\n"
      "lock[name] is an Array in the mapped files: take copies, or what you need, before the lock "
      "goes.\nThe memory stays valid after that, but an agent that changes files in place changes "
      "it, too.")
      .def_property_readonly("version",
                             [](const LockHandle& lock) { return lock.content().version.value; })
      .def_property_readonly("content", &LockHandle::content)
      .def_property_readonly("path", &LockHandle::path, "The folder with the files.")
      .def("names", &LockHandle::names, "Of all tensors, ascending.")
      .def("__getitem__", &LockHandle::tensor, "name"_a)
      .def("__iter__", [](LockHandle& lock) { return py::iter(py::cast(lock.names())); })
      .def("__len__", [](LockHandle& lock) { return lock.names().size(); })
      .def("__contains__",
           [](LockHandle& lock, const std::string& name) {
             const auto names = lock.names();
             return std::find(names.begin(), names.end(), name) != names.end();
           })
      .def("keys", &LockHandle::names, "As a mapping has it: dict(lock) works.")
      .def("release", &LockHandle::release, "Lets the agent go on; releasing twice does nothing.")
      .def("__enter__", [](const std::shared_ptr<LockHandle>& lock) { return lock; })
      .def("__exit__", [](LockHandle& lock, const py::object&, const py::object&,
                          const py::object&) { lock.release(); });
}

}  // namespace

void define_views(py::module_& module) {
  define_array(module);
  define_changes(module);
  define_lock(module);
  py::class_<Versions>(module, "Versions", "What WeightView.wait goes through.")
      .def("__iter__", [](const Versions& versions) { return versions; })
      .def("__next__",
           [](const Versions& versions) { return versions.view->wait(versions.timeout).to.value; });
  py::class_<ViewHandle, std::shared_ptr<ViewHandle>>(
      module, "WeightView",
      "Follows the weights directory of one node; needs no connection to the agent.\n\n"
      "state_dir is where the agent keeps its journals, if weft.owner in the directory does not "
      "say.")
      .def(py::init([](const py::object& weights, const py::object& state_dir) {
             return std::make_shared<ViewHandle>(directory_of(weights), directory_of(state_dir));
           }),
           "weights"_a, py::kw_only(), "state_dir"_a = py::none())
      .def(
          "wait",
          [](const std::shared_ptr<ViewHandle>& view, const Seconds& timeout) {
            return Versions{view, timeout};
          },
          "timeout"_a = py::none(),
          "Yields a version whenever another one is published than the last that this or acquire() "
          "gave.\n\n"
          "Versions in between may be skipped. weft.errors.TimeoutError when `timeout` seconds "
          "pass without.")
      .def("acquire", &ViewHandle::acquire, "timeout"_a = py::none(),
           "Waits until the weights may be read, and keeps them as they are until released.\n\n"
           "A node whose agent was killed half way is never handed out. weft.errors.TimeoutError "
           "says\nwhat it waited for.")
      .def(
          "changes", &ViewHandle::changes, "version"_a, py::kw_only(), "since"_a = py::none(),
          "Iterates over every element that differs, with its value at `version`, tensor by "
          "tensor in pieces.\n\n"
          "since is the version that you have; without it, what the last step of wait() came from. "
          "All journals\nare checked before the first piece; weft.errors.FullCopyNeeded when they "
          "don't lead there. Needs no lock.");
}

}  // namespace weft::python
