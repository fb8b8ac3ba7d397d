// SPDX-License-Identifier: Apache-2.0
// Speed and size of the chunk codec on a made model, one thread, against memcpy, a bare compare of
// two streams and the NeMo-RL method in the same run. Rates are bytes of one checkpoint per second
// of thread CPU time.
//   bench_codec_chunk [--mib=64] [--percent=3] [Google Benchmark's own options]
#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/checkpoint_model.hpp"
#include "bench/peers/nemo_rl.hpp"
#include "codec/decode/decode_chunk.hpp"
#include "codec/encode/encode_chunk.hpp"
#include "codec/flow/encode_flow.hpp"
#include "codec/project/lattice.hpp"
#include "codec/safetensors/schema.hpp"
#include "codec/scan/conditional_bound.hpp"
#include "weft/base/lease.hpp"
#include "weft/base/units.hpp"

namespace weft::bench {
namespace {

using codec::element_format;

const codec::ElementFormat kFormat = element_format(codec::DType::kBF16);
constexpr std::size_t kChunkBytes = limits::kChunkBytesMax;

struct Coded {
  wire::IndexEntry entry;
  std::vector<std::byte> payload;
};

// One tensor of the pair; chunks as the default lattice cuts them.
struct TensorPair {
  std::vector<std::byte> old_bytes;
  std::vector<std::byte> new_bytes;
  std::size_t chunk_count() const { return (old_bytes.size() + kChunkBytes - 1) / kChunkBytes; }
  static std::size_t chunk_size(std::size_t bytes, std::size_t chunk) {
    return std::min(kChunkBytes, bytes - chunk * kChunkBytes);
  }
  codec::ChunkInput chunk(std::size_t number) const {
    const std::size_t size = chunk_size(old_bytes.size(), number);
    return {std::span(old_bytes).subspan(number * kChunkBytes, size),
            std::span(new_bytes).subspan(number * kChunkBytes, size), kFormat};
  }
};

struct Pair {
  std::vector<TensorPair> tensors;
  std::uint64_t bytes = 0;
  std::uint64_t changed = 0;
};

void fill_row(const MadeTensor& made, std::uint32_t row, float rate, TensorPair& pair) {
  std::vector<float> weights(made.column_count);
  std::vector<float> updates(made.column_count);
  CheckpointModel::fill_weights(made, row, 0, weights);
  CheckpointModel::fill_updates(made, row, 0, 0, updates);
  const std::size_t start = std::size_t{row} * made.column_count * 2;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::uint16_t before = to_bfloat16(weights[i]);
    const std::uint16_t after = to_bfloat16(weights[i] - rate * updates[i]);
    std::memcpy(pair.old_bytes.data() + start + 2 * i, &before, 2);
    std::memcpy(pair.new_bytes.data() + start + 2 * i, &after, 2);
  }
}

Pair make_pair(std::uint64_t bytes, double percent) {
  const CheckpointModel model(bytes, 1);
  const double share = percent / 100;
  const float rate = model.calibrate(std::span(&share, 1)).front();
  Pair pair;
  for (const MadeTensor& made : model.tensors()) {
    TensorPair tensor;
    tensor.old_bytes.resize(made.element_count() * 2);
    tensor.new_bytes.resize(made.element_count() * 2);
    for (std::uint32_t row = 0; row < made.row_count; ++row) fill_row(made, row, rate, tensor);
    pair.bytes += tensor.old_bytes.size();
    pair.tensors.push_back(std::move(tensor));
  }
  return pair;
}

Pair the_pair;                        // made once in main
std::map<std::string, double> notes;  // sizes, for the table at the end

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(the_pair.bytes));
}

void bench_memcpy(benchmark::State& state) {
  std::vector<std::byte> to(kChunkBytes * 256);
  for (auto _ : state) {
    std::size_t at = 0;
    for (const TensorPair& tensor : the_pair.tensors) {
      if (at + tensor.old_bytes.size() > to.size()) at = 0;
      if (tensor.old_bytes.size() > to.size()) continue;
      std::memcpy(to.data() + at, tensor.old_bytes.data(), tensor.old_bytes.size());
      at += tensor.old_bytes.size();
      benchmark::ClobberMemory();
    }
  }
  count_bytes(state);
}

