// SPDX-License-Identifier: Apache-2.0
#include "apply/store/transfer.hpp"

#include <gtest/gtest.h>

namespace weft::apply {
namespace {

using Next = Transfer::Next;

// B-051: an answer with fewer bytes than asked is neither success nor the end.
TEST(Transfer, ContinuesEveryShortAnswerUntilAllIsDone) {
  Transfer transfer(Transfer::Direction::kWrite, 1000);
  EXPECT_EQ(transfer.advance(999), Next::kContinue);
  EXPECT_EQ(transfer.remaining_bytes(), 1U);
  EXPECT_EQ(transfer.advance(-EINTR), Next::kContinue);
  EXPECT_EQ(transfer.advance(-EAGAIN), Next::kContinue);
  EXPECT_EQ(transfer.advance(1), Next::kDone);
}

TEST(Transfer, WriteThatMovesNothingIsAnIoError) {
  Transfer transfer(Transfer::Direction::kWrite, 10);
  EXPECT_EQ(transfer.advance(0), Next::kFailed);
  EXPECT_EQ(transfer.native_error(), EIO);
}

TEST(Transfer, ReadThatMovesNothingIsTheEndOfTheFile) {
  Transfer transfer(Transfer::Direction::kRead, 10);
  EXPECT_EQ(transfer.advance(4), Next::kContinue);
  EXPECT_EQ(transfer.advance(0), Next::kEnd);
  EXPECT_EQ(transfer.done_bytes(), 4U);
}

TEST(Transfer, GivesUpAfterTooManyInterruptionsInARow) {
  Transfer transfer(Transfer::Direction::kRead, 10);
  for (std::uint32_t i = 0; i < limits::kIoRetriesMax; ++i) {
    ASSERT_EQ(transfer.advance(-EINTR), Next::kContinue);
  }
  EXPECT_EQ(transfer.advance(-EINTR), Next::kFailed);
  EXPECT_EQ(transfer.native_error(), EIO);
}

TEST(Transfer, ProgressStartsTheCountOfInterruptionsAnew) {
  Transfer transfer(Transfer::Direction::kRead, 3);
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t i = 0; i < limits::kIoRetriesMax; ++i) {
      ASSERT_EQ(transfer.advance(-EAGAIN), Next::kContinue);
    }
    ASSERT_EQ(transfer.advance(1), Next::kContinue);
  }
  EXPECT_EQ(transfer.advance(1), Next::kDone);
}

TEST(Transfer, KeepsTheErrorNumberOfTheKernel) {
  Transfer transfer(Transfer::Direction::kWrite, 3);
  EXPECT_EQ(transfer.advance(-ENOSPC), Next::kFailed);
  EXPECT_EQ(transfer.native_error(), ENOSPC);
}

}  // namespace
}  // namespace weft::apply
