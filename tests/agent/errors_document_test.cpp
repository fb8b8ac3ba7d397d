// SPDX-License-Identifier: Apache-2.0
// docs/errors.md and the code agree.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "transport/control/grpc_status.hpp"
#include "weft/base/error.hpp"

namespace weft {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" `");
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(" `") + 1 - begin);
}

// Rows of the table by code: meaning, next step, exit code, gRPC status.
std::map<std::string, std::vector<std::string>> documented() {
  std::ifstream in(std::string(WEFT_SOURCE_DIR) + "/docs/errors.md");
  std::map<std::string, std::vector<std::string>> rows;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("| `")) continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(1));
    for (std::string cell; std::getline(row, cell, '|');) cells.push_back(trimmed(cell));
    rows[cells[0]] = {cells.begin() + 1, cells.end()};
  }
  return rows;
}

TEST(ErrorsDocument, EveryCodeHasItsRow) {
  const auto rows = documented();
  EXPECT_EQ(rows.size(), static_cast<std::size_t>(kErrorCodeCount));
  for (int number = 1; number <= kErrorCodeCount; ++number) {
    const auto code = static_cast<ErrorCode>(number);
    const std::string name(to_string(code));
    ASSERT_TRUE(rows.contains(name)) << name;
    const auto& row = rows.at(name);
    ASSERT_EQ(row.size(), 4U) << name;
    EXPECT_FALSE(row[0].empty()) << name;
    EXPECT_EQ(row[1], to_string(next_step(code))) << name;
    EXPECT_EQ(row[2], std::to_string(exit_code(code))) << name;
    EXPECT_TRUE(row[3].starts_with(std::to_string(transport::grpc_status(code)) + " ")) << row[3];
  }
}

}  // namespace
}  // namespace weft
