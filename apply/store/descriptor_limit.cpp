// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "apply/store/checkpoint_dir.hpp"
#include "apply/store/native_error.hpp"

namespace weft::apply {

namespace {

// What sockets, logs and rings open meanwhile.
constexpr std::size_t kMargin = 256;

std::size_t open_descriptors() {
  std::error_code failed;
  std::size_t count = 0;
  for (auto entry = std::filesystem::directory_iterator("/proc/self/fd", failed);
       !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed)) {
    ++count;
  }
  return count;
}

}  // namespace

Status reserve_descriptors(std::size_t more) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return native_error(errno, Stage::kOpen, "limit of open files");
  }
  const std::size_t open = open_descriptors();
  if (open + more + kMargin <= limit.rlim_cur) return ok();
  if (open + more > limit.rlim_max) {
    return failure(ErrorCode::kResourceLimit, Stage::kOpen,
                   "limit of open files: " + std::to_string(more) + " more are needed beside " +
                       std::to_string(open) + " open ones; the hard limit is " +
                       std::to_string(limit.rlim_max),
                   EMFILE);
  }
  limit.rlim_cur = std::min<rlim_t>(open + more + kMargin, limit.rlim_max);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return native_error(errno, Stage::kOpen, "raise the limit of open files");
  }
  return ok();
}

}  // namespace weft::apply
