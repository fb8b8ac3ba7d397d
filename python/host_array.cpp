// SPDX-License-Identifier: Apache-2.0
#include "python/host_array.hpp"

#include <cstring>

#include "python/dlpack.hpp"

namespace py = pybind11;

namespace weft::python {

namespace {

[[noreturn]] void refuse(const std::string& what) {
  PyErr_SetString(PyExc_BufferError, what.c_str());
  throw py::error_already_set();
}

// 'i' signed, 'u' unsigned, 'b' bool, 'f' float, 'B' bfloat, 'c' complex, 'w' anything else.
char kind_of_format(const char* format) {
  if (format == nullptr) return 'u';
  if (std::strchr("@=<", *format) != nullptr && *format != '\0') ++format;
  if (std::strlen(format) == 2 && format[0] == 'Z') return 'c';
  if (std::strlen(format) != 1) return 'w';
  if (std::strchr("bhilqn", *format) != nullptr) return 'i';
  if (std::strchr("BHILQNc", *format) != nullptr) return 'u';
  if (*format == '?') return 'b';
  return std::strchr("efd", *format) != nullptr ? 'f' : 'w';
}

char kind_of_code(std::uint8_t code) {
  switch (code) {
    case kDlInt:
      return 'i';
    case kDlUnsigned:
      return 'u';
    case kDlFloat:
      return 'f';
    case kDlBfloat:
      return 'B';
    case kDlComplex:
      return 'c';
    case kDlBool:
      return 'b';
    default:
      return 'w';
  }
}

bool is_row_major(const DlArray& array) {
  if (array.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (std::int32_t i = array.rank - 1; i >= 0; --i) {
    if (array.shape[i] == 0) return true;
    if (array.shape[i] != 1 && array.strides[i] != expected) return false;
    expected *= array.shape[i];
  }
  return true;
}

constexpr const char* kNotContiguous =
    "the tensor is not contiguous: hand over tensor.contiguous() or numpy.ascontiguousarray(array)";

}  // namespace

HostArray::HostArray(py::handle object) {
  if (PyObject_CheckBuffer(object.ptr()) != 0) {
    borrow_buffer(object);
    return;
  }
  if (!py::hasattr(object, "__dlpack__")) {
    throw py::type_error("a tensor is wanted (buffer protocol or DLPack), not " +
                         std::string(py::str(py::type::handle_of(object).attr("__name__"))));
  }
  py::object tensor = py::reinterpret_borrow<py::object>(object);
  // DLPack has no word for gradients: exporters refuse such tensors. The values are the same.
  if (py::hasattr(tensor, "requires_grad") && py::cast<bool>(tensor.attr("requires_grad"))) {
    tensor = tensor.attr("detach")();
  }
  borrow_dlpack(std::move(tensor));
}

void HostArray::borrow_buffer(py::handle object) {
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(object.ptr(), view.get(), PyBUF_FORMAT | PyBUF_ND) != 0) {
    PyErr_Clear();
    refuse(kNotContiguous);
  }
  bytes_ = {static_cast<const std::byte*>(view->buf), static_cast<std::size_t>(view->len)};
  const char* const format = view->format;
  if (format != nullptr && (*format == '>' || *format == '!') && view->itemsize > 1) {
    PyBuffer_Release(view.get());
    refuse("the array is big-endian");
  }
  name_type(kind_of_format(format), static_cast<std::uint32_t>(view->itemsize));
  holder_ = {view.release(), [](void* held) {
               auto* const buffer = static_cast<Py_buffer*>(held);
               PyBuffer_Release(buffer);
               delete buffer;
             }};
}

void HostArray::borrow_dlpack(py::object object) {
  if (py::hasattr(object, "__dlpack_device__")) {
    const auto device = py::cast<py::tuple>(object.attr("__dlpack_device__")());
    const auto kind = py::cast<std::int32_t>(device[0]);
    if (kind != kDlCpu && kind != kDlCudaHost) {
      refuse("the tensor is not in the CPU's memory: hand over tensor.cpu()");
    }
  }
  const auto capsule = py::reinterpret_borrow<py::object>(object.attr("__dlpack__")());
  auto* const managed = static_cast<DlManaged*>(PyCapsule_GetPointer(capsule.ptr(), kDlCapsule));
  if (managed == nullptr) throw py::error_already_set();
  const DlArray& array = managed->array;
  if (!is_row_major(array)) refuse(kNotContiguous);
  std::uint64_t count = 1;
  for (std::int32_t i = 0; i < array.rank; ++i) count *= static_cast<std::uint64_t>(array.shape[i]);
  if (array.type.lanes != 1 || array.type.bits % 8 != 0 || array.type.bits == 0) {
    refuse("elements of " + std::to_string(array.type.bits) + " bits");
  }
  name_type(kind_of_code(array.type.code), array.type.bits / 8U);
  bytes_ = {static_cast<const std::byte*>(array.memory) + array.byte_offset,
            static_cast<std::size_t>(count * element_bytes_)};
  // An unused capsule gives the tensor back itself; so it stays ours as long as we hold it.
  holder_ = {new py::object(capsule), [](void* held) { delete static_cast<py::object*>(held); }};
}

void HostArray::name_type(char kind, std::uint32_t width) {
  const std::string bits = std::to_string(width * 8);
  element_bytes_ = width;
  opaque_ = kind == 'i' || kind == 'u' || kind == 'w';
  switch (kind) {
    case 'f':
      dtype_ = "F" + bits;
      break;
    case 'B':
      dtype_ = "BF" + bits;
      break;
    case 'c':
      dtype_ = "C" + bits;
      break;
    case 'i':
      dtype_ = "I" + bits;
      break;
    case 'u':
      dtype_ = "U" + bits;
      break;
    case 'b':
      dtype_ = "BOOL";
      break;
    default:
      dtype_ = "word of " + bits + " bits";
      break;
  }
}

}  // namespace weft::python
