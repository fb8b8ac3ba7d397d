// SPDX-License-Identifier: Apache-2.0
// The parts of the module `weft._weft`.
#pragma once

#include <pybind11/pybind11.h>

namespace weft::python {

void define_agent(pybind11::module_& module);
void define_publisher(pybind11::module_& module);
void define_boxes(pybind11::module_& module);
void define_views(pybind11::module_& module);

}  // namespace weft::python
