// SPDX-License-Identifier: Apache-2.0
// Index files, schemas and their differences (cases B-011, B-025, B-026, B-087).
#include "codec/safetensors/schema.hpp"

#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <vector>

#include "codec/project/lattice.hpp"
#include "safetensors_text.hpp"

namespace weft::codec {
namespace {

using testing::as_bytes;

HeaderTensor tensor(const std::string& name, std::uint64_t begin, std::uint64_t count,
                    DType dtype = DType::kU8) {
  return {name, dtype, {count}, begin, begin + count * bits(dtype) / 8};
}
FileInput file(const std::string& name, std::vector<HeaderTensor> tensors) {
  FileInput input{name, 0, {100, std::move(tensors)}};
  input.bytes = 100 + (input.header.tensors.empty() ? 0 : input.header.tensors.back().end);
  return input;
}
Result<IndexFile> index_of(const std::string& map) {
  return parse_index(as_bytes(R"({"metadata":{"total_size":1},"weight_map":{)" + map + "}}"));
}

TEST(Index, RefusesEveryNameThatIsNotPlain) {
  for (const char* name : {"../x.safetensors", "/tmp/x", "a/../../x", "./m.safetensors", "", ".",
                           "..", "a/b", "a\\\\b", "a\\u0000b", "a\\nb"}) {
    const auto index = index_of(R"("t":")" + std::string(name) + "\"");
    ASSERT_FALSE(index) << name;
    EXPECT_EQ(index.error().code, ErrorCode::kFormat) << name;
  }
  EXPECT_FALSE(index_of(R"("t":")" + std::string(256, 'n') + "\""));
  EXPECT_TRUE(index_of(R"("../../etc/x":"model-00001-of-00002.safetensors")"));
}

TEST(Index, RefusesWhatIsNoWeightMap) {
  for (const char* text :
       {"", "{}", "[]", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})",
        R"({"weight_map":{"a":"f","a":"g"}})", R"({"weight_map":{"a":"f"},"weight_map":{}})",
        R"({"weight_map":{"a":"f"}} x)", R"({"weight_map":{"a":"f"},"metadata":{"x":01}})"}) {
    EXPECT_FALSE(parse_index(as_bytes(text))) << text;
  }
}

TEST(Schema, LeavesStaleCopiesAndStrayFilesAlone) {
  const auto index = index_of(R"("x":"b","y":"a")");
  ASSERT_TRUE(index);
  const auto schema = build_schema({file("a", {tensor("x", 0, 4), tensor("y", 4, 4)}),
                                    file("b", {tensor("x", 0, 4), tensor("extra", 4, 1)}),
                                    file("consolidated", {tensor("x", 0, 4), tensor("y", 4, 4)})},
                                   *index);
  ASSERT_TRUE(schema) << schema.error().message();
  ASSERT_EQ(schema->tensors().size(), 2U);
  EXPECT_EQ(schema->files().size(), 2U);
  const Tensor& x = schema->tensor(*schema->find("x"));
  EXPECT_EQ(schema->files()[x.file_index].name, "b");
  EXPECT_EQ(x.file_offset, 100U);
  EXPECT_EQ(schema->warnings().size(), 3U);
  EXPECT_FALSE(schema->find("extra"));
}

TEST(Schema, RefusesANameWhoseFileLacksIt) {
  const auto index = index_of(R"("x":"a","y":"a")");
  const auto lacks = build_schema({file("a", {tensor("x", 0, 4)})}, *index);
  ASSERT_FALSE(lacks);
  EXPECT_EQ(lacks.error().code, ErrorCode::kInconsistentCheckpoint);
  EXPECT_NE(lacks.error().detail.find('y'), std::string::npos);
  // The file itself is missing, or holds the name only where the index does not say.
  EXPECT_FALSE(build_schema({}, *index));
  EXPECT_FALSE(
      build_schema({file("a", {tensor("x", 0, 4)}), file("b", {tensor("y", 0, 4)})}, *index));
}

