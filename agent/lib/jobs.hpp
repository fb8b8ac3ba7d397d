// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <thread>

namespace weft::agent {

// Jobs runs the long actions of a step machine (hash, prove, apply), each on a thread of its own.
// There are few of them: at most one or two per open refit.
// Threads: one at a time for start and join_all.
class Jobs {
 public:
  ~Jobs() { join_all(); }

  void start(std::function<void()> work) {
    reap();
    Job& job = jobs_.emplace_back();
    job.done = std::make_shared<std::atomic<bool>>(false);
    job.thread = std::thread([work = std::move(work), done = job.done] {
      work();
      done->store(true);
    });
  }
  void join_all() {
    for (Job& job : jobs_) job.thread.join();
    jobs_.clear();
  }

 private:
  struct Job {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> done;
  };
  void reap() {
    for (auto job = jobs_.begin(); job != jobs_.end();) {
      if (!job->done->load()) {
        ++job;
        continue;
      }
      job->thread.join();
      job = jobs_.erase(job);
    }
  }

  std::list<Job> jobs_;
};

}  // namespace weft::agent
