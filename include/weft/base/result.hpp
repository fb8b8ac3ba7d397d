// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or an Error, never an exception. The only file that knows tl::expected.
#pragma once

#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

#include "weft/base/error.hpp"

namespace weft {

// Threads: a value; one at a time.
// Limits:  value() is deleted: test first, then use * or ->.
template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using Base = tl::expected<T, Error>;
  using Base::Base;
  // NOLINTNEXTLINE(google-explicit-constructor): `return make_error(...)` is what it is for
  Result(Error error) : Base(tl::unexpect, std::move(error)) {}
  void value() const = delete;
};

using Status = Result<void>;

inline Status ok() { return Status{}; }

inline Error failure(ErrorCode code, Stage stage, std::string detail, std::int32_t native = 0) {
  return make_error(code, stage, std::move(detail), native);
}

}  // namespace weft

#define WEFT_CONCAT_INNER(a, b) a##b
#define WEFT_CONCAT(a, b) WEFT_CONCAT_INNER(a, b)

// WEFT_TRY(auto file, store.open(path)); declares `file` or returns the error.
#define WEFT_TRY(declaration, expression) \
  WEFT_TRY_INNER(declaration, expression, WEFT_CONCAT(weft_result_, __LINE__))
#define WEFT_TRY_INNER(declaration, expression, result) \
  auto result = (expression);                           \
  if (!result) return std::move(result).error();        \
  declaration = *std::move(result)

// WEFT_TRY_STATUS(journal.append(record)); returns the error, if there is one.
#define WEFT_TRY_STATUS(expression)                                                           \
  do {                                                                                        \
    if (auto weft_status = (expression); !weft_status) return std::move(weft_status).error(); \
  } while (false)
