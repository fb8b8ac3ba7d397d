// SPDX-License-Identifier: Apache-2.0
// weft._weft: what the package `weft` is made of (weft/__init__.py says what is public).
#include "python/bindings.hpp"
#include "python/failure.hpp"

PYBIND11_MODULE(_weft, module) {
  module.doc() = "The native part of weft; import weft instead.";
  weft::python::define_errors(module);
  weft::python::define_publisher(module);
  weft::python::define_agent(module);
  weft::python::define_boxes(module);
  weft::python::define_views(module);
}
