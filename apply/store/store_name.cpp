// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "apply/store/store.hpp"

namespace weft::apply {

namespace {

constexpr std::size_t kComponentBytesMax = 255;
constexpr std::size_t kNameBytesMax = 4000;

}  // namespace

Status check_name(std::string_view name) {
  const auto denied = [&](const char* why) {
    return failure(ErrorCode::kDenied, Stage::kOpen,
                   "name '" + std::string(name.substr(0, 200)) + "' " + why);
  };
  if (name.empty()) return denied("is empty");
  if (name.size() > kNameBytesMax) return denied("is too long");
  if (name.find('\0') != std::string_view::npos) return denied("contains NUL");
  while (true) {
    const std::size_t slash = name.find('/');
    const std::string_view component = name.substr(0, slash);
    if (component.empty()) return denied("is absolute or has an empty component");
    if (component == "." || component == "..") return denied("has a component '.' or '..'");
    if (component.size() > kComponentBytesMax) return denied("has a component that is too long");
    if (slash == std::string_view::npos) return ok();
    name.remove_prefix(slash + 1);
  }
}

bool is_missing(const Error& error) { return error.native == ENOENT; }
bool is_existing(const Error& error) { return error.native == EEXIST; }

}  // namespace weft::apply
