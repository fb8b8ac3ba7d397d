// SPDX-License-Identifier: Apache-2.0
#include "codec/flow/part_encoder.hpp"

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "codec/flow/encode_batch.hpp"
#include "codec/flow/flow_node.hpp"
#include "weft/base/assert.hpp"

namespace weft::codec {

struct PartEncoder::Body {
  const Lattice& lattice;
  const ProducerIndex producer;
  const EncodeFlowOptions& options;
  FramePacker packer;
  oneapi::tbb::task_arena arena;
  Shelf<BatchWorker> workers;
  std::vector<std::unique_ptr<FlowNode>> nodes;        // empty: all threads are alike
  std::vector<std::unique_ptr<EncodedBatch>> batches;  // of one window
  std::vector<bool> encoded;                           // per chunk of the producer
};

namespace {

std::vector<BatchRange> ranges_of(const Lattice& lattice, std::span<const ChunkIndex> chunks) {
  std::vector<BatchRange> ranges;
  for (std::size_t i = 0; i < chunks.size();) {
    std::size_t end = i + 1;
    while (end < chunks.size() && chunks[end].value == chunks[end - 1].value + 1) ++end;
    while (i < end) {
      ranges.push_back(next_batch(lattice, ranges.size(), chunks[i], {chunks[end - 1].value + 1}));
      i += ranges.back().count;
    }
  }
  return ranges;
}

const NumaTopology& topology_of(const EncodeFlowOptions& options) {
  return options.topology != nullptr ? *options.topology : NumaTopology::of_machine();
}

}  // namespace

// Each range to its place among the batches; on several nodes, by threads of the one where it lies.
Status PartEncoder::encode_window(std::span<const BatchRange> window, ChunkSource& source) {
  Body& body = *body_;
  FirstError error;
  const auto encode = [&](const BatchRange& range, Shelf<BatchWorker>& workers) {
    auto worker = workers.take();
    auto status = encode_batch(body.lattice, source, body.options.choice, range, *worker,
                               *body.batches[range.number - window.front().number]);
    workers.give_back(std::move(worker));
    return status;
  };
  const auto on_one_node = [&] {
    oneapi::tbb::parallel_for(std::size_t{0}, window.size(), [&](std::size_t i) {
      error.guard([&] { return encode(window[i], body.workers); });
    });
  };
  if (body.nodes.empty()) {
    error.guard([&] {
      body.arena.execute(on_one_node);
      return ok();
    });
    return error.status();
  }
  std::vector<RangeQueue> queues(body.nodes.size());
  for (const BatchRange& range : window) {
    const std::size_t in_turn = range.number % body.nodes.size();
    queues[home_of(body.nodes, source, range).value_or(in_turn)].ranges.push_back(range);
  }
  const auto on_node = [&](std::size_t own) {
    return drain_queues(queues, own, [&](const BatchRange& range) {
      return encode(range, body.nodes[own]->workers);
    });
  };
  error.guard([&] {
    run_on_nodes(body.nodes, [&](std::size_t own) { error.guard([&] { return on_node(own); }); });
    return ok();
  });
  return error.status();
}

PartEncoder::PartEncoder(const Lattice& lattice, ProducerIndex producer, SlotSource& slots,
                         FrameSink& sink, const EncodeFlowOptions& options)
    : body_(new Body{lattice,
                     producer,
                     options,
                     {lattice, producer, slots, sink, options},
                     oneapi::tbb::task_arena(static_cast<int>(std::max(1U, options.threads))),
                     {},
                     {},
                     {},
                     std::vector<bool>(lattice.chunks_of(producer).count)}) {
  const NumaTopology& topology = topology_of(options);
  if (topology.nodes.size() > 1) body_->nodes = open_nodes(topology, options.threads);
}

PartEncoder::~PartEncoder() = default;

// A window of batches is encoded at once, then packed in order: memory is bounded by the window.
Status PartEncoder::encode(std::span<const ChunkIndex> chunks, ChunkSource& source) {
  Body& body = *body_;
  const ChunkRange own = body.lattice.chunks_of(body.producer);
  for (const ChunkIndex chunk : chunks) {
    WEFT_ASSERT(own.contains(chunk) && !body.encoded[chunk.value - own.first.value]);
    body.encoded[chunk.value - own.first.value] = true;
  }
  const auto ranges = ranges_of(body.lattice, chunks);
  const std::size_t window = 2 * std::max<std::size_t>(1, body.options.threads);
  while (body.batches.size() < std::min(window, ranges.size())) {
    body.batches.push_back(std::make_unique<EncodedBatch>());
  }
  for (std::size_t begin = 0; begin < ranges.size(); begin += window) {
    const std::size_t count = std::min(window, ranges.size() - begin);
    WEFT_TRY_STATUS(encode_window(std::span(ranges).subspan(begin, count), source));
    for (std::size_t i = 0; i < count; ++i) WEFT_TRY_STATUS(body.packer.pack(*body.batches[i]));
  }
  return ok();
}

Result<EncodeSummary> PartEncoder::finish(const DigestTable& base) {
  Body& body = *body_;
  WEFT_TRY(EncodeSummary summary, body.packer.finish());
  const ChunkRange own = body.lattice.chunks_of(body.producer);
  for (std::uint32_t i = 0; i < own.count; ++i) {
    const ChunkIndex chunk{own.first.value + i};
    if (!body.encoded[i]) summary.table.set(chunk, base.at(chunk));
  }
  summary.seal.part = summary.table.part(body.lattice, body.producer);
  return summary;
}

}  // namespace weft::codec
