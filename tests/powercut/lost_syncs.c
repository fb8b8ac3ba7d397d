// SPDX-License-Identifier: Apache-2.0
// A disk that lies: preloaded into an agent, every sync says yes and does nothing. The power-cut
// test must notice.
#include <fcntl.h>
#include <unistd.h>

int fsync(int fd) { return fcntl(fd, F_GETFD) < 0 ? -1 : 0; }
int fdatasync(int fd) { return fsync(fd); }
int sync_file_range(int fd, __off64_t offset, __off64_t bytes, unsigned flags) {
  (void)offset, (void)bytes, (void)flags;
  return fsync(fd);
}
