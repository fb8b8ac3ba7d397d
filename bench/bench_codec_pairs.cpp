// SPDX-License-Identifier: Apache-2.0
// weft's codec and the methods of its peers on one pair of checkpoints, in one run, beside a copy
// and a bare compare of the same memory. Every method is checked bit by bit before it is timed.
// Rates are bytes of one checkpoint per second: of thread CPU time, but wall time for flow_*.
//   bench_codec_pairs OLD NEW [Google Benchmark's own options]
#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/memory_pair.hpp"
#include "bench/peers/nemo_rl.hpp"
#include "bench/peers/pulse.hpp"
#include "bench/peers/slime.hpp"
#include "codec/decode/decode_chunk.hpp"
#include "codec/scan/conditional_bound.hpp"
#include "transport/buffer/slab_pool.hpp"

namespace weft::bench {
namespace {

std::unique_ptr<MemoryPair> the_pair;  // loaded once in main

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(the_pair->bytes()));
}

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "bench_codec_pairs: %s\n", why.c_str());
  std::exit(1);
}

void bench_memcpy(benchmark::State& state) {
  auto live = the_pair->copy_of_old();
  for (auto _ : state) {
    for (std::size_t t = 0; t < live.size(); ++t) {
      std::memcpy(live[t].data(), the_pair->tensors()[t].new_bytes.data(), live[t].size());
    }
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

// Does anything differ? Reads both streams to the end, keeps one bit.
__attribute__((target("avx2"))) bool differs(const PeerTensor& tensor) {
  const auto* before = reinterpret_cast<const char*>(tensor.old_bytes.data());
  const auto* after = reinterpret_cast<const char*>(tensor.new_bytes.data());
  __m256i any = _mm256_setzero_si256();
  for (std::size_t at = 0; at + 64 <= tensor.old_bytes.size(); at += 64) {
    for (std::size_t half = at; half < at + 64; half += 32) {
      const auto left = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(before + half));
      const auto right = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(after + half));
      any = _mm256_or_si256(any, _mm256_xor_si256(left, right));
    }
  }
  return _mm256_testz_si256(any, any) == 0;
}

void bench_compare(benchmark::State& state) {
  for (auto _ : state) {
    for (const PeerTensor& tensor : the_pair->tensors()) {
      benchmark::DoNotOptimize(differs(tensor));
    }
  }
  count_bytes(state);
}

struct Coded {
  wire::IndexEntry entry;
  std::vector<std::byte> payload;
};

// What one pass over all chunks sends, index entries included.
std::uint64_t encode_pass(const codec::EncodeChoice& choice, codec::EncodeWorkspace& workspace,
                          std::vector<Coded>* keep) {
  std::uint64_t bytes = 0;
  for (std::size_t c = 0; c < the_pair->chunks().size(); ++c) {
    const auto coded = codec::encode_chunk(the_pair->chunks()[c], choice, workspace);
    if (!coded) give_up(coded.error().message());
    if (coded->type != wire::ChunkType::kSame) {
      bytes += coded->payload.size() + wire::kIndexEntryBytes;
    }
    if (keep == nullptr) continue;
    (*keep)[c].entry = {{static_cast<std::uint32_t>(c)},
                        coded->type,
                        static_cast<std::uint32_t>(coded->payload.size()),
                        coded->changed_count,
                        coded->new_digest};
    (*keep)[c].payload.assign(coded->payload.begin(), coded->payload.end());
  }
  return bytes;
}

std::vector<Coded> encode_all(const codec::EncodeChoice& choice) {
  std::vector<Coded> all(the_pair->chunks().size());
  codec::EncodeWorkspace workspace;
  encode_pass(choice, workspace, &all);
  return all;
}

void decode_one(const Coded& coded, const codec::ChunkInput& chunk, bool verify,
                const codec::KernelSet* kernels, codec::DecodeWorkspace& workspace,
                std::span<std::byte> scratch) {
  const auto status = codec::decode_chunk(
      {coded.entry, coded.payload, chunk.old_bytes, chunk.format, std::nullopt, verify, kernels},
      workspace, scratch.first(chunk.old_bytes.size()));
  if (!status) give_up(status.error().message());
}

