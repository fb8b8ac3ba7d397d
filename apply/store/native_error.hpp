// SPDX-License-Identifier: Apache-2.0
// From errno to the project's codes: one table for every store.
#pragma once

#include <string>

#include "weft/base/error.hpp"

namespace weft::apply {

ErrorCode code_of_errno(int native);

// `what` names the call and the file; the text of the error number is added behind it.
Error native_error(int native, Stage stage, const std::string& what);

// The same error, told of the step of the flow that met it.
inline Error at_stage(Error error, Stage stage) {
  error.stage = stage;
  return error;
}

}  // namespace weft::apply
