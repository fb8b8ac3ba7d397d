// SPDX-License-Identifier: Apache-2.0
// A worked example of every layout: what lies where in the shard.
#include "codec/project/layouts.hpp"

#include <gtest/gtest.h>

#include <map>

#include "codec/project/box_file.hpp"
#include "codec/projection_cases.hpp"

namespace weft::codec::test {
namespace {

// What every element of a source is, in order: tensor and flat index; "-" belongs to nothing.
std::string content_of(const Schema& schema, const Projection& projection, std::string_view name) {
  std::map<std::uint64_t, std::string> found;
  std::uint64_t count = 0;
  for (std::uint32_t s = 0; s < projection.sources.size(); ++s) {
    if (projection.sources[s].name == name) count = projection.sources[s].element_count;
  }
  for (const Box& box : projection.boxes) {
    if (projection.sources[box.source].name != name) continue;
    EXPECT_TRUE(check_box(schema, projection, box));
    std::vector<std::uint64_t> at(box.rank);
    for (std::uint64_t n = 0; n < box.element_count(); ++n) {
      std::uint64_t from = box.source_offset;
      std::uint64_t to = box.target_offset;
      for (std::uint32_t a = 0; a < box.rank; ++a) {
        from += at[a] * box.axes[a].source_stride;
        to += at[a] * box.axes[a].target_stride;
      }
      found[from] += schema.tensor(box.target).name + std::to_string(to);
      for (std::uint32_t a = box.rank; a-- > 0;) {
        if (++at[a] < box.axes[a].extent) break;
        at[a] = 0;
      }
    }
  }
  std::string text;
  for (std::uint64_t i = 0; i < count; ++i) {
    text += (i == 0 ? "" : " ") + (found.contains(i) ? found[i] : "-");
  }
  return text;
}

Placement tensor_rank(std::uint32_t rank, std::uint32_t size) {
  Placement placement;
  placement.tensor = {rank, size};
  return placement;
}

template <typename F>
std::string shard(const Schema& schema, const Placement& placement, F&& build) {
  ProjectionBuilder builder(schema, placement);
  const Status built = build(builder);
  if (!built) return built.error().message();
  return content_of(schema, builder.projection(), "s");
}

// Every rank's boxes together cover the checkpoint and give every element.
template <typename F>
std::string all_ranks(const Schema& schema, const std::vector<Placement>& placements, F&& build) {
  std::vector<Projection> projections;
  for (const Placement& placement : placements) {
    ProjectionBuilder builder(schema, placement);
    const Status built = build(builder);
    if (!built) return built.error().message();
    projections.push_back(std::move(builder).take());
  }
  return first_wrong(schema, projections);
}

std::vector<Placement> tensor_ranks(std::uint32_t size) {
  std::vector<Placement> placements;
  for (std::uint32_t rank = 0; rank < size; ++rank) placements.push_back(tensor_rank(rank, size));
  return placements;
}

TEST(Layouts, ColumnParallelCutsDimension0) {
  const Schema schema = schema_of({{"w", DType::kBF16, {4, 2}}});
  const auto build = [](ProjectionBuilder& b) { return b.column_parallel("s", "w"); };
  EXPECT_EQ(shard(schema, tensor_rank(0, 2), build), "w0 w1 w2 w3");
  EXPECT_EQ(shard(schema, tensor_rank(1, 2), build), "w4 w5 w6 w7");
  EXPECT_EQ(all_ranks(schema, tensor_ranks(4), build), "");
}

TEST(Layouts, RowParallelCutsDimension1AndHasAWholeBias) {
  const Schema schema = schema_of({{"b", DType::kBF16, {2}}, {"w", DType::kBF16, {2, 4}}});
  const auto build = [](ProjectionBuilder& b) -> Status {
    WEFT_TRY_STATUS(b.replicated("bias", "b"));
    return b.row_parallel("s", "w");
  };
  EXPECT_EQ(shard(schema, tensor_rank(0, 2), build), "w0 w1 w4 w5");
  EXPECT_EQ(shard(schema, tensor_rank(1, 2), build), "w2 w3 w6 w7");
  EXPECT_EQ(all_ranks(schema, tensor_ranks(4), build), "");
}

// B-031: of replicas that are declared exactly one is sent.
TEST(Layouts, ReplicatedHasOneOwnerByTheHashOfItsName) {
  std::vector<NamedShape> shapes;
  for (int i = 0; i < 64; ++i) shapes.push_back({"n" + std::to_string(i), DType::kF32, {3}});
  const Schema schema = schema_of(shapes);
  std::vector<std::size_t> owned;
  std::vector<Projection> projections;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    for (std::uint32_t replica = 0; replica < 2; ++replica) {
      Placement placement = tensor_rank(rank, 4);
      placement.replica = {replica, 2};
      ProjectionBuilder builder(schema, placement);
      for (const NamedShape& each : shapes) ASSERT_TRUE(builder.replicated(each.name, each.name));
      owned.push_back(builder.projection().boxes.size());
      projections.push_back(builder.projection());
    }
  }
  EXPECT_EQ(first_wrong(schema, projections), "");
  for (const std::size_t count : owned) EXPECT_GT(count, 1U);
}

TEST(Layouts, GateAndUpAreEachCut) {
  const Schema schema = schema_of({{"g", DType::kBF16, {4, 1}}, {"u", DType::kBF16, {4, 1}}});
  const auto build = [](ProjectionBuilder& b) { return b.gate_up("s", "g", "u"); };
  EXPECT_EQ(shard(schema, tensor_rank(0, 2), build), "g0 g1 u0 u1");
  EXPECT_EQ(shard(schema, tensor_rank(1, 2), build), "g2 g3 u2 u3");
  EXPECT_EQ(all_ranks(schema, tensor_ranks(4), build), "");
}

TEST(Layouts, GroupedGateAndUpAreCutWithinEveryExpert) {
  const Schema schema = schema_of({{"w", DType::kBF16, {2, 4, 1}}});  // E=2, F=2
  const auto build = [](ProjectionBuilder& b) { return b.grouped_gate_up("s", "w"); };
  EXPECT_EQ(shard(schema, tensor_rank(0, 2), build), "w0 w2 w4 w6");
  EXPECT_EQ(shard(schema, tensor_rank(1, 2), build), "w1 w3 w5 w7");
  EXPECT_EQ(all_ranks(schema, tensor_ranks(2), build), "");
}

Schema attention_schema(std::uint64_t heads, std::uint64_t groups, std::uint64_t width) {
  return schema_of({{"k", DType::kBF16, {groups * width, 1}},
                    {"q", DType::kBF16, {heads * width, 1}},
                    {"v", DType::kBF16, {groups * width, 1}}});
}

TEST(Layouts, AttentionGoesGroupByGroup) {
  // Hq = 4, G = 2, so R = 2; d = 2; T = 2: one group per rank.
  const Schema schema = attention_schema(4, 2, 2);
  const auto build = [](ProjectionBuilder& b) {
    return b.attention("s", "q", "k", "v", {4, 2, 2});
  };
  EXPECT_EQ(shard(schema, tensor_rank(0, 2), build), "q0 q1 q2 q3 k0 k1 v0 v1");
  EXPECT_EQ(shard(schema, tensor_rank(1, 2), build), "q4 q5 q6 q7 k2 k3 v2 v3");
  EXPECT_EQ(shard(schema, tensor_rank(0, 1), build),
            "q0 q1 q2 q3 k0 k1 v0 v1 q4 q5 q6 q7 k2 k3 v2 v3");
  EXPECT_EQ(all_ranks(schema, tensor_ranks(2), build), "");
}

TEST(Layouts, AttentionWithFewerGroupsThanRanksReplicatesKeysAndValues) {
  // Hq = 4, G = 2, T = 4: ranks 0 and 1 share group 0; its key and its value have one owner each.
  const Schema schema = attention_schema(4, 2, 1);
  const auto build = [](ProjectionBuilder& b) {
    return b.attention("s", "q", "k", "v", {4, 2, 1});
  };
  EXPECT_EQ(all_ranks(schema, tensor_ranks(4), build), "");
  const std::string first = shard(schema, tensor_rank(2, 4), build);
  const std::string second = shard(schema, tensor_rank(3, 4), build);
  EXPECT_EQ(first.substr(0, 2), "q2");
  EXPECT_EQ(second.substr(0, 2), "q3");
  EXPECT_EQ((first.find("k1") == std::string::npos), (second.find("k1") != std::string::npos));
  EXPECT_EQ((first.find("v1") == std::string::npos), (second.find("v1") != std::string::npos));
}

Placement expert_rank(std::uint32_t rank, std::uint32_t size) {
  Placement placement;
  placement.expert = {rank, size};
  return placement;
}

TEST(Layouts, ExpertsAreNumberedGlobally) {
  EXPECT_EQ(expert_name("layers.3.experts.{}.w1", 1, 2, {3, 4}), "layers.3.experts.7.w1");
  const Schema schema = schema_of({{"e0", DType::kBF16, {2, 1}},
                                   {"e1", DType::kBF16, {2, 1}},
                                   {"e2", DType::kBF16, {2, 1}},
                                   {"e3", DType::kBF16, {2, 1}}});
  const auto build = [](ProjectionBuilder& b) { return b.expert_stack("s", "e{}", {}); };
  EXPECT_EQ(shard(schema, expert_rank(1, 2), build), "e20 e21 e30 e31");
  EXPECT_EQ(all_ranks(schema, {expert_rank(0, 2), expert_rank(1, 2)}, build), "");
}

TEST(Layouts, ExpertStacksMayBeTransposed) {
  const Schema schema = schema_of({{"w", DType::kBF16, {2, 2, 3}}});
  const auto build = [](ProjectionBuilder& b) { return b.expert_stack("s", "w", {true, false}); };
  EXPECT_EQ(shard(schema, expert_rank(1, 2), build), "w6 w9 w7 w10 w8 w11");
  EXPECT_EQ(all_ranks(schema, {expert_rank(0, 2), expert_rank(1, 2)}, build), "");
}

TEST(Layouts, GateAndUpOfExpertsMayAlternate) {
  const Schema schema = schema_of({{"g0", DType::kBF16, {2, 1}}, {"u0", DType::kBF16, {2, 1}}});
  const auto fused = [&](const StackShape& shape) {
    const auto build = [&](ProjectionBuilder& b) {
      return b.expert_gate_up_stack("s", "g{}", "u{}", shape);
    };
    EXPECT_EQ(all_ranks(schema, {expert_rank(0, 1)}, build), "");
    return shard(schema, expert_rank(0, 1), build);
  };
  EXPECT_EQ(fused({}), "g00 g01 u00 u01");
  EXPECT_EQ(fused({false, true}), "g00 u00 g01 u01");
  EXPECT_EQ(fused({true, true}), "g00 u00 g01 u01");
}

TEST(Layouts, TransposedAndInterleavedTogether) {
  // F = 2, H = 2: the shard is [H, 2F] with gate and up columns alternating.
  const Schema schema = schema_of({{"g0", DType::kBF16, {2, 2}}, {"u0", DType::kBF16, {2, 2}}});
  const auto build = [](ProjectionBuilder& b) {
    return b.expert_gate_up_stack("s", "g{}", "u{}", {true, true});
  };
  EXPECT_EQ(shard(schema, expert_rank(0, 1), build), "g00 u00 g02 u02 g01 u01 g03 u03");
  EXPECT_EQ(all_ranks(schema, {expert_rank(0, 1)}, build), "");
}

TEST(Layouts, MambaComponentsAreEachCut) {
  // z (4 rows), x (4), B (2), dt (2).
  const Schema schema = schema_of({{"w", DType::kBF16, {12, 1}}});
  const auto build = [](ProjectionBuilder& b) { return b.concatenated("s", "w", {4, 4, 2, 2}); };
  EXPECT_EQ(shard(schema, tensor_rank(0, 2), build), "w0 w1 w4 w5 w8 w10");
  EXPECT_EQ(shard(schema, tensor_rank(1, 2), build), "w2 w3 w6 w7 w9 w11");
}

TEST(Layouts, MambaOfManyRanksIsOneTilePerComponent) {
  const Schema schema = schema_of({{"w", DType::kBF16, {16, 3}}});
  const auto build = [](ProjectionBuilder& b) { return b.concatenated("s", "w", {8, 4, 4}); };
  EXPECT_EQ(all_ranks(schema, tensor_ranks(4), build), "");
}

TEST(Layouts, PaddingOfTheVocabularyIsDropped) {
  // 5 words, padded to 8, on 4 ranks: the third has one word, the fourth none.
  const Schema schema = schema_of({{"w", DType::kBF16, {5, 1}}});
  const auto build = [](ProjectionBuilder& b) { return b.vocabulary("s", "w", 8); };
  EXPECT_EQ(shard(schema, tensor_rank(1, 4), build), "w2 w3");
  EXPECT_EQ(shard(schema, tensor_rank(2, 4), build), "w4 -");
  EXPECT_EQ(shard(schema, tensor_rank(3, 4), build), "- -");
  EXPECT_EQ(all_ranks(schema, tensor_ranks(4), build), "");
}

// Case B-026: what the checkpoint stores once is emitted once; what it stores twice, twice.
TEST(Layouts, TiedHeadsAreEmittedAsOftenAsTheyAreStored) {
  const Schema tied = schema_of({{"embed", DType::kBF16, {4, 2}}});
  const Schema untied =
      schema_of({{"embed", DType::kBF16, {4, 2}}, {"head", DType::kBF16, {4, 2}}});
  const auto build = [](bool both) {
    return [both](ProjectionBuilder& b) -> Status {
      WEFT_TRY_STATUS(b.vocabulary("s", "embed", 4));
      return both ? b.vocabulary("s", "head", 4) : ok();
    };
  };
  EXPECT_EQ(shard(tied, tensor_rank(0, 2), build(false)), "embed0 embed1 embed2 embed3");
  EXPECT_EQ(shard(untied, tensor_rank(0, 2), build(true)),
            "embed0head0 embed1head1 embed2head2 embed3head3");
  // A name that the checkpoint lacks, and a tensor that nobody maps, are refused by name.
  EXPECT_NE(shard(tied, tensor_rank(0, 2), build(true)).find("head"), std::string::npos);
  EXPECT_NE(all_ranks(untied, tensor_ranks(2), build(false)).find("a gap in tensor head"),
            std::string::npos);
}

TEST(Layouts, FlatShardsBeginAndEndAnywhere) {
  const Schema schema = schema_of({{"a", DType::kBF16, {3, 3}}, {"b", DType::kBF16, {2, 2, 2}}});
  const auto rank = [&](std::uint64_t begin, std::uint64_t end) {
    ProjectionBuilder builder(schema, {});
    const std::uint64_t of_a = begin < 9 ? std::min<std::uint64_t>(end, 9) - begin : 0;
    EXPECT_TRUE(of_a == 0 || builder.flat("s", 0, "a", begin, of_a));
    if (end > 9) {
      const std::uint64_t from = std::max<std::uint64_t>(begin, 9);
      EXPECT_TRUE(builder.flat("s", of_a, "b", from - 9, end - from));
    }
    return std::move(builder).take();
  };
  EXPECT_EQ(content_of(schema, rank(7, 11), "s"), "a7 a8 b0 b1");
  EXPECT_EQ(first_wrong(schema, {rank(0, 7), rank(7, 11), rank(11, 17)}), "");
}

TEST(Layouts, RefusesSizesThatDoNotDivide) {
  const Schema schema = schema_of({{"w", DType::kBF16, {6, 6}}});
  ProjectionBuilder builder(schema, tensor_rank(0, 4));
  for (const Status& refused :
       {builder.column_parallel("s", "w"), builder.row_parallel("s", "w"),
        builder.concatenated("s", "w", {4, 4}), builder.concatenated("s", "w", {4}),
        builder.vocabulary("s", "w", 4), builder.vocabulary("s", "w", 9),
        builder.flat("s", 0, "w", 30, 7), builder.grouped_gate_up("s", "w"),
        builder.attention("s", "w", "w", "w", {4, 3, 1}), builder.gate_up("s", "w", "w"),
        builder.expert_stack("s", "none{}", {}), builder.replicated("s", "none")}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kConfig);
  }
}

