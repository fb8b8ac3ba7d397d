// SPDX-License-Identifier: Apache-2.0
// Which kernel set a process uses.
#include <gtest/gtest.h>

#include <string>

#include "codec/kernels/kernel_set.hpp"

namespace weft::codec {
namespace {

TEST(ChooseKernels, TakesTheWidestUnlessToldOtherwise) {
  for (const char* nothing : {static_cast<const char*>(nullptr), ""}) {
    const auto set = choose_kernels(nothing);
    ASSERT_TRUE(set);
    EXPECT_EQ(*set, available_kernels().back());
  }
  const auto scalar = choose_kernels("scalar");
  ASSERT_TRUE(scalar);
  EXPECT_EQ((*scalar)->level, KernelLevel::kScalar);
}

TEST(ChooseKernels, NamesTheSetsThatThereAreWhenTheNameIsWrong) {
  for (const char* wrong : {"avx", "AVX2", "scalar ", "neon"}) {
    const auto set = choose_kernels(wrong);
    ASSERT_FALSE(set) << wrong;
    EXPECT_EQ(set.error().code, ErrorCode::kConfig);
    EXPECT_NE(set.error().detail.find(std::string("WEFT_KERNELS=") + wrong + ":"),
              std::string::npos);
    for (const KernelSet* there : available_kernels()) {
      EXPECT_NE(set.error().detail.find(there->name), std::string::npos) << set.error().detail;
    }
  }
}

TEST(ChooseKernels, SaysWhenTheMachineLacksAKnownSet) {
  for (const char* known : {"scalar", "avx2", "avx512"}) {
    const auto set = choose_kernels(known);
    EXPECT_EQ(set.has_value(), find_kernels(known) != nullptr) << known;
    if (!set) {
      EXPECT_NE(set.error().detail.find("this machine lacks"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace weft::codec
