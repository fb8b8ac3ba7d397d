// SPDX-License-Identifier: Apache-2.0
#include "python/array.hpp"

#include <pybind11/stl.h>

#include "python/dlpack.hpp"
#include "python/failure.hpp"

namespace py = pybind11;

namespace weft::python {

namespace {

struct TypeRow {
  const char* dtype;
  const char* format;  // of the buffer: what Python has no type for goes as unsigned words
  DlType type;
};
constexpr TypeRow kTypes[] = {
    {"BOOL", "?", {kDlBool, 8, 1}},     {"I8", "b", {kDlInt, 8, 1}},
    {"U8", "B", {kDlUnsigned, 8, 1}},   {"I16", "h", {kDlInt, 16, 1}},
    {"U16", "H", {kDlUnsigned, 16, 1}}, {"F16", "e", {kDlFloat, 16, 1}},
    {"BF16", "H", {kDlBfloat, 16, 1}},  {"I32", "i", {kDlInt, 32, 1}},
    {"U32", "I", {kDlUnsigned, 32, 1}}, {"F32", "f", {kDlFloat, 32, 1}},
    {"I64", "q", {kDlInt, 64, 1}},      {"U64", "Q", {kDlUnsigned, 64, 1}},
    {"F64", "d", {kDlFloat, 64, 1}},    {"C64", "Zf", {kDlComplex, 64, 1}},
};
constexpr TypeRow kBytes{"", "B", {kDlUnsigned, 8, 1}};  // 8-bit floats and what is smaller

const TypeRow& row_of(const Array& array) {
  for (const TypeRow& row : kTypes) {
    if (array.dtype == row.dtype) return row;
  }
  return kBytes;
}

py::buffer_info buffer_of(Array& array) {
  std::vector<py::ssize_t> shape(array.shape.begin(), array.shape.end());
  std::vector<py::ssize_t> strides(shape.size());
  auto step = static_cast<py::ssize_t>(array.element_bytes);
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= shape[i];
  }
  return {array.begin,          static_cast<py::ssize_t>(array.element_bytes),
          row_of(array).format, static_cast<py::ssize_t>(shape.size()),
          std::move(shape),     std::move(strides),
          !array.writable};
}

// A DlManaged and what it points to.
struct Lent {
  DlManaged managed;
  Array array;
};

py::capsule lend(const Array& array) {
  auto lent = std::make_unique<Lent>(Lent{{}, array});
  DlArray& told = lent->managed.array;
  told.memory = lent->array.begin;
  told.rank = static_cast<std::int32_t>(lent->array.shape.size());
  told.type = row_of(array).type;
  told.shape = lent->array.shape.data();
  lent->managed.context = lent.get();
  lent->managed.drop = [](DlManaged* managed) { delete static_cast<Lent*>(managed->context); };
  PyObject* const capsule = PyCapsule_New(&lent->managed, kDlCapsule, [](PyObject* object) {
    if (PyCapsule_IsValid(object, kDlCapsule) == 0) return;  // somebody has taken it over
    auto* const managed = static_cast<DlManaged*>(PyCapsule_GetPointer(object, kDlCapsule));
    managed->drop(managed);
  });
  if (capsule == nullptr) throw py::error_already_set();
  static_cast<void>(lent.release());
  return py::reinterpret_steal<py::capsule>(capsule);
}

std::string describe(const Array& array) {
  std::string shape;
  for (const std::int64_t extent : array.shape) {
    shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
  }
  return "<weft.Array " + array.dtype + " [" + shape + "]>";
}

}  // namespace

std::size_t Array::element_count() const {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

void define_array(py::module_& module) {
  py::class_<Array>(module, "Array", py::buffer_protocol(),
                    "Memory of weft's as an array, without a copy: buffer protocol and DLPack.\n\n"
                    "numpy() of a type that numpy does not have (bfloat16, 8-bit floats) gives its "
                    "bits as unsigned\nintegers; torch() gives bfloat16.")
      .def_buffer(&buffer_of)
      .def_readonly("dtype", &Array::dtype)
      .def_readonly("itemsize", &Array::element_bytes)
      .def_property_readonly("shape",
                             [](const Array& array) { return py::tuple(py::cast(array.shape)); })
      .def_property_readonly("nbytes", &Array::byte_count)
      .def("__len__",
           [](const Array& array) {
             if (array.shape.empty()) throw py::type_error("an array without dimensions");
             return array.shape[0];
           })
      .def("__dlpack__",
           [](const Array& array, const py::args&, const py::kwargs&) { return lend(array); })
      .def("__dlpack_device__", [](const Array&) { return py::make_tuple(int{kDlCpu}, 0); })
      .def(
          "numpy",
          [](const py::object& self) { return py::module_::import("numpy").attr("asarray")(self); })
      .def("torch",
           [](const py::object& self) {
             return py::module_::import("torch").attr("from_dlpack")(self);
           })
      .def("__repr__", &describe);
}

}  // namespace weft::python
