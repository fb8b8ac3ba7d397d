// SPDX-License-Identifier: Apache-2.0
// Writes the seeds in tests/fuzz/corpus: make_seeds DIRECTORY. Same output every time; run it again
// when a format changes.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "codec/chunk_cases.hpp"
#include "codec/encode/encode_chunk.hpp"
#include "codec/frame/frame_builder.hpp"
#include "codec/project/lattice.hpp"
#include "fuzz/fuzz_schema.hpp"
#include "support/memory_slots.hpp"

namespace {

using namespace weft;
using Bytes = std::vector<std::byte>;

// Threads: one at a time.
class SeedFolder {
 public:
  SeedFolder(const std::filesystem::path& corpus, const char* target) : folder_(corpus / target) {
    std::filesystem::create_directories(folder_);
  }
  void add(const Bytes& bytes) {
    std::ofstream out(folder_ / ("seed-" + std::to_string(count_++)), std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  }
  void add(const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    add(Bytes(bytes.begin(), bytes.end()));
  }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

// The order of kTypes in fuzz_chunk.cpp and fuzz_round_trip.cpp.
constexpr codec::DType kTypes[] = {
    codec::DType::kBF16, codec::DType::kF8E4M3, codec::DType::kF8E5M2, codec::DType::kF16,
    codec::DType::kU8,   codec::DType::kF32,    codec::DType::kF64,    codec::DType::kI16};

void make_header_seeds(const std::filesystem::path& corpus) {
  SeedFolder files(corpus, "fuzz_header");
  const auto file = [&](const std::string& header, std::size_t body_bytes) {
    std::string text(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(text.data(), &length, 8);
    files.add(text + header + std::string(body_bytes, 'x'));
  };
  file("{}", 0);
  file(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}})",
      12);
  file(R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]},"z":{"dtype":"I64","shape":[],)"
       R"("data_offsets":[2,10],"x":[1,{"y":[null,true,-1.5e3,"\u0061"]}]}})",
       10);
  SeedFolder indices(corpus, "fuzz_index");
  indices.add(std::string(
      R"({"metadata":{"total_size":12},"weight_map":{"a":"model-00001-of-00002.safetensors"}})"));
  indices.add(std::string(R"({"weight_map":{"a":"../x","b":"c"}})"));
}

void make_frame_seeds(const std::filesystem::path& corpus) {
  SeedFolder frames(corpus, "fuzz_frame");
  for (const std::uint32_t count : {1U, 3U}) {
    test_support::MemorySlots slots(1);
    codec::FrameBuilder builder(*slots.try_acquire(), {}, limits::kFrameBytesMax);
    const Bytes payload(20, std::byte{0x5A});
    for (std::uint32_t i = 0; i < count; ++i) {
      builder.add({{i * 3}, wire::ChunkType::kSparse, 20, 2, 7}, payload);
    }
    const auto [slot, header] = std::move(builder).close({0});
    frames.add(Bytes(slot.frame().begin(), slot.frame().end()));
  }
}

void make_chunk_seeds(const std::filesystem::path& corpus) {
  SeedFolder chunks(corpus, "fuzz_chunk");
  SeedFolder pairs(corpus, "fuzz_round_trip");
  codec::EncodeWorkspace workspace;
  for (std::uint8_t f = 0; f < 8; ++f) {
    for (std::uint8_t type = 1; type < wire::kChunkTypeCount; ++type) {
      const std::uint32_t element_count = 150;
      const auto pair = codec::testing::random_changes(kTypes[f], element_count, 0.2, f + 1U);
      codec::EncodeChoice choice;
      choice.force = static_cast<wire::ChunkType>(type);
      const auto encoded =
          codec::encode_chunk({pair.old_bytes, pair.new_bytes, pair.format}, choice, workspace);
      if (!encoded) continue;
      Bytes seed{static_cast<std::byte>(encoded->type),
                 static_cast<std::byte>(f),
                 static_cast<std::byte>(element_count - 1),
                 std::byte{0},
                 static_cast<std::byte>(encoded->changed_count),
                 std::byte{0},
                 std::byte{0},
                 static_cast<std::byte>(type)};
      seed.insert(seed.end(), encoded->payload.begin(), encoded->payload.end());
      chunks.add(seed);
      if (type > 2) continue;
      Bytes both{static_cast<std::byte>(f), static_cast<std::byte>(type)};
      both.insert(both.end(), pair.old_bytes.begin(), pair.old_bytes.end());
      both.insert(both.end(), pair.new_bytes.begin(), pair.new_bytes.end());
      pairs.add(both);
    }
  }
}

// Of the default lattice, of runs for two producers, and of columns.
void make_lattice_seeds(const std::filesystem::path& corpus) {
  SeedFolder lattices(corpus, "fuzz_lattice");
  const codec::Schema& schema = fuzz::fuzz_schema();
  const auto whole = *codec::Lattice::default_for(schema);
  const auto add = [&](std::vector<codec::Tile> tiles, std::uint32_t producer_count) {
    const auto lattice = codec::Lattice::from_tiles(schema, std::move(tiles), producer_count);
    if (!lattice) std::abort();
    const Bytes encoded = lattice->encode();
    Bytes seed{std::byte{1}};
    seed.insert(seed.end(), encoded.begin(), encoded.end());
    lattices.add(seed);
  };
  add(whole.tiles(), 1);
  std::vector<codec::Tile> runs = whole.tiles();
  runs[0].element_count = 5;
  runs.push_back({runs[0].tensor, {1}, 5, 19, {}});
  add(runs, 2);
  std::vector<codec::Tile> columns = whole.tiles();
  columns[0] = {columns[0].tensor, {0}, 0, 6, {{{6, 4}}}};
  columns.push_back({columns[0].tensor, {1}, 1, 18, {{{6, 4}}}});
  add(columns, 2);
}

void make_box_seeds(const std::filesystem::path& corpus) {
  SeedFolder boxes(corpus, "fuzz_boxes");
  boxes.add(std::string("weft-boxes 1\n"));
  boxes.add(
      std::string("weft-boxes 1\n# columns\nsource \"w\" 12\n"
                  "box \"w\" 0 -> \"a\" 2 (6 2 4) (2 1 1)\r\n"));
  boxes.add(
      std::string("weft-boxes 1\nsource \"x\" 7\nsource \"y\" 265189\n"
                  "box \"x\" 0 -> \"b\" 0 (7 1 1)\nbox \"y\" 0 -> \"long\" 0 (265189 1 1)\n"
                  "box \"x\" 3 -> \"one \\\"q\\\" \\\\\" 0\nbox \"y\" 5 -> \"c\" 0 (12 0 1)\n"
                  "box \"y\" 0 -> \"a\" 0 (4 6 1) (6 1 4)\n"));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fputs("usage: make_seeds DIRECTORY\n", stderr);
    return 2;
  }
  make_header_seeds(arguments[1]);
  make_frame_seeds(arguments[1]);
  make_chunk_seeds(arguments[1]);
  make_lattice_seeds(arguments[1]);
  make_box_seeds(arguments[1]);
  return 0;
}
