// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/base/event_sink.hpp"

namespace weft::transport {

// gRPC and protobuf write to stderr by themselves, a line for every broken connection or message:
// a peer could fill the disk with them. From the first call on, what they log as an error goes to
// `events` as `grpc_log` instead, and the rest is dropped. Null: all of it is dropped.
// Threads: any; `events` must live until it is replaced.
void route_library_logs(EventSink* events);

}  // namespace weft::transport
