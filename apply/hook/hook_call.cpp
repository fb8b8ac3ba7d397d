// SPDX-License-Identifier: Apache-2.0
#include "apply/hook/hook_call.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace weft::apply {

namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Takes the first word off `rest`.
std::string_view take_word(std::string_view& rest) {
  const std::size_t end = std::min(rest.find_first_of(kBlanks), rest.size());
  const std::string_view word = rest.substr(0, end);
  rest = trim(rest.substr(end));
  return word;
}

Result<HookCall> parse_call(std::string_view line, std::size_t number) {
  const auto refused = [&](const std::string& why) {
    return failure(ErrorCode::kConfig, Stage::kConfig,
                   "call " + std::to_string(number) + ": " + why);
  };
  HookCall call;
  const std::string_view verb = take_word(line);
  if (verb == "run") {
    while (!line.empty()) call.arguments.emplace_back(take_word(line));
    if (call.arguments.empty() || call.arguments.front().front() != '/') {
      return refused("run needs a program by its absolute path");
    }
    return call;
  }
  if (verb != "POST" && verb != "PUT" && verb != "GET") {
    return refused("begins with \"" + std::string(verb) + "\"; allowed are POST, PUT, GET and run");
  }
  call.method = verb;
  call.url = take_word(line);
  call.body = line;
  const bool known = call.url.starts_with("http://") || call.url.starts_with("https://");
  if (!known) return refused(std::string(verb) + " needs a URL with http:// or https://");
  if (verb == "GET" && !call.body.empty()) return refused("GET has no body");
  return call;
}

std::string json_text(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20) {
      escaped += "\\u00";
      escaped += kHex[byte >> 4];
      escaped += kHex[byte & 15];
      continue;
    }
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

Result<std::vector<HookCall>> parse_hook(const std::vector<std::string>& calls) {
  std::vector<HookCall> parsed;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    WEFT_TRY(auto call, parse_call(trim(calls[i]), i + 1));
    parsed.push_back(std::move(call));
  }
  return parsed;
}

std::string fill_in(std::string_view pattern, const HookFacts& facts, bool in_json) {
  const std::array<std::pair<std::string_view, std::string>, 4> values = {{
      {"{path}", in_json ? json_text(facts.path) : facts.path},
      {"{version}", std::to_string(facts.content.version.value)},
      {"{root}", to_hex(facts.content.root)},
      {"{refit}", to_string(facts.refit)},
  }};
  std::string text;
  while (!pattern.empty()) {
    bool replaced = false;
    for (const auto& [name, value] : values) {
      if (!pattern.starts_with(name)) continue;
      text += value;
      pattern.remove_prefix(name.size());
      replaced = true;
      break;
    }
    if (replaced) continue;
    text += pattern.front();
    pattern.remove_prefix(1);
  }
  return text;
}

std::vector<std::string> hook_environment(const HookFacts& facts, std::string_view event) {
  return {"WEFT_EVENT=" + std::string(event), "WEFT_PATH=" + facts.path,
          "WEFT_VERSION=" + std::to_string(facts.content.version.value),
          "WEFT_ROOT=" + to_hex(facts.content.root), "WEFT_REFIT=" + to_string(facts.refit)};
}

}  // namespace weft::apply
