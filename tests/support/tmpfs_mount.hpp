// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mount.h>

#include <string>

#include "support/temp_directory.hpp"

namespace weft::test_support {

// A small disk of its own, to be filled. Needs root; a test without it fails, it does not skip.
// Owns:    the mount.
// Threads: immutable.
class TmpfsMount {
 public:
  explicit TmpfsMount(const std::string& size) {
    mounted_ = ::mount("tmpfs", directory_.path().c_str(), "tmpfs", 0,
                       ("size=" + size + ",mode=0777").c_str()) == 0;
  }
  ~TmpfsMount() {
    if (mounted_) ::umount2(directory_.path().c_str(), MNT_DETACH);
  }
  TmpfsMount(const TmpfsMount&) = delete;
  TmpfsMount& operator=(const TmpfsMount&) = delete;

  bool mounted() const { return mounted_; }
  const std::string& path() const { return directory_.path(); }

 private:
  TempDirectory directory_;
  bool mounted_ = false;
};

}  // namespace weft::test_support