TEST(Schema, RefusesANameInTwoFilesWithoutAnIndex) {
  const auto schema =
      build_schema({file("a", {tensor("x", 0, 4)}), file("b", {tensor("x", 0, 4)})}, std::nullopt);
  ASSERT_FALSE(schema);
  EXPECT_EQ(schema.error().code, ErrorCode::kInconsistentCheckpoint);
}

TEST(Schema, DigestDoesNotDependOnTheSplitIntoFiles) {
  const auto one = build_schema({file("a", {tensor("x", 0, 4), tensor("y", 4, 4)})}, std::nullopt);
  const auto two =
      build_schema({file("a", {tensor("y", 0, 4)}), file("b", {tensor("x", 0, 4)})}, std::nullopt);
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->digest(), two->digest());
  EXPECT_TRUE(schema_difference(*one, *two));
}

TEST(Schema, DifferenceNamesTenAndCountsAll) {
  std::vector<HeaderTensor> many;
  for (std::uint64_t i = 0; i < 30; ++i) many.push_back(tensor("n" + std::to_string(i), i, 1));
  const auto base = build_schema({file("a", {tensor("x", 0, 4)})}, std::nullopt);
  const auto target = build_schema({file("a", many)}, std::nullopt);
  const auto difference = schema_difference(*base, *target);
  ASSERT_FALSE(difference);
  EXPECT_EQ(difference.error().code, ErrorCode::kSchemaChanged);
  EXPECT_NE(difference.error().detail.find("31 tensors differ"), std::string::npos);
}

TEST(Schema, DifferenceSeesTypeAndShape) {
  const auto of = [](HeaderTensor one) {
    std::vector<FileInput> files;
    files.push_back(file("a", {std::move(one)}));
    return *build_schema(std::move(files), std::nullopt);
  };
  const Schema base = of(tensor("x", 0, 4, DType::kF16));
  EXPECT_TRUE(schema_difference(base, of(tensor("x", 0, 4, DType::kF16))));
  EXPECT_FALSE(schema_difference(base, of(tensor("x", 0, 4, DType::kBF16))));
  HeaderTensor reshaped = tensor("x", 0, 4, DType::kF16);
  reshaped.shape = {2, 2};
  EXPECT_FALSE(schema_difference(base, of(reshaped)));
}

// Processor time of this process for a schema of so many files of 200 tensors each.
double schema_time(int file_count) {
  const std::clock_t start = std::clock();  // the machine may be busy
  std::vector<FileInput> files;
  std::string map;
  for (int f = 0; f < file_count; ++f) {
    const std::string name = "model-" + std::to_string(f) + ".safetensors";
    std::vector<HeaderTensor> tensors;
    for (std::uint64_t t = 0; t < 200; ++t) {
      tensors.push_back(
          tensor("l." + std::to_string(f) + "." + std::to_string(t), t * 64, 32, DType::kBF16));
      map += (map.empty() ? "\"" : ",\"") + tensors.back().name + "\":\"" + name + "\"";
    }
    files.push_back(file(name, std::move(tensors)));
  }
  const auto index = index_of(map);
  EXPECT_TRUE(index);
  const auto schema = build_schema(std::move(files), *index);
  EXPECT_TRUE(schema);
  const auto lattice = Lattice::default_for(*schema);
  EXPECT_TRUE(lattice);
  if (lattice) {
    EXPECT_EQ(lattice->chunk_count(), 200U * static_cast<std::uint32_t>(file_count));
  }
  return static_cast<double>(std::clock() - start);
}

TEST(Schema, HoldsTwoHundredThousandTensorsInAThousandFiles) {
  // Ten times the tensors: a hundred times the work if anything in it were quadratic.
  EXPECT_LT(schema_time(1000), 40 * schema_time(100));
}

}  // namespace
}  // namespace weft::codec
