// SPDX-License-Identifier: Apache-2.0
// weft::Publisher and weft::Refit for Python.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "python/event_log.hpp"
#include "python/host_array.hpp"
#include "python/long_call.hpp"
#include "weft/publisher.hpp"

namespace weft::python {

class RefitHandle;

// PublisherHandle is a Publisher, its events and the call that Ctrl-C has left behind.
// Owns:    the Publisher; of its refits the open one ends with it at the latest.
// Threads: with the interpreter's lock; one call at a time, a second one is kBusy.
class PublisherHandle : public std::enable_shared_from_this<PublisherHandle> {
 public:
  static std::shared_ptr<PublisherHandle> open(const PublisherOptions& options);
  ~PublisherHandle();

  std::shared_ptr<RefitHandle> begin(std::uint64_t version, bool partial);
  void cancel();
  void close();
  Content content();
  std::vector<ShardTensor> shard_tensors();

 private:
  friend class RefitHandle;
  // One call at a time. Threads: with the interpreter's lock.
  class Turn {
   public:
    explicit Turn(PublisherHandle& publisher);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    PublisherHandle& publisher_;
  };
  PublisherHandle() = default;
  Publisher& opened();
  void settle();
  void drop();
  ShardView view_of(const std::string& name, const HostArray& array, bool cast) const;

  EventLog events_;
  std::unique_ptr<Publisher> publisher_;
  std::map<std::string, ShardTensor, std::less<>> shard_;
  std::unique_ptr<LongCall> left_behind_;  // a commit that Ctrl-C did not wait for
  std::weak_ptr<RefitHandle> refit_;
  std::atomic<bool> in_turn_{false};
};

// RefitHandle is one Refit, until commit() or abort().
// Threads: as PublisherHandle, whose turns it takes.
class RefitHandle {
 public:
  RefitHandle(std::shared_ptr<PublisherHandle> publisher, std::shared_ptr<Refit> refit,
              Version version, bool partial)
      : publisher_(std::move(publisher)),
        refit_(std::move(refit)),
        version_(version),
        partial_(partial) {}
  ~RefitHandle();

  void put(const std::string& name, pybind11::handle tensor, bool cast);
  void put_shard(const std::vector<ShardBox>& boxes, pybind11::handle tensor, bool cast);
  // `source`: a tensor, several, or None.
  void put_residual(const std::string& name, const pybind11::function& converter,
                    const pybind11::object& source, bool elementwise);
  RefitReport commit(bool partial);
  void abort();
  // Commits, or aborts when an exception is on its way.
  void leave(bool failed);

  bool is_open() const { return refit_ != nullptr; }
  Version version() const { return version_; }
  const std::optional<RefitReport>& stats() const { return stats_; }

 private:
  friend class PublisherHandle;
  Refit& open_refit();
  void end();  // without the turn

  std::shared_ptr<PublisherHandle> publisher_;
  std::shared_ptr<Refit> refit_;
  const Version version_;
  const bool partial_;
  std::optional<RefitReport> stats_;
};

}  // namespace weft::python