__attribute__((target("avx2"))) bool differs(const TensorPair& tensor) {
  __m256i any = _mm256_setzero_si256();
  std::size_t at = 0;
  for (; at + 64 <= tensor.old_bytes.size(); at += 64) {
    const auto load = [at](const std::vector<std::byte>& bytes, std::size_t more)
        __attribute__((target("avx2"))) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes.data() + at + more));
    };
    any = _mm256_or_si256(any,
                          _mm256_xor_si256(load(tensor.old_bytes, 0), load(tensor.new_bytes, 0)));
    any = _mm256_or_si256(any,
                          _mm256_xor_si256(load(tensor.old_bytes, 32), load(tensor.new_bytes, 32)));
  }
  return _mm256_testz_si256(any, any) == 0;
}

void bench_compare(benchmark::State& state) {
  for (auto _ : state) {
    for (const TensorPair& tensor : the_pair.tensors) benchmark::DoNotOptimize(differs(tensor));
  }
  count_bytes(state);
}

void bench_scan(benchmark::State& state, const codec::KernelSet* kernels) {
  std::vector<std::uint32_t> positions(limits::kChunkElementsMax + 64);
  for (auto _ : state) {
    for (const TensorPair& tensor : the_pair.tensors) {
      for (std::size_t c = 0; c < tensor.chunk_count(); ++c) {
        const codec::ChunkInput chunk = tensor.chunk(c);
        benchmark::DoNotOptimize(kernels->scan(
            chunk.old_bytes.data(), chunk.new_bytes.data(),
            static_cast<std::uint32_t>(chunk.old_bytes.size() / 2), 2, positions.data()));
      }
    }
  }
  count_bytes(state);
}

void bench_encode(benchmark::State& state, codec::EncodeChoice choice, const char* note) {
  codec::EncodeWorkspace workspace;
  std::uint64_t bytes = 0;
  std::uint64_t changed = 0;
  for (auto _ : state) {
    bytes = changed = 0;
    for (const TensorPair& tensor : the_pair.tensors) {
      for (std::size_t c = 0; c < tensor.chunk_count(); ++c) {
        const auto coded = codec::encode_chunk(tensor.chunk(c), choice, workspace);
        if (!coded) std::abort();
        if (coded->type == wire::ChunkType::kSame) continue;
        bytes += coded->payload.size() + wire::kIndexEntryBytes;
        changed += coded->changed_count;
      }
    }
  }
  notes[note] = static_cast<double>(bytes) / static_cast<double>(changed);
  count_bytes(state);
}

// An untouched model: the compare and the hash of what did not change.
void bench_untouched(benchmark::State& state) {
  codec::EncodeWorkspace workspace;
  codec::EncodeChoice choice;
  choice.with_hash = false;
  static std::vector<TensorPair> same;
  if (same.empty()) {
    for (const TensorPair& tensor : the_pair.tensors) {
      same.push_back({tensor.old_bytes, tensor.old_bytes});
    }
  }
  for (auto _ : state) {
    for (const TensorPair& tensor : same) {
      for (std::size_t c = 0; c < tensor.chunk_count(); ++c) {
        benchmark::DoNotOptimize(codec::encode_chunk(tensor.chunk(c), choice, workspace));
      }
    }
  }
  count_bytes(state);
}

std::vector<std::vector<Coded>> encode_all(const codec::EncodeChoice& choice) {
  codec::EncodeWorkspace workspace;
  std::vector<std::vector<Coded>> all;
  for (const TensorPair& tensor : the_pair.tensors) {
    std::vector<Coded>& coded = all.emplace_back(tensor.chunk_count());
    for (std::size_t c = 0; c < coded.size(); ++c) {
      const auto one = codec::encode_chunk(tensor.chunk(c), choice, workspace);
      if (!one) std::abort();
      coded[c].entry = {{0},
                        one->type,
                        static_cast<std::uint32_t>(one->payload.size()),
                        one->changed_count,
                        one->new_digest};
      coded[c].payload.assign(one->payload.begin(), one->payload.end());
    }
  }
  return all;
}

void bench_decode(benchmark::State& state, codec::EncodeChoice choice, bool verify,
                  const codec::KernelSet* kernels) {
  const auto all = encode_all(choice);
  codec::DecodeWorkspace workspace;
  std::vector<std::byte> scratch(kChunkBytes);
  for (auto _ : state) {
    for (std::size_t t = 0; t < all.size(); ++t) {
      for (std::size_t c = 0; c < all[t].size(); ++c) {
        const Coded& coded = all[t][c];
        if (coded.entry.type == wire::ChunkType::kSame) continue;
        const codec::ChunkInput chunk = the_pair.tensors[t].chunk(c);
        const auto status = codec::decode_chunk(
            {coded.entry, coded.payload, chunk.old_bytes, kFormat, std::nullopt, verify, kernels},
            workspace, std::span(scratch).first(chunk.old_bytes.size()));
        if (!status) std::abort();
      }
    }
  }
  count_bytes(state);
}