// Shapes that hold nothing are legal in a checkpoint.
TEST(Layouts, RefusesExpertsWithoutRows) {
  const Schema schema = schema_of({{"w", DType::kBF16, {2, 0, 5}}, {"e0", DType::kBF16, {0, 5}}});
  ProjectionBuilder builder(schema, tensor_rank(0, 1));
  for (const Status& refused :
       {builder.expert_stack("s", "w", {}), builder.expert_stack("s", "e{}", {})}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kConfig);
  }
}

TEST(BoxFile, ReadsBackWhatWasWritten) {
  const Schema schema =
      schema_of({{"q\"uo\\ted", DType::kBF16, {4, 6}}, {"w", DType::kBF16, {8, 2}}});
  ProjectionBuilder builder(schema, tensor_rank(1, 2));
  ASSERT_TRUE(builder.row_parallel("source one", "q\"uo\\ted"));
  ASSERT_TRUE(builder.vocabulary("s", "w", 10));
  const std::string text = format_boxes(builder.projection(), schema);
  const auto again = parse_boxes(text, schema);
  ASSERT_TRUE(again) << again.error().message() << text;
  EXPECT_EQ(again->sources, builder.projection().sources);
  EXPECT_EQ(again->boxes, builder.projection().boxes);
}

TEST(BoxFile, TakesCommentsBlanksAndLineEnds) {
  const Schema schema = schema_of({{"w", DType::kBF16, {2, 3}}});
  const auto read = parse_boxes(
      "weft-boxes 1  # of rank 0\r\n\n  # nothing\nsource \"s\" 6\r\n"
      "box \"s\" 0 -> \"w\" 0 (2 1 3) (3 2 1)  # transposed\n",
      schema);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->boxes.size(), 1U);
}

