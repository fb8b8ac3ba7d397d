// SPDX-License-Identifier: Apache-2.0
// Internal to control_server.cpp and control_client.cpp, which are the only files that see gRPC:
// bytes in and out of its buffers, and errors in and out of its statuses.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <charconv>
#include <span>
#include <string>
#include <vector>

#include "transport/control/grpc_status.hpp"
#include "weft/base/result.hpp"

namespace weft::transport {

inline constexpr const char* kCodeMetadata = "weft-code";
inline constexpr const char* kSessionMethod = "/weft.control.v1.Control/Session";
inline constexpr const char* kStatusMethod = "/weft.control.v1.Control/Status";
inline constexpr const char* kResolveMethod = "/weft.control.v1.Control/Resolve";

inline grpc::ByteBuffer to_buffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

inline std::vector<std::byte> to_bytes(const grpc::ByteBuffer& buffer) {
  std::vector<std::byte> bytes;
  std::vector<grpc::Slice> slices;
  if (!buffer.Valid() || !buffer.Dump(&slices).ok()) return bytes;
  bytes.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    const auto* begin = reinterpret_cast<const std::byte*>(slice.begin());
    bytes.insert(bytes.end(), begin, begin + slice.size());
  }
  return bytes;
}

inline grpc::Status to_status(const Error& error) {
  return {static_cast<grpc::StatusCode>(grpc_status(error.code)), error.detail};
}

// From what gRPC itself says, when the other side sent no code of ours.
inline ErrorCode code_of(grpc::StatusCode status) {
  switch (status) {
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
      return ErrorCode::kDenied;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return ErrorCode::kTimeout;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return ErrorCode::kResourceLimit;
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::DATA_LOSS:
      return ErrorCode::kProtocol;
    case grpc::StatusCode::UNIMPLEMENTED:
      return ErrorCode::kUnsupported;
    default:
      return ErrorCode::kPeerLost;
  }
}

}  // namespace weft::transport
