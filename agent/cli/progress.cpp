// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "agent/lib/units.hpp"

namespace weft::cli {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};

std::size_t terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

Progress::Progress(bool json, std::string_view what)
    : visible_(!json && isatty(STDERR_FILENO) == 1), what_(what) {}

Progress::~Progress() { clear(); }

void Progress::draw(std::string text) {
  if (!visible_) return;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_at_ && now - *drawn_at_ < kRedraw) return;
  drawn_at_ = now;
  drawn_ = true;
  text.resize(std::min(text.size(), terminal_columns() - 1));
  std::fprintf(stderr, "\r\x1b[K%s", text.c_str());
}

void Progress::show_bytes(std::uint64_t done, std::uint64_t total, std::string_view note) {
  if (!visible_) return;
  std::string text = what_ + ": " + agent::human_bytes(done);
  if (total > 0) {
    const auto percent =
        static_cast<unsigned>(100.0 * static_cast<double>(done) / static_cast<double>(total));
    text += " of " + agent::human_bytes(total) + " (" + std::to_string(percent) + " %)";
  }
  if (!note.empty()) text += " " + std::string(note);
  draw(std::move(text));
}

void Progress::show(std::string_view note) { draw(what_ + ": " + std::string(note)); }

void Progress::clear() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
  drawn_at_.reset();
}

}  // namespace weft::cli
