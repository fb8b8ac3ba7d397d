// SPDX-License-Identifier: Apache-2.0
// The C++ side of python_calls.py: does what it is told, line by line, and answers with seconds.
//   bench_publisher_calls BASE_DIR NEW_DIR COORDINATOR
//   open | put VERSION: a refit of all tensors, aborted; the puts are timed | close
//   changes WEIGHTS_DIR FROM TO: also elements and bytes of values
#include <chrono>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "apply/store/checkpoint_dir.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/publisher.hpp"
#include "weft/weight_view.hpp"

namespace {

using namespace weft;  // NOLINT(google-build-using-namespace)

NullEventSink no_events;

double seconds_since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

struct Shard {
  std::string name;
  std::vector<std::byte> bytes;
};

std::vector<Shard> read_all(const std::string& path) {
  const auto checkpoint = *apply::CheckpointDir::open_path(
      path, apply::Access::kRead, {apply::Engine::kPosix, apply::Durability::kProcess}, no_events);
  std::vector<Shard> shards;
  for (const codec::Tensor& tensor : checkpoint.schema().tensors()) {
    shards.push_back({tensor.name, std::vector<std::byte>(tensor.bytes)});
    static_cast<void>(
        checkpoint.file(tensor.file_index).read(tensor.file_offset, shards.back().bytes));
  }
  return shards;
}

std::string put(Publisher& publisher, const std::vector<Shard>& shards, std::uint64_t version) {
  auto refit = publisher.begin(Version{version});
  if (!refit) return "error " + refit.error().message();
  const auto begun = std::chrono::steady_clock::now();
  for (const Shard& shard : shards) {
    const Status done = (*refit)->put(shard.name, {ShardType::kSame, shard.bytes});
    if (!done) return "error " + done.error().message();
  }
  const double seconds = seconds_since(begun);
  (*refit)->abort();
  return std::to_string(seconds);
}

std::string changes(const std::string& weights, Version from, Version to) {
  auto view = WeightView::open(weights);
  if (!view) return "error " + view.error().message();
  std::uint64_t bytes = 0;
  const auto begun = std::chrono::steady_clock::now();
  const auto summary =
      view->changes(from, to, [&](const TensorChange& change) { bytes += change.values.size(); });
  if (!summary) return "error " + summary.error().message();
  if (summary->needs_full) return "error " + *summary->needs_full;
  return std::to_string(seconds_since(begun)) + " " + std::to_string(summary->changed_elements) +
         " " + std::to_string(bytes);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::cerr << "usage: bench_publisher_calls BASE_DIR NEW_DIR COORDINATOR\n";
    return 2;
  }
  const std::vector<Shard> shards = read_all(arguments[2]);
  PublisherOptions options;
  options.base_dir = arguments[1];
  options.coordinator = arguments[3];
  std::unique_ptr<Publisher> publisher;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    std::string weights;
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    words >> verb;
    if (verb == "open") {
      auto opened = Publisher::open(options, no_events);
      std::cout << (opened ? "0" : "error " + opened.error().message()) << std::endl;
      if (opened) publisher = *std::move(opened);
    } else if (verb == "put" && publisher && words >> to) {
      std::cout << put(*publisher, shards, to) << std::endl;
    } else if (verb == "close") {
      publisher.reset();
      std::cout << "0" << std::endl;
    } else if (verb == "changes" && words >> weights >> from >> to) {
      std::cout << changes(weights, Version{from}, Version{to}) << std::endl;
    } else {
      std::cout << "error " << line << std::endl;
    }
  }
  return 0;
}
