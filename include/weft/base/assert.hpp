// SPDX-License-Identifier: Apache-2.0
// WEFT_ASSERT: for our own bugs only, on in every build. Bytes from a peer or a disk never reach
// one.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace weft::internal {

[[noreturn]] inline void assert_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "weft: assertion failed: %s (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace weft::internal

#define WEFT_ASSERT(expression)        \
  ((expression) ? static_cast<void>(0) \
                : ::weft::internal::assert_failed(#expression, __FILE__, __LINE__))

// Only inside per-byte loops, where WEFT_ASSERT would be measured.
#ifdef NDEBUG
#define WEFT_DCHECK(expression) static_cast<void>(0)
#else
#define WEFT_DCHECK(expression) WEFT_ASSERT(expression)
#endif