void bench_nemo_encode(benchmark::State& state) {
  NemoRl nemo;
  std::uint64_t bytes = 0;
  for (auto _ : state) {
    bytes = 0;
    for (const TensorPair& tensor : the_pair.tensors) {
      bytes += nemo.encode(tensor.old_bytes, tensor.new_bytes).size();
    }
  }
  notes["nemo"] = static_cast<double>(bytes) / static_cast<double>(the_pair.changed);
  count_bytes(state);
}

// In place: a second application takes the changes back.
void bench_nemo_decode(benchmark::State& state) {
  std::vector<NemoRl> peers(the_pair.tensors.size());
  std::vector<std::vector<std::byte>> live;
  for (std::size_t t = 0; t < peers.size(); ++t) {
    const TensorPair& tensor = the_pair.tensors[t];
    peers[t].encode(tensor.old_bytes, tensor.new_bytes);
    live.push_back(tensor.old_bytes);
  }
  for (auto _ : state) {
    for (std::size_t t = 0; t < peers.size(); ++t) peers[t].decode(live[t]);
  }
  count_bytes(state);
}

// The pair as a producer's checkpoint.
// Threads: any.
class PairSource final : public codec::ChunkSource {
 public:
  explicit PairSource(const codec::Lattice& lattice) : lattice_(lattice) {}
  Status read(ChunkIndex chunk, std::span<std::byte> old_bytes,
              std::span<std::byte> new_bytes) override {
    const codec::ChunkPlace place = lattice_.place(chunk);
    const TensorPair& tensor = the_pair.tensors[place.tensor.value];
    const std::size_t at = place.first_element * kFormat.element_bytes;
    std::memcpy(old_bytes.data(), tensor.old_bytes.data() + at, old_bytes.size());
    std::memcpy(new_bytes.data(), tensor.new_bytes.data() + at, new_bytes.size());
    return ok();
  }

 private:
  const codec::Lattice& lattice_;
};

// One slot, which is free again when a frame has been built in it.
// Threads: any; one lease at a time.
class OneSlot final : public SlotSource, public SlotOwner {
 public:
  OneSlot() {
    state_.owner = this;
    state_.memory = memory_.data();
    state_.slot_bytes = limits::kSlotBytes;
  }
  std::optional<Lease> try_acquire() override { return Lease(&state_); }
  Result<Lease> acquire(Duration) override { return Lease(&state_); }
  void give_back(SlotState&) override {}

 private:
  std::vector<std::byte> memory_ = std::vector<std::byte>(limits::kSlotBytes);
  SlotState state_;
};

// Threads: one at a time.
class NoSink final : public codec::FrameSink {
 public:
  Status take(SharedSlot, const wire::FrameHeader&) override { return ok(); }
};

codec::Lattice pair_lattice() {
  std::vector<codec::HeaderTensor> tensors;
  std::uint64_t at = 0;
  for (std::size_t t = 0; t < the_pair.tensors.size(); ++t) {
    const std::uint64_t bytes = the_pair.tensors[t].old_bytes.size();
    const std::string number = std::to_string(1'000'000 + t);  // in the order of the pair
    tensors.push_back({number, codec::DType::kBF16, {bytes / 2}, at, at + bytes});
    at += bytes;
  }
  std::vector<codec::FileInput> files{{"pair", at + 8, {8, tensors}}};
  auto schema = codec::build_schema(std::move(files), std::nullopt);
  if (!schema) std::abort();
  return *codec::Lattice::default_for(*schema);
}

// Scan, encode, hash and frame: what a producer does, on wall-clock time.
void bench_flow(benchmark::State& state, std::uint32_t threads) {
  const codec::Lattice lattice = pair_lattice();
  PairSource source(lattice);
  codec::EncodeFlowOptions options;
  options.threads = threads;
  for (auto _ : state) {
    OneSlot slot;
    NoSink sink;
    if (!codec::encode_flow(lattice, {0}, source, slot, sink, options)) std::abort();
  }
  count_bytes(state);
}

