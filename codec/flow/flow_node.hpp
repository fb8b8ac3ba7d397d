// SPDX-License-Identifier: Apache-2.0
// What the flows of this folder are made of: threads and buffers by NUMA node, and the first error.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "codec/flow/encode_batch.hpp"
#include "codec/flow/encode_flow.hpp"
#include "codec/flow/node_arena.hpp"
#include "weft/base/guarded.hpp"

namespace weft::codec {

// Things that are handed out one at a time and come back: made when first needed.
// Threads: any.
template <typename T>
class Shelf {
 public:
  std::unique_ptr<T> take() {
    auto thing = shelf_.with([](auto& things) -> std::unique_ptr<T> {
      if (things.empty()) return nullptr;
      auto last = std::move(things.back());
      things.pop_back();
      return last;
    });
    return thing ? std::move(thing) : std::make_unique<T>();
  }
  void give_back(std::unique_ptr<T> thing) {
    shelf_.with([&](auto& things) { things.push_back(std::move(thing)); });
  }

 private:
  Guarded<std::vector<std::unique_ptr<T>>> shelf_;
};

// The first error of a flow; everything behind it is skipped.
// Threads: any.
class FirstError {
 public:
  bool is_set() const { return is_set_.load(); }
  void set(Error error) {
    error_.with([&](auto& kept) {
      if (!kept) kept = std::move(error);
    });
    is_set_.store(true);
  }
  Status status() const {
    return error_.with([](const auto& kept) -> Status {
      if (kept) return *kept;
      return ok();
    });
  }
  // Runs body, which returns a Status, and keeps its error or what it throws.
  template <typename Body>
  void guard(Body&& body) {
    if (is_set()) return;
    try {
      if (auto status = body(); !status) set(std::move(status).error());
    } catch (const std::exception& thrown) {
      set(make_error(ErrorCode::kResourceLimit, Stage::kEncode, thrown.what()));
    } catch (...) {
      set(make_error(ErrorCode::kInternal, Stage::kEncode, "unknown exception"));
    }
  }

 private:
  std::atomic<bool> is_set_{false};
  Guarded<std::optional<Error>> error_;
};

// One NUMA node of a flow: threads and the buffers that they touch first.
// Threads: any.
struct FlowNode {
  explicit FlowNode(const NumaShare& share, bool callers) : threads(share, callers) {}
  NodeArena threads;
  Shelf<BatchWorker> workers;
  Shelf<EncodedBatch> batches;
  std::atomic<std::uint32_t> at_work{0};  // ranges handed over and not done
};

// One per node that gets a thread.
std::vector<std::unique_ptr<FlowNode>> open_nodes(const NumaTopology& topology,
                                                  std::uint32_t threads);

// Ranges that lie on one node; threads take one after the other.
// Threads: any for take(); filled by one before.
struct RangeQueue {
  std::vector<BatchRange> ranges;
  std::atomic<std::size_t> next{0};
  const BatchRange* take() {
    const std::size_t at = next.fetch_add(1);
    return at < ranges.size() ? &ranges[at] : nullptr;
  }
};

// body(n) on every thread of every node n; returns when all have.
void run_on_nodes(const std::vector<std::unique_ptr<FlowNode>>& nodes,
                  const std::function<void(std::size_t)>& body);

// Calls work(range) for what lies on node `own`, then for what others have left; ends with the
// first error.
Status drain_queues(std::vector<RangeQueue>& queues, std::size_t own,
                    const std::function<Status(const BatchRange&)>& work);

// The place in `nodes` of the one where the range's bytes lie, if there are several and that is
// known.
std::optional<std::size_t> home_of(const std::vector<std::unique_ptr<FlowNode>>& nodes,
                                   const ChunkSource& source, const BatchRange& range);

}  // namespace weft::codec
