// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <thread>

#include "transport/relay/relay.hpp"
#include "weft/base/guarded.hpp"
#include "weft/base/result.hpp"

namespace weft::agent {

// FrameLoader fills the rooms of RelayObserver::on_frame_wanted from where a node keeps its frames,
// off the progress thread.
// Owns:    one thread; a wanted frame's room until it is provided or dropped.
// Threads: any for push; the callbacks run on the loader's thread.
// Limits:  as many wanted frames as the rail has reserve slots.
class FrameLoader {
 public:
  // Bytes of the frame. An error: not here, or not yet.
  using Read = std::function<Result<std::uint32_t>(const transport::FrameWanted& wanted,
                                                   std::span<std::byte> into)>;
  using Provide = std::function<void(SharedSlot frame)>;

  FrameLoader(Read read, Provide provide);
  ~FrameLoader() { stop(); }
  FrameLoader(const FrameLoader&) = delete;
  FrameLoader& operator=(const FrameLoader&) = delete;

  void push(transport::FrameWanted wanted);
  // Ends the thread; what is pushed later is dropped.
  void stop();

 private:
  struct Queue {
    std::deque<transport::FrameWanted> wanted;
    bool closed = false;
  };
  void run();

  Read read_;
  Provide provide_;
  Guarded<Queue> queue_;
  std::thread thread_;
};

}  // namespace weft::agent
