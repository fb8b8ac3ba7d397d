// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace weft::apply {

// Who holds a flock on the file of this descriptor, for a message: "process 17", "processes 17
// 18", or "another process" where the kernel does not tell.
std::string lock_holder(int descriptor);

}  // namespace weft::apply