// Keeps the rates and prints their ratios behind the usual table.
class RatioReporter final : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      if (run.error_occurred || run.iterations == 0) continue;
      const auto rate = run.counters.find("bytes_per_second");
      const std::string name = run.run_name.function_name;
      if (rate != run.counters.end() &&
          (run.aggregate_name.empty() || run.aggregate_name == "median")) {
        rates_[name] = rate->second.value;
      }
    }
  }
  void Finalize() override {
    ConsoleReporter::Finalize();
    std::printf("\nchanged %.3f %%\n", 200.0 * static_cast<double>(the_pair.changed) /
                                           static_cast<double>(the_pair.bytes));
    for (const auto& [name, size] : notes) {
      std::printf("%-40s %.4f bytes per changed element\n", name.c_str(), size);
    }
    ratio("encode without hashes / compare", "encode_without_hash", "compare");
    ratio("encode with hashes / compare", "encode", "compare");
    ratio("untouched chunks / compare", "untouched", "compare");
    ratio("encode without hashes / NeMo-RL", "encode_without_hash", "nemo_encode");
    ratio("decode with verification / memcpy", "decode", "memcpy");
    ratio("decode without verification / memcpy", "decode_unverified", "memcpy");
    ratio("fast: decode unverified / NeMo-RL", "fast_decode_unverified", "nemo_decode");
    ratio("flow: two threads / one", "flow_2_threads", "flow_1_thread");
    ratio("encode: AVX2 / AVX-512", "encode_avx2", "encode_avx512");
    ratio("decode: AVX2 / AVX-512", "decode_avx2", "decode_avx512");
  }

 private:
  void ratio(const char* what, const std::string& name, const std::string& reference) {
    if (rates_.count(name) == 0 || rates_.count(reference) == 0) return;
    std::printf("%-40s %.3f\n", what, rates_[name] / rates_[reference]);
  }
  std::map<std::string, double> rates_;
};

void register_all() {
  codec::EncodeChoice compact;
  codec::EncodeChoice bare;
  bare.with_hash = false;
  codec::EncodeChoice fast;
  fast.profile = codec::Profile::kFast;
  const auto add = [](const std::string& name, auto run) {
    benchmark::RegisterBenchmark(name.c_str(), run)->Unit(benchmark::kMillisecond);
  };
  add("memcpy", bench_memcpy);
  add("compare", bench_compare);
  add("scan", [](benchmark::State& s) { bench_scan(s, &codec::kernels()); });
  add("encode", [=](benchmark::State& s) { bench_encode(s, compact, "compact"); });
  add("encode_without_hash", [=](benchmark::State& s) { bench_encode(s, bare, "compact"); });
  add("untouched", bench_untouched);
  add("decode", [=](benchmark::State& s) { bench_decode(s, compact, true, nullptr); });
  add("decode_unverified", [=](benchmark::State& s) { bench_decode(s, compact, false, nullptr); });
  add("fast_encode", [=](benchmark::State& s) { bench_encode(s, fast, "fast"); });
  add("fast_decode_unverified",
      [=](benchmark::State& s) { bench_decode(s, fast, false, nullptr); });
  add("nemo_encode", bench_nemo_encode);
  add("nemo_decode", bench_nemo_decode);
  for (const std::uint32_t threads : {1U, 2U}) {
    const std::string name = threads == 1 ? "flow_1_thread" : "flow_2_threads";
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& s) { bench_flow(s, threads); })
        ->Unit(benchmark::kMillisecond)
        ->MeasureProcessCPUTime()
        ->UseRealTime();
  }
  for (const codec::KernelSet* set : codec::available_kernels()) {
    codec::EncodeChoice choice;
    choice.kernel_set = set;
    const std::string name(set->name);
    add("encode_" + name, [=](benchmark::State& s) { bench_encode(s, choice, "compact"); });
    add("decode_" + name, [=](benchmark::State& s) { bench_decode(s, compact, true, set); });
  }
}

double option(int& count, char** arguments, std::string_view name, double otherwise) {
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (!argument.starts_with(name)) continue;
    const double value = std::atof(arguments[i] + name.size());
    std::copy(arguments + i + 1, arguments + count, arguments + i);
    --count;
    return value;
  }
  return otherwise;
}

}  // namespace
}  // namespace weft::bench

int main(int count, char** arguments) {
  using namespace weft;
  const double mib = bench::option(count, arguments, "--mib=", 64);
  const double percent = bench::option(count, arguments, "--percent=", 3);
  bench::the_pair = bench::make_pair(static_cast<std::uint64_t>(mib * double{kMiB}), percent);
  double bound_bits = 0;
  for (const bench::TensorPair& tensor : bench::the_pair.tensors) {
    codec::ConditionalBound bound(bench::kFormat);
    bound.add(tensor.old_bytes, tensor.new_bytes);
    bound_bits += bound.bits();
    bench::the_pair.changed += bound.changed_count();
  }
  bench::notes["conditional bound"] = bound_bits / 8 / static_cast<double>(bench::the_pair.changed);
  benchmark::Initialize(&count, arguments);
  bench::register_all();
  bench::RatioReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return 0;
}
