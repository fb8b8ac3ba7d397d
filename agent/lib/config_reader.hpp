// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/control/host_port.hpp"
#include "weft/base/result.hpp"

namespace weft::agent {

// Takes a TOML document apart key by key. Every take_ call leaves the target alone when the key is
// missing, notes what is wrong with it otherwise, and writes down the effective value; finish()
// adds the keys that nobody asked for. So one run tells everything that is wrong with a file.
// Threads: one at a time.
class ConfigReader {
 public:
  // Errors: kConfig: no TOML (with line), or nested values where keys are expected.
  static Result<ConfigReader> open(std::string_view toml, std::string name);
  ConfigReader(ConfigReader&&) noexcept;
  ~ConfigReader();

  bool present(const char* key) const;

  void take_text(const char* key, std::string& target, std::size_t bytes_max = 4096);
  // An array of texts.
  void take_texts(const char* key, std::vector<std::string>& target, std::size_t count_max,
                  std::size_t bytes_max);
  // Letters, digits, '.', '_' and '-': names that end up in logs, paths and labels.
  void take_name(const char* key, std::string& target, std::size_t bytes_max);
  void take_flag(const char* key, bool& target);
  template <typename Number>
  void take_number(const char* key, Number& target, std::int64_t least, std::int64_t most) {
    std::int64_t value = static_cast<std::int64_t>(target);
    take_integer(key, value, least, most);
    target = static_cast<Number>(value);
  }
  // Above 0 and at most 1.
  void take_fraction(const char* key, double& target);
  void take_bytes(const char* key, std::uint64_t& target, std::uint64_t least, std::uint64_t most);
  void take_duration(const char* key, std::chrono::milliseconds& target,
                     std::chrono::milliseconds least, std::chrono::milliseconds most);
  void take_address(const char* key, std::optional<transport::HostPort>& target,
                    transport::PortZero zero);
  template <typename Enum>
  void take_choice(const char* key, Enum& target,
                   std::span<const std::pair<std::string_view, Enum>> choices) {
    std::vector<std::string_view> names;
    std::size_t chosen = 0;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      names.push_back(choices[i].first);
      if (choices[i].second == target) chosen = i;
    }
    take_choice_index(key, chosen, names);
    target = choices[chosen].second;
  }

  // A key that must be there and not empty.
  void require(const char* key, bool given);
  // Notes that the value of `key` cannot be, because `why`.
  void reject(const char* key, const std::string& why);

  // Errors: kConfig with every line that was noted, at most 20.
  Status finish();
  std::vector<std::pair<std::string, std::string>> effective() &&;

 private:
  struct Document;
  explicit ConfigReader(std::unique_ptr<Document> document);
  void take_integer(const char* key, std::int64_t& target, std::int64_t least, std::int64_t most);
  void take_choice_index(const char* key, std::size_t& target,
                         std::span<const std::string_view> names);
  void wrong(const char* key, const std::string& expected);
  void note(const char* key, std::string value);

  std::unique_ptr<Document> document_;
};

}  // namespace weft::agent
