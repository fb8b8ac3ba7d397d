// SPDX-License-Identifier: Apache-2.0
// A handful of forked processes and the pipes to them, for measurements between processes.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

namespace weft::bench {

// The ends of a forked process's two pipes.
struct PipeEnds {
  int in = -1;
  int out = -1;

  bool read_all(void* to, std::size_t bytes) const {
    auto* at = static_cast<std::byte*>(to);
    while (bytes > 0) {
      const ssize_t got = ::read(in, at, bytes);
      if (got <= 0) return false;
      at += got;
      bytes -= static_cast<std::size_t>(got);
    }
    return true;
  }
  bool write_all(const void* from, std::size_t bytes) const {
    return ::write(out, from, bytes) == static_cast<ssize_t>(bytes);
  }
};

// ProcessGroup runs a function per process; all are ended and waited for at the latest when it
// goes.
// Owns:    the processes (by id) and the pipes.
// Threads: one at a time; nobody else may run threads when start() forks.
class ProcessGroup {
 public:
  ProcessGroup() = default;
  ~ProcessGroup() {
    for (Process& process : processes_) {
      if (process.pid > 0) ::kill(process.pid, SIGKILL);
    }
    wait();
    for (const Process& process : processes_) {
      ::close(process.ends.in);
      ::close(process.ends.out);
    }
  }
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  // `body` returns the exit status. False: no process.
  bool start(const std::function<int(const PipeEnds&)>& body) {
    std::array<int, 2> down{};
    std::array<int, 2> up{};
    if (::pipe(down.data()) != 0 || ::pipe(up.data()) != 0) return false;
    const pid_t pid = ::fork();
    if (pid == 0) {
      for (const Process& other : processes_) {
        ::close(other.ends.in);
        ::close(other.ends.out);
      }
      ::close(down[1]);
      ::close(up[0]);
      ::alarm(120);
      ::_exit(body({down[0], up[1]}));
    }
    ::close(down[0]);
    ::close(up[1]);
    processes_.push_back({pid, {up[0], down[1]}, 0, true});
    return pid > 0;
  }
  std::size_t size() const { return processes_.size(); }
  const PipeEnds& ends(std::size_t index) const { return processes_[index].ends; }
  // Until all have ended. True: all well.
  bool wait() {
    bool well = true;
    for (Process& process : processes_) {
      if (process.pid <= 0) continue;
      int status = 0;
      rusage used{};
      ::wait4(process.pid, &status, 0, &used);
      process.pid = -1;
      process.well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
      };
      process.cpu_seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
    }
    for (const Process& process : processes_) well &= process.well;
    return well;
  }
  double cpu_seconds(std::size_t index) const { return processes_[index].cpu_seconds; }

 private:
  struct Process {
    pid_t pid = -1;
    PipeEnds ends;
    double cpu_seconds = 0;
    bool well = true;
  };
  std::vector<Process> processes_;
};

}  // namespace weft::bench