TEST(BoxFile, NamesTheLineThatIsWrong) {
  const Schema schema = schema_of({{"w", DType::kBF16, {2, 3}}});
  const std::string begin = "weft-boxes 1\nsource \"s\" 6\n";
  for (const char* line :
       {"box",
        "boxes",
        "box s 0 -> \"w\" 0",
        "box \"s\" -> \"w\" 0",
        "box \"s\" 0 \"w\" 0",
        "box \"s\" 0 -> \"w\"",
        "box \"s\" 0 -> \"w\" 0 (6 1)",
        "box \"s\" 0 -> \"w\" 0 (6 1 1",
        "box \"s\" 0 -> \"w\" 0 (7 1 1)",
        "box \"s\" 0 -> \"x\" 0 (6 1 1)",
        "box \"t\" 0 -> \"w\" 0 (6 1 1)",
        "box \"s\" -1 -> \"w\" 0 (6 1 1)",
        "box \"s\" 0 -> \"w\" 0 (6 1 1) 7",
        "box \"s\" 0 -> \"w\" 18446744073709551616 (1 1 1)",
        "source \"s\" 7",
        "source \"t\"",
        "source \"t\" 1 2",
        "source \"t",
        "\\",
        "box \"s\" 0 -> \"w\" 0 (1 1 1) (1 1 1) (1 1 1) (1 1 1) (1 1 1) (1 1 1) (1 1 1) (1 1 1) "
        "(1 1 1)"}) {
    const auto read = parse_boxes(begin + line, schema);
    ASSERT_FALSE(read) << line;
    EXPECT_NE(read.error().message().find("line 3"), std::string::npos) << line;
  }
  EXPECT_FALSE(parse_boxes("", schema));
  EXPECT_FALSE(parse_boxes("weft-boxes 2\n", schema));
}

}  // namespace
}  // namespace weft::codec::test
