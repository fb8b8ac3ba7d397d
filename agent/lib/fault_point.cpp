// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/fault_point.hpp"

#include <signal.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <variant>

#include "weft/wire/frame.hpp"

namespace weft::agent {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

void kill_point(std::string_view name) {
  static const std::string wanted = environment("WEFT_TEST_KILL_AT");
  if (!wanted.empty() && wanted == name) raise(SIGKILL);
}

void sent_point(const wire::MemberMessage& message) {
  if (std::holds_alternative<wire::Begin>(message)) kill_point("publisher.after_begin");
  if (std::holds_alternative<wire::SealReport>(message)) kill_point("publisher.after_seal");
}

void heard_point(const wire::CoordinatorMessage& message) {
  if (std::holds_alternative<wire::Decision>(message)) kill_point("publisher.decision");
}

namespace {

std::optional<std::uint32_t> number(const std::string& text) {
  std::uint32_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || parsed.ec != std::errc{}) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::uint32_t> corrupt_frame_point() {
  static const auto wanted = number(environment("WEFT_TEST_CORRUPT_FRAME"));
  return wanted;
}

std::optional<std::uint32_t> spoil_frame_point() {
  static const auto wanted = number(environment("WEFT_TEST_SPOIL_FRAME"));
  return wanted;
}

void damage_frame(const SharedSlot& slot) {
  const auto frame = slot.frame();
  auto* bytes = const_cast<std::byte*>(frame.data());
  bytes[frame.size() - 1] ^= std::byte{1};
  wire::FrameHeader header;
  std::memcpy(&header, bytes, sizeof(header));
  const Digest checksum = wire::frame_checksum(header, frame.subspan(limits::kFrameHeaderBytes));
  header.checksum_low = checksum.low;
  header.checksum_high = checksum.high;
  std::memcpy(bytes, &header, sizeof(header));
}

}  // namespace weft::agent
