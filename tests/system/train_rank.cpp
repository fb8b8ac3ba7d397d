// SPDX-License-Identifier: Apache-2.0
// train_rank COORDINATOR BASE PRODUCER BOXFILE...: one trainer rank that does what it is told, line
// by line: begin VERSION | put NAME FILE | cast NAME FILE | residual NAME FILE | commit | partial |
// abort. Each line is answered by "ok ..." or "error CODE TEXT". `residual` gives FP32 norms that
// are stored as weight minus one. WEFT_RANK_BASELINE_DIR: its baseline is on disk.
#include <bit>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "codec/project/cast.hpp"
#include "weft/publisher.hpp"

namespace weft {
namespace {

std::string read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// To stderr, for the log of the test.
// Threads: any.
class LoggingSink final : public EventSink {
 public:
  void report(Severity, std::string_view name, std::span<const EventField> fields) override {
    std::string text(name);
    for (const EventField& field : fields) text += " " + std::string(field.key) + "=" + field.value;
    std::cerr << text + "\n" << std::flush;
  }
  void count(std::string_view, std::uint64_t) override {}
};

class Rank {
 public:
  explicit Rank(std::unique_ptr<Publisher> publisher) : publisher_(std::move(publisher)) {}

  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    std::string name;
    std::string file;
    words >> verb >> name >> file;
    if (verb == "begin") return begin(Version{std::stoull(name)});
    if (refit_ == nullptr) return "error none no refit is open";
    if (verb == "commit" || verb == "partial") return commit(verb == "partial");
    if (verb == "abort") {
      refit_.reset();
      return "ok";
    }
    std::string bytes = read_whole(file);
    const auto view = std::as_bytes(std::span(bytes));
    Status done = ok();
    if (verb == "put") done = refit_->put(name, {ShardType::kSame, view});
    if (verb == "cast") done = refit_->put(name, {ShardType::kFloat32, view});
    if (verb == "residual") done = refit_->put_residual(name, plus_one(view), {{view}, true});
    // The caller may do as it likes with what it has put.
    bytes.assign(bytes.size(), '\x5A');
    return text_of(done);
  }

 private:
  static std::string text_of(const Status& status) {
    if (status) return "ok";
    std::string text =
        "error " + std::string(to_string(status.error().code)) + " " + status.error().message();
    for (char& each : text) each = each == '\n' ? ' ' : each;
    return text;
  }

  std::string begin(Version version) {
    refit_.reset();
    auto refit = publisher_->begin(version);
    if (!refit) return text_of(refit.error());
    refit_ = *std::move(refit);
    return "ok";
  }

  std::string commit(bool partial) {
    const auto report = refit_->commit(partial);
    if (!report) return text_of(report.error());
    refit_.reset();
    return "ok changed=" + std::to_string(report->changed_elements) +
           " total=" + std::to_string(report->total_elements) +
           " wire=" + std::to_string(report->wire_bytes) +
           " baseline=" + std::to_string(report->baseline_bytes) +
           " skipped=" + std::to_string(report->skipped_elements) +
           " pending=" + std::to_string(report->pending_bytes) +
           " version=" + std::to_string(publisher_->content().version.value);
  }

  static ResidualConverter plus_one(std::span<const std::byte> stored) {
    return [stored](std::uint64_t first, std::span<std::byte> into) -> Status {
      for (std::size_t i = 0; i < into.size() / 2; ++i) {
        float value = 0;
        std::memcpy(&value, &stored[(static_cast<std::size_t>(first) + i) * 4], 4);
        const std::uint16_t half = codec::to_bf16(std::bit_cast<std::uint32_t>(value + 1.0F));
        std::memcpy(&into[i * 2], &half, 2);
      }
      return ok();
    };
  }

  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<Refit> refit_;
};

int run(const std::vector<std::string>& arguments) {
  PublisherOptions options;
  options.coordinator = arguments[0];
  options.base_dir = arguments[1];
  if (const char* const directory = std::getenv("WEFT_RANK_BASELINE_DIR")) {
    options.baseline_dir = directory;
  }
  options.producer = static_cast<std::uint32_t>(std::stoul(arguments[2]));
  for (std::size_t i = 3; i < arguments.size(); ++i) {
    options.box_files.push_back(read_whole(arguments[i]));
  }
  LoggingSink events;
  auto publisher = Publisher::open(options, events);
  if (!publisher) {
    std::cout << "error " << to_string(publisher.error().code) << " " << publisher.error().message()
              << std::endl;
    return 1;
  }
  std::cout << "ok" << std::endl;
  Rank rank(*std::move(publisher));
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << rank.answer(line) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  return argc < 4 ? 2 : weft::run(std::vector<std::string>(argv + 1, argv + argc));
}
