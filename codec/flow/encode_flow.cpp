// SPDX-License-Identifier: Apache-2.0
#include "codec/flow/encode_flow.hpp"

#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "codec/flow/encode_batch.hpp"
#include "weft/base/assert.hpp"
#include "weft/base/guarded.hpp"

namespace weft::codec {

namespace {

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

// More workers than the machine has cores would only wait for each other.
int arena_threads(std::uint32_t threads) {
  const auto cores = static_cast<std::uint32_t>(oneapi::tbb::info::default_concurrency());
  return static_cast<int>(std::clamp(threads, 1U, cores));
}

ChunkIndex end_of(const ChunkRange& range) { return {range.first.value + range.count}; }

// Threads: the graph's; members say for themselves.
struct EncodeGraph {
  const Lattice& lattice;
  ChunkSource& source;
  const EncodeFlowOptions& options;
  FramePacker packer;
  FirstError error;
  Shelf<BatchWorker> workers;
  Shelf<EncodedBatch> batches;
};

std::unique_ptr<EncodedBatch> encode_body(EncodeGraph& flow, const BatchRange& range) {
  auto batch = flow.batches.take();
  batch->number = range.number;
  batch->items.clear();
  flow.error.guard([&] {
    auto worker = flow.workers.take();
    auto status =
        encode_batch(flow.lattice, flow.source, flow.options.choice, range, *worker, *batch);
    flow.workers.give_back(std::move(worker));
    return status;
  });
  return batch;
}

void pack_body(EncodeGraph& flow, std::unique_ptr<EncodedBatch> batch) {
  flow.error.guard([&] { return flow.packer.pack(*batch); });
  flow.batches.give_back(std::move(batch));
}

// ranges -> (at most `in_flight`) -> encode -> in order -> pack
void run_graph(EncodeGraph& flow, const ChunkRange& chunks, std::uint32_t in_flight) {
  namespace tbb_flow = oneapi::tbb::flow;
  using BatchPointer = std::shared_ptr<std::unique_ptr<EncodedBatch>>;
  tbb_flow::graph graph;
  ChunkIndex next = chunks.first;
  std::size_t number = 0;
  tbb_flow::input_node<BatchRange> ranges(graph, [&](oneapi::tbb::flow_control& control) {
    if (next == end_of(chunks) || flow.error.is_set()) {
      control.stop();
      return BatchRange{};
    }
    const BatchRange range = next_batch(flow.lattice, number++, next, end_of(chunks));
    next.value += range.count;
    return range;
  });
  tbb_flow::limiter_node<BatchRange> limiter(graph, in_flight);
  tbb_flow::function_node<BatchRange, BatchPointer> encode(
      graph, tbb_flow::unlimited, [&flow](const BatchRange& range) {
        return std::make_shared<std::unique_ptr<EncodedBatch>>(encode_body(flow, range));
      });
  tbb_flow::sequencer_node<BatchPointer> in_order(
      graph, [](const BatchPointer& batch) { return (*batch)->number; });
  tbb_flow::function_node<BatchPointer, tbb_flow::continue_msg> pack(
      graph, tbb_flow::serial, [&flow](const BatchPointer& batch) {
        pack_body(flow, std::move(*batch));
        return tbb_flow::continue_msg();
      });
  tbb_flow::make_edge(ranges, limiter);
  tbb_flow::make_edge(limiter, encode);
  tbb_flow::make_edge(encode, in_order);
  tbb_flow::make_edge(in_order, pack);
  tbb_flow::make_edge(pack, limiter.decrementer());
  ranges.activate();
  graph.wait_for_all();
}

}  // namespace

Result<EncodeSummary> encode_flow(const Lattice& lattice, ProducerIndex producer,
                                  ChunkSource& source, SlotSource& slots, FrameSink& sink,
                                  const EncodeFlowOptions& options) {
  if (producer.value >= lattice.producer_count() || options.frames_target == 0) {
    return failure(ErrorCode::kConfig, Stage::kEncode,
                   "producer " + std::to_string(producer.value) + " of " +
                       std::to_string(lattice.producer_count()));
  }
  EncodeGraph flow{lattice, source, options, {lattice, producer, slots, sink, options}, {}, {}, {}};
  flow.error.guard([&] {
    oneapi::tbb::task_arena arena(arena_threads(options.threads));
    const auto in_flight = static_cast<std::uint32_t>(2 * arena_threads(options.threads));
    arena.execute([&] { run_graph(flow, lattice.chunks_of(producer), in_flight); });
    return ok();
  });
  WEFT_TRY_STATUS(flow.error.status());
  return flow.packer.finish();
}

Result<DigestTable> digest_flow(const Lattice& lattice, ChunkSource& source,
                                std::uint32_t threads) {
  DigestTable table(lattice.chunk_count());
  FirstError error;
  Shelf<BatchWorker> workers;
  std::vector<BatchRange> ranges;
  for (ChunkIndex next; next.value < lattice.chunk_count();) {
    ranges.push_back(next_batch(lattice, ranges.size(), next, {lattice.chunk_count()}));
    next.value += ranges.back().count;
  }
  error.guard([&] {
    oneapi::tbb::task_arena arena(arena_threads(threads));
    arena.execute([&] {
      oneapi::tbb::parallel_for(std::size_t{0}, ranges.size(), [&](std::size_t i) {
        error.guard([&] {
          auto worker = workers.take();
          auto status = digest_batch(lattice, source, ranges[i], *worker, table);
          workers.give_back(std::move(worker));
          return status;
        });
      });
    });
    return ok();
  });
  WEFT_TRY_STATUS(error.status());
  return table;
}

}  // namespace weft::codec
