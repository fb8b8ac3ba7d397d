// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace weft::apply {

// Makes the calling thread give way to the readers of the weights: `nice_steps` is added to its
// nice value (19 at most), and it no longer takes the processor from others when it wakes
// (SCHED_BATCH). Threads that it starts afterwards, and the kernel's io_uring workers that serve
// it, are like it. Nothing brings it back. 0 leaves the thread as it is; so does a real-time
// policy, which somebody gave it on purpose. Threads: any.
void give_way_to_readers(std::uint32_t nice_steps);

}  // namespace weft::apply
