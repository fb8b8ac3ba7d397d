// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft::cli {

// One progress line on stderr, redrawn at most ten times a second; silent unless stderr is a
// terminal, and with --json.
// Threads: one at a time.
class Progress {
 public:
  Progress(bool json, std::string_view what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool visible() const { return visible_; }
  // "what: 12.3 / 40.0 MiB (30 %) note"; total 0: unknown.
  void show_bytes(std::uint64_t done, std::uint64_t total, std::string_view note = {});
  void show(std::string_view note);
  // Wipes the line, so that the result starts on a clean one. The destructor does the same.
  void clear();

 private:
  void draw(std::string text);

  bool visible_ = false;
  bool drawn_ = false;
  std::string what_;
  std::optional<std::chrono::steady_clock::time_point> drawn_at_;
};

}  // namespace weft::cli