void bench_encode(benchmark::State& state, const codec::EncodeChoice& choice) {
  codec::EncodeWorkspace workspace;
  std::uint64_t bytes = 0;
  for (auto _ : state) bytes = encode_pass(choice, workspace, nullptr);
  state.counters["sent_bytes"] = static_cast<double>(bytes);
  count_bytes(state);
}

void bench_decode(benchmark::State& state, const codec::EncodeChoice& choice, bool verify) {
  const auto all = encode_all(choice);
  codec::DecodeWorkspace workspace;
  std::vector<std::byte> scratch(limits::kChunkBytesMax);
  for (auto _ : state) {
    for (std::size_t c = 0; c < all.size(); ++c) {
      if (all[c].entry.type == wire::ChunkType::kSame) continue;
      decode_one(all[c], the_pair->chunks()[c], verify, choice.kernel_set, workspace, scratch);
    }
  }
  count_bytes(state);
}

// Nothing changed: the old values against themselves.
void bench_untouched(benchmark::State& state) {
  codec::EncodeWorkspace workspace;
  codec::EncodeChoice choice;
  choice.with_hash = false;
  // Old and new lie in different memory, as they do in a trainer.
  const auto copy = the_pair->copy_of_old();
  std::vector<codec::ChunkInput> chunks;
  for (std::uint32_t c = 0; c < the_pair->chunks().size(); ++c) {
    const codec::ChunkPlace place = the_pair->lattice().place({c});
    codec::ChunkInput chunk = the_pair->chunks()[c];
    chunk.new_bytes =
        std::span(copy[place.tensor.value]).subspan(2 * place.first_element, place.bytes());
    chunks.push_back(chunk);
  }
  for (auto _ : state) {
    for (const codec::ChunkInput& chunk : chunks) {
      benchmark::DoNotOptimize(codec::encode_chunk(chunk, choice, workspace));
    }
  }
  count_bytes(state);
}

// Threads: as FrameSink.
class DroppingSink final : public codec::FrameSink {
 public:
  Status take(SharedSlot, const wire::FrameHeader&) override { return ok(); }
};

// The whole producer: read, hash, encode, pack into frames.
void bench_flow(benchmark::State& state, std::uint32_t threads) {
  NullEventSink events;
  transport::SlabOptions slab;
  slab.slot_count = 16;
  const auto slots = transport::SlabPool::open(slab, events);
  if (!slots) give_up(slots.error().message());
  codec::EncodeFlowOptions options;
  options.threads = threads;
  for (auto _ : state) {
    DroppingSink sink;
    const auto summary =
        codec::encode_flow(the_pair->lattice(), {0}, *the_pair, **slots, sink, options);
    if (!summary) give_up(summary.error().message());
  }
  count_bytes(state);
}

std::vector<std::span<std::byte>> spans_of(std::vector<std::vector<std::byte>>& live) {
  return {live.begin(), live.end()};
}

template <typename Peer>
void bench_peer_encode(benchmark::State& state) {
  Peer peer;
  std::uint64_t bytes = 0;
  for (auto _ : state) bytes = peer.encode(the_pair->tensors());
  state.counters["sent_bytes"] = static_cast<double>(bytes);
  count_bytes(state);
}

// In place, again and again: a second application takes XORs back and repeats words.
template <typename Peer>
void bench_peer_decode(benchmark::State& state) {
  Peer peer;
  peer.encode(the_pair->tensors());
  auto live = the_pair->copy_of_old();
  const auto spans = spans_of(live);
  for (auto _ : state) peer.decode(spans);
  count_bytes(state);
}

template <typename Peer>
void check_peer() {
  Peer peer;
  peer.encode(the_pair->tensors());
  auto live = the_pair->copy_of_old();
  peer.decode(spans_of(live));
  for (std::size_t t = 0; t < live.size(); ++t) {
    if (!std::ranges::equal(live[t], the_pair->tensors()[t].new_bytes)) {
      give_up(std::string(Peer::kName) + " does not give back tensor " + std::to_string(t));
    }
  }
}

