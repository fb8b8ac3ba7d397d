// SPDX-License-Identifier: Apache-2.0
#include "codec/flow/encode_flow.hpp"

#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/flow/encode_batch.hpp"
#include "codec/flow/flow_node.hpp"

namespace weft::codec {

namespace {

ChunkIndex end_of(const ChunkRange& range) { return {range.first.value + range.count}; }

// Where a range is worked on: at its bytes, or at the node with the least to do for its threads.
FlowNode& node_for(const std::vector<std::unique_ptr<FlowNode>>& nodes, const ChunkSource& source,
                   const BatchRange& range) {
  if (const auto home = home_of(nodes, source, range)) return *nodes[*home];
  const auto load = [](const std::unique_ptr<FlowNode>& node) {
    return static_cast<double>(node->at_work.load()) / node->threads.share().threads;
  };
  return **std::min_element(nodes.begin(), nodes.end(), [&](const auto& one, const auto& other) {
    return load(one) < load(other);
  });
}

// A batch goes back to the node that has filled it.
// Threads: one at a time.
struct BatchTicket {
  std::unique_ptr<EncodedBatch> batch;
  FlowNode* node = nullptr;
};

// Threads: the graph's; members say for themselves.
struct EncodeGraph {
  const Lattice& lattice;
  ChunkSource& source;
  const EncodeFlowOptions& options;
  FramePacker packer;
  FirstError error;
  std::vector<std::unique_ptr<FlowNode>> nodes;
};

BatchTicket encode_body(EncodeGraph& flow, const BatchRange& range, FlowNode& node) {
  BatchTicket ticket{node.batches.take(), &node};
  ticket.batch->number = range.number;
  ticket.batch->items.clear();
  flow.error.guard([&] {
    auto worker = node.workers.take();
    auto status =
        encode_batch(flow.lattice, flow.source, flow.options.choice, range, *worker, *ticket.batch);
    node.workers.give_back(std::move(worker));
    return status;
  });
  return ticket;
}

void pack_body(EncodeGraph& flow, BatchTicket ticket) {
  flow.error.guard([&] { return flow.packer.pack(*ticket.batch); });
  ticket.node->batches.give_back(std::move(ticket.batch));
}

namespace tbb_flow = oneapi::tbb::flow;
using TicketPointer = std::shared_ptr<BatchTicket>;
using RemoteNode = tbb_flow::async_node<BatchRange, TicketPointer>;

// The arena's own threads do the work.
auto make_encoder(tbb_flow::graph& graph, EncodeGraph& flow, FlowNode& only) {
  return tbb_flow::function_node<BatchRange, TicketPointer>(
      graph, tbb_flow::unlimited, [&flow, &only](const BatchRange& range) {
        return std::make_shared<BatchTicket>(encode_body(flow, range, only));
      });
}

// The graph hands each range to the threads of a node and takes the batch back from them.
RemoteNode make_remote_encoder(tbb_flow::graph& graph, EncodeGraph& flow) {
  return RemoteNode(graph, tbb_flow::unlimited,
                    [&flow](const BatchRange& range, RemoteNode::gateway_type& gate) {
                      FlowNode& node = node_for(flow.nodes, flow.source, range);
                      ++node.at_work;
                      gate.reserve_wait();
                      node.threads.arena().enqueue([&flow, &node, &gate, range] {
                        gate.try_put(std::make_shared<BatchTicket>(encode_body(flow, range, node)));
                        --node.at_work;
                        gate.release_wait();
                      });
                    });
}

// ranges -> (at most `in_flight`) -> encode -> in order -> pack
template <typename MakeEncoder>
void run_graph(EncodeGraph& flow, const ChunkRange& chunks, std::uint32_t in_flight,
               MakeEncoder&& make_encoder_of) {
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
  auto encode = make_encoder_of(graph);
  tbb_flow::sequencer_node<TicketPointer> in_order(
      graph, [](const TicketPointer& ticket) { return ticket->batch->number; });
  tbb_flow::function_node<TicketPointer, tbb_flow::continue_msg> pack(
      graph, tbb_flow::serial, [&flow](const TicketPointer& ticket) {
        pack_body(flow, std::move(*ticket));
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

std::uint32_t thread_count(const std::vector<std::unique_ptr<FlowNode>>& nodes) {
  std::uint32_t count = 0;
  for (const auto& node : nodes) count += node->threads.share().threads;
  return count;
}

void run_encode(EncodeGraph& flow, const ChunkRange& chunks) {
  const std::uint32_t in_flight = 2 * thread_count(flow.nodes);
  FlowNode& first = *flow.nodes.front();
  if (flow.nodes.size() == 1) {
    first.threads.arena().execute([&] {
      run_graph(flow, chunks, in_flight,
                [&](tbb_flow::graph& graph) { return make_encoder(graph, flow, first); });
    });
    return;
  }
  // The graph itself, and packing, take one more thread, on the first node.
  NumaShare packing = first.threads.share();
  packing.threads = 1;
  NodeArena home(packing, true);
  home.arena().execute([&] {
    run_graph(flow, chunks, in_flight,
              [&](tbb_flow::graph& graph) { return make_remote_encoder(graph, flow); });
  });
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
  EncodeGraph flow{lattice, source, options, {lattice, producer, slots, sink, options}, {}, {}};
  flow.error.guard([&] {
    flow.nodes =
        open_nodes(options.topology != nullptr ? *options.topology : NumaTopology::of_machine(),
                   options.threads);
    run_encode(flow, lattice.chunks_of(producer));
    return ok();
  });
  WEFT_TRY_STATUS(flow.error.status());
  return flow.packer.finish();
}

}  // namespace weft::codec
