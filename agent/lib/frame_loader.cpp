// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/frame_loader.hpp"

#include <chrono>
#include <optional>
#include <utility>

namespace weft::agent {
namespace {

constexpr Duration kWakeUp = std::chrono::milliseconds(100);

}  // namespace

FrameLoader::FrameLoader(Read read, Provide provide)
    : read_(std::move(read)), provide_(std::move(provide)), thread_([this] { run(); }) {}

void FrameLoader::push(transport::FrameWanted wanted) {
  queue_.update([&](Queue& queue) {
    if (!queue.closed) queue.wanted.push_back(std::move(wanted));
  });
}

void FrameLoader::stop() {
  queue_.update([](Queue& queue) {
    queue.closed = true;
    queue.wanted.clear();
  });
  if (thread_.joinable()) thread_.join();
}

void FrameLoader::run() {
  while (true) {
    std::optional<transport::FrameWanted> next;
    const bool closed = queue_.wait_for(
        kWakeUp, [](const Queue& queue) { return queue.closed || !queue.wanted.empty(); },
        [&](Queue& queue, bool) {
          if (!queue.wanted.empty()) {
            next = std::move(queue.wanted.front());
            queue.wanted.pop_front();
          }
          return queue.closed;
        });
    if (closed) return;
    if (!next) continue;
    const auto bytes = read_(*next, next->room.frame_room());
    if (bytes) provide_(std::move(next->room).share(*bytes));
  }
}

}  // namespace weft::agent
