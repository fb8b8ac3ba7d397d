// SPDX-License-Identifier: Apache-2.0
// projection_probe COMMANDS OUT: builds the projections that a file describes, gathers every chunk
// of every producer from shards on disk, and writes the checkpoint's tensors one behind the other,
// in schema order. random_layouts_test.py compares that with what numpy cut up.
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "codec/project/box_file.hpp"
#include "codec/project/derive.hpp"
#include "codec/project/layouts.hpp"
#include "codec/projection_cases.hpp"

namespace weft::codec::test {
namespace {

std::string read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

struct Producer {
  std::string directory;
  Projection projection;
};

class Probe {
 public:
  Status line(const std::string& text) {
    std::istringstream words(text);
    std::string verb;
    if (!(words >> verb)) return ok();
    if (verb == "tensor") return tensor(words);
    if (!schema_) schema_ = schema_of(shapes_);
    if (verb == "producer") return producer(words);
    return layout(verb, words);
  }

  Status write(const std::string& path) {
    finish_producer();
    std::vector<Projection> projections;
    for (const Producer& each : producers_) projections.push_back(each.projection);
    WEFT_TRY(const Lattice lattice, lattice_of(*schema_, projections));
    std::vector<std::vector<std::byte>> tensors;
    for (const Tensor& each : schema_->tensors()) tensors.emplace_back(each.bytes);
    for (std::uint32_t p = 0; p < producers_.size(); ++p) {
      WEFT_TRY_STATUS(gather(lattice, ProducerIndex{p}, tensors));
    }
    std::ofstream out(path, std::ios::binary);
    for (const auto& bytes : tensors) {
      out.write(reinterpret_cast<const char*>(bytes.data()),
                static_cast<std::streamsize>(bytes.size()));
    }
    return ok();
  }

 private:
  Status tensor(std::istringstream& words) {
    NamedShape shape;
    std::string dtype;
    words >> shape.name >> dtype;
    shape.dtype = *parse_dtype(dtype);
    for (std::uint64_t size = 0; words >> size;) shape.shape.push_back(size);
    shapes_.push_back(shape);
    return ok();
  }

  Status producer(std::istringstream& words) {
    finish_producer();
    Placement at;
    producers_.emplace_back();
    words >> producers_.back().directory >> at.tensor.rank >> at.tensor.size >> at.expert.rank >>
        at.expert.size >> at.replica.rank >> at.replica.size;
    builder_.emplace(*schema_, at);
    return ok();
  }

  void finish_producer() {
    if (producers_.empty()) return;
    append(builder_->projection());
  }
  void append(const Projection& more) {
    Projection& own = producers_.back().projection;
    const auto shift = static_cast<std::uint32_t>(own.sources.size());
    own.sources.insert(own.sources.end(), more.sources.begin(), more.sources.end());
    for (Box box : more.boxes) {
      box.source += shift;
      own.boxes.push_back(box);
    }
  }

  Status layout(const std::string& verb, std::istringstream& words) {
    std::vector<std::string> names;
    std::vector<std::uint64_t> numbers;
    for (std::string word; words >> word;) {
      if (word.find_first_not_of("0123456789") == std::string::npos) {
        numbers.push_back(std::stoull(word));
      } else {
        names.push_back(word);
      }
    }
    ProjectionBuilder& b = *builder_;
    const auto& n = names;
    if (verb == "replicated") return b.replicated(n[0], n[1]);
    if (verb == "column") return b.column_parallel(n[0], n[1]);
    if (verb == "row") return b.row_parallel(n[0], n[1]);
    if (verb == "gate_up") return b.gate_up(n[0], n[1], n[2]);
    if (verb == "grouped") return b.grouped_gate_up(n[0], n[1]);
    if (verb == "attention") {
      return b.attention(n[0], n[1], n[2], n[3], {numbers[0], numbers[1], numbers[2]});
    }
    const auto shape = [&] { return StackShape{numbers[0] != 0, numbers[1] != 0}; };
    if (verb == "stack") return b.expert_stack(n[0], n[1], shape());
    if (verb == "stack_gate_up") return b.expert_gate_up_stack(n[0], n[1], n[2], shape());
    if (verb == "concatenated") return b.concatenated(n[0], n[1], numbers);
    if (verb == "vocabulary") return b.vocabulary(n[0], n[1], numbers[0]);
    if (verb == "flat") return b.flat(n[0], numbers[0], n[1], numbers[1], numbers[2]);
    if (verb == "boxes") {
      WEFT_TRY(const Projection read, parse_boxes(read_whole(n[0]), *schema_));
      append(read);
      return ok();
    }
    if (verb == "derive") return derive(n[0], n[1], n[2], numbers[0]);
    return failure(ErrorCode::kConfig, Stage::kOpen, "no such layout: " + verb);
  }

  Status derive(const std::string& source, const std::string& target, const std::string& file,
                std::uint64_t element_count) {
    const std::string bytes = read_whole(file);
    std::vector<std::uint64_t> exported(bytes.size() / 8);
    std::memcpy(exported.data(), bytes.data(), bytes.size());
    Projection derived{{{source, element_count}}, {}};
    WEFT_TRY_STATUS(derive_boxes(*schema_, *schema_->find(target), 0, exported, derived));
    append(derived);
    return ok();
  }

  Status gather(const Lattice& lattice, ProducerIndex producer,
                std::vector<std::vector<std::byte>>& tensors) {
    const Producer& own = producers_[producer.value];
    WEFT_TRY(const Gather gather, Gather::open(*schema_, lattice, producer, own.projection));
    std::vector<std::string> files;
    for (const ShardTensor& source : own.projection.sources) {
      files.push_back(read_whole(own.directory + "/" + source.name));
    }
    std::vector<std::span<const std::byte>> sources;
    for (const std::string& file : files) sources.push_back(std::as_bytes(std::span(file)));
    const ChunkRange range = lattice.chunks_of(producer);
    for (std::uint32_t c = 0; c < range.count; ++c) {
      const ChunkIndex chunk{range.first.value + c};
      const ChunkPlace place = lattice.place(chunk);
      std::vector<std::byte> bytes(place.bytes());
      WEFT_TRY_STATUS(gather.read(chunk, sources, bytes));
      const std::size_t width = place.element_bytes();
      ChunkRuns runs(place);
      ChunkRun run;
      while (runs.next(run)) {
        std::memcpy(
            &tensors[place.tensor.value][static_cast<std::size_t>(run.first_element) * width],
            &bytes[run.offset * width], run.element_count * width);
      }
    }
    return ok();
  }

  std::vector<NamedShape> shapes_;
  std::optional<Schema> schema_;
  std::vector<Producer> producers_;
  std::optional<ProjectionBuilder> builder_;
};

int run(const std::string& commands, const std::string& out) {
  Probe probe;
  std::ifstream in(commands);
  for (std::string text; std::getline(in, text);) {
    if (const Status done = probe.line(text); !done) {
      std::cerr << text << ": " << done.error().message() << "\n";
      return 1;
    }
  }
  if (const Status written = probe.write(out); !written) {
    std::cerr << written.error().message() << "\n";
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace weft::codec::test

int main(int argc, char** argv) { return argc == 3 ? weft::codec::test::run(argv[1], argv[2]) : 2; }
