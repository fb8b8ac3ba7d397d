// SPDX-License-Identifier: Apache-2.0
// A record log on a disk that may be killed: what was synced stays, what was not may.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

namespace weft::sim {

// 1. append() puts a record in flight; settle_one() makes the oldest durable, with every unsynced
//    record before it.
// 2. crash(kept): the first `kept` records in flight are found again, the rest never were written.
// Threads: one at a time.
template <typename Record>
class SimLog {
 public:
  const std::vector<Record>& durable() const { return durable_; }
  void set_durable(std::vector<Record> records) { durable_ = std::move(records); }
  std::size_t in_flight_count() const { return in_flight_.size(); }

  // `sync`: settle_one() is called for it; else it becomes durable with a later one.
  void append(Record record, bool sync) { in_flight_.push_back({std::move(record), sync}); }

  // The oldest synced append has ended; returns what became durable. `lost`: it failed and nothing
  // of it is on the disk.
  std::vector<Record> settle_one(bool lost) {
    std::vector<Record> now_durable;
    while (!in_flight_.empty()) {
      const Entry entry = std::move(in_flight_.front());
      in_flight_.pop_front();
      if (!(entry.sync && lost)) now_durable.push_back(entry.record);
      if (entry.sync) break;
    }
    durable_.insert(durable_.end(), now_durable.begin(), now_durable.end());
    return now_durable;
  }

  std::vector<Record> crash(std::size_t kept) {
    std::vector<Record> found;
    for (std::size_t i = 0; i < kept && i < in_flight_.size(); ++i) {
      found.push_back(in_flight_[i].record);
    }
    durable_.insert(durable_.end(), found.begin(), found.end());
    in_flight_.clear();
    return found;
  }

 private:
  struct Entry {
    Record record;
    bool sync = true;
  };
  std::vector<Record> durable_;
  std::deque<Entry> in_flight_;
};

}  // namespace weft::sim
