// SPDX-License-Identifier: Apache-2.0
#include "apply/store/lock_holder.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdint>
#include <fstream>
#include <set>
#include <sstream>

namespace weft::apply {

namespace {

constexpr std::size_t kHoldersShown = 4;
constexpr int kLinesMax = 100'000;

// "fe:01:1234": device in hexadecimal, inode in decimal.
bool is_file(const std::string& place, const struct stat& status) {
  unsigned major = 0;
  unsigned minor = 0;
  std::uint64_t inode = 0;
  char colon = 0;
  char second = 0;
  std::istringstream in(place);
  in >> std::hex >> major >> colon >> minor >> second >> std::dec >> inode;
  return !in.fail() && colon == ':' && second == ':' && inode == status.st_ino &&
         major == ::gnu_dev_major(status.st_dev) && minor == ::gnu_dev_minor(status.st_dev);
}

}  // namespace

std::string lock_holder(int descriptor) {
  struct stat status {};
  std::set<long> holders;
  std::ifstream locks("/proc/locks");
  std::string line;
  if (::fstat(descriptor, &status) == 0) {
    for (int i = 0; i < kLinesMax && std::getline(locks, line); ++i) {
      // "1: FLOCK  ADVISORY  WRITE 17 fe:01:1234 0 EOF"; a waiter's line has "->" behind the
      // number.
      std::istringstream in(line);
      std::string number;
      std::string kind;
      std::string advice;
      std::string mode;
      std::string place;
      long process = 0;
      in >> number >> kind >> advice >> mode >> process >> place;
      if (!in.fail() && kind == "FLOCK" && process > 0 && is_file(place, status)) {
        holders.insert(process);
      }
    }
  }
  if (holders.empty()) return "another process";
  std::string text = holders.size() == 1 ? "process" : "processes";
  std::size_t shown = 0;
  for (const long process : holders) {
    if (shown++ == kHoldersShown) return text + " and more";
    text += " " + std::to_string(process);
  }
  return text;
}

}  // namespace weft::apply