void check_weft(const codec::EncodeChoice& choice) {
  const auto all = encode_all(choice);
  codec::DecodeWorkspace workspace;
  std::vector<std::byte> scratch(limits::kChunkBytesMax);
  for (std::size_t c = 0; c < all.size(); ++c) {
    const codec::ChunkInput& chunk = the_pair->chunks()[c];
    std::span<const std::byte> result = chunk.old_bytes;
    if (all[c].entry.type != wire::ChunkType::kSame) {
      decode_one(all[c], chunk, true, nullptr, workspace, scratch);
      result = std::span(scratch).first(chunk.new_bytes.size());
    }
    if (!std::ranges::equal(result, chunk.new_bytes)) {
      give_up("chunk " + std::to_string(c) + " is not what was encoded");
    }
  }
}

template <typename Peer>
void add_peer() {
  check_peer<Peer>();
  const std::string name = Peer::kName;
  benchmark::RegisterBenchmark((name + "_encode").c_str(), bench_peer_encode<Peer>);
  benchmark::RegisterBenchmark((name + "_decode").c_str(), bench_peer_decode<Peer>);
}

void add_weft() {
  codec::EncodeChoice compact;
  codec::EncodeChoice bare;
  bare.with_hash = false;
  codec::EncodeChoice fast;
  fast.profile = codec::Profile::kFast;
  check_weft(compact);
  check_weft(fast);
  const auto add = [](const std::string& name, auto run) {
    return benchmark::RegisterBenchmark(name.c_str(), run);
  };
  add("weft_encode", [=](benchmark::State& s) { bench_encode(s, compact); });
  add("weft_encode_unhashed", [=](benchmark::State& s) { bench_encode(s, bare); });
  add("weft_decode", [=](benchmark::State& s) { bench_decode(s, compact, true); });
  add("weft_decode_unverified", [=](benchmark::State& s) { bench_decode(s, compact, false); });
  add("weft_untouched", bench_untouched);
  add("weft_fast_encode", [=](benchmark::State& s) { bench_encode(s, fast); });
  add("weft_fast_decode", [=](benchmark::State& s) { bench_decode(s, fast, true); });
  add("weft_fast_decode_unverified", [=](benchmark::State& s) { bench_decode(s, fast, false); });
  for (const codec::KernelSet* set : codec::available_kernels()) {
    if (set->level == codec::KernelLevel::kScalar) continue;
    codec::EncodeChoice choice = bare;
    choice.kernel_set = set;
    const std::string name(set->name);
    add("weft_encode_" + name, [=](benchmark::State& s) { bench_encode(s, choice); });
    choice.with_hash = true;
    add("weft_decode_" + name, [=](benchmark::State& s) { bench_decode(s, choice, true); });
  }
  add("flow_1", [](benchmark::State& s) { bench_flow(s, 1); })->UseRealTime();
  add("flow_2", [](benchmark::State& s) { bench_flow(s, 2); })->UseRealTime();
}

void describe() {
  std::uint64_t changed = 0;
  double bound_bits = 0;
  for (std::size_t t = 0; t < the_pair->tensors().size(); ++t) {
    const PeerTensor& tensor = the_pair->tensors()[t];
    codec::ConditionalBound bound(codec::element_format(codec::DType::kBF16));
    bound.add(tensor.old_bytes, tensor.new_bytes);
    bound_bits += bound.bits();
    changed += bound.changed_count();
  }
  benchmark::AddCustomContext("model_bytes", std::to_string(the_pair->bytes()));
  benchmark::AddCustomContext("changed_elements", std::to_string(changed));
  benchmark::AddCustomContext("bound_bytes", std::to_string(bound_bits / 8));
  benchmark::AddCustomContext("kernels", std::string(codec::kernels().name));
}

}  // namespace
}  // namespace weft::bench

int main(int count, char** arguments) {
  using namespace weft::bench;
  benchmark::Initialize(&count, arguments);
  if (count != 3) give_up("usage: bench_codec_pairs OLD NEW [options]");
  auto pair = MemoryPair::load(arguments[1], arguments[2]);
  if (!pair) give_up(pair.error().message());
  the_pair = std::make_unique<MemoryPair>(*std::move(pair));
  describe();
  benchmark::RegisterBenchmark("memcpy", bench_memcpy);
  benchmark::RegisterBenchmark("compare", bench_compare);
  add_weft();
  add_peer<NemoRl>();
  add_peer<Slime>();
  add_peer<Pulse>();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
