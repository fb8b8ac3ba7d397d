// SPDX-License-Identifier: Apache-2.0
#include "apply/store/native_error.hpp"

#include <cerrno>
#include <system_error>

namespace weft::apply {

ErrorCode code_of_errno(int native) {
  switch (native) {
    case ENOSPC:
    case EDQUOT:
      return ErrorCode::kNoSpace;
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case ENAMETOOLONG:
      return ErrorCode::kResourceLimit;
    case EACCES:
    case EPERM:
    case EROFS:
    case ELOOP:
    case EXDEV:
    case EEXIST:
    case EISDIR:
    case ENOTDIR:
    case ETXTBSY:
      return ErrorCode::kDenied;
    case EWOULDBLOCK:
    case EBUSY:
      return ErrorCode::kBusy;
    case ETIME:
    case ETIMEDOUT:
      return ErrorCode::kTimeout;
    case ENOSYS:
    case EOPNOTSUPP:
      return ErrorCode::kUnsupported;
    default:
      return ErrorCode::kIoFailed;
  }
}

Error native_error(int native, Stage stage, const std::string& what) {
  const std::string text = std::error_code(native, std::generic_category()).message();
  return make_error(code_of_errno(native), stage, what + ": " + text, native);
}

}  // namespace weft::apply
