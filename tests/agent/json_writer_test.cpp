// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/json_writer.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace weft::agent {
namespace {

TEST(JsonWriter, NestsWithCommasWhereTheyBelong) {
  JsonWriter json;
  json.begin_object().member("a", 1).key("b").begin_array().value(true).null().begin_object();
  json.end_object()
      .end_array()
      .member("c", "x")
      .key("d")
      .begin_object()
      .member("e", -2)
      .end_object();
  json.end_object();
  EXPECT_EQ(json.take(), R"({"a":1,"b":[true,null,{}],"c":"x","d":{"e":-2}})");
}

TEST(JsonWriter, EscapesWhatJsonCannotHold) {
  EXPECT_EQ(JsonWriter().value("\"\\\n\t\x01\x7f").take(), R"("\"\\\n\t\u0001\u007f")");
  EXPECT_EQ(JsonWriter().value("grün").take(), "\"grün\"");
  EXPECT_EQ(JsonWriter().value("\xff").take(), "\"?\"");
}

TEST(JsonWriter, NumbersComeBackExactly) {
  EXPECT_EQ(JsonWriter().value(std::numeric_limits<std::uint64_t>::max()).take(),
            "18446744073709551615");
  EXPECT_EQ(JsonWriter().value(0.1).take(), "0.1");
  EXPECT_EQ(JsonWriter().value(std::numeric_limits<double>::infinity()).take(), "null");
  EXPECT_EQ(JsonWriter().value(std::numeric_limits<double>::quiet_NaN()).take(), "null");
}

}  // namespace
}  // namespace weft::agent
