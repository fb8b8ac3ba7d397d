// SPDX-License-Identifier: Apache-2.0
#include "python/failure.hpp"

namespace py = pybind11;

namespace weft::python {

namespace {

void set_python_error(const Error& error) {
  try {
    const py::object made = py::module_::import("weft.errors")
                                .attr("make_error")(py::str(std::string(to_string(error.code))),
                                                    py::str(std::string(to_string(error.stage))),
                                                    error.native, error.detail);
    PyErr_SetObject(py::type::handle_of(made).ptr(), made.ptr());
  } catch (py::error_already_set& raised) {
    raised.restore();
  }
}

py::list error_codes() {
  py::list codes;
  for (int number = 1; number <= kErrorCodeCount; ++number) {
    const auto code = static_cast<ErrorCode>(number);
    codes.append(py::make_tuple(std::string(to_string(code)), number,
                                std::string(to_string(next_step(code)))));
  }
  return codes;
}

}  // namespace

void define_errors(py::module_& module) {
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Failure& failed) {
      set_python_error(failed.error());
    }
  });
  module.def("error_codes", &error_codes,
             "Every code of docs/errors.md with its number and what to do next.");
}

}  // namespace weft::python
