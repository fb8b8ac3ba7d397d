// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/base/error.hpp"

namespace weft::transport {

// The gRPC status that carries a code to clients of other make; ours read the code itself from the
// trailing metadata `weft-code`. The values are gRPC's public numbers (docs/errors.md). No default:
// a new code must be placed.
constexpr int grpc_status(ErrorCode code) {
  constexpr int kInvalidArgument = 3;
  constexpr int kDeadlineExceeded = 4;
  constexpr int kPermissionDenied = 7;
  constexpr int kResourceExhausted = 8;
  constexpr int kFailedPrecondition = 9;
  constexpr int kAborted = 10;
  constexpr int kUnimplemented = 12;
  constexpr int kInternal = 13;
  constexpr int kUnavailable = 14;
  constexpr int kDataLoss = 15;
  switch (code) {
    case ErrorCode::kFormat:
    case ErrorCode::kInconsistentCheckpoint:
    case ErrorCode::kProtocol:
    case ErrorCode::kConfig:
      return kInvalidArgument;
    case ErrorCode::kTimeout:
      return kDeadlineExceeded;
    case ErrorCode::kDenied:
      return kPermissionDenied;
    case ErrorCode::kNoSpace:
    case ErrorCode::kResourceLimit:
    case ErrorCode::kDecodeLimit:
      return kResourceExhausted;
    case ErrorCode::kSchemaChanged:
    case ErrorCode::kBaseMismatch:
    case ErrorCode::kVersionOrder:
    case ErrorCode::kPayloadConflict:
    case ErrorCode::kNeedsReseed:
    case ErrorCode::kInDoubt:
      return kFailedPrecondition;
    case ErrorCode::kConcurrentModification:
    case ErrorCode::kFenced:
      return kAborted;
    case ErrorCode::kUnsupported:
      return kUnimplemented;
    case ErrorCode::kIoFailed:
    case ErrorCode::kInternal:
      return kInternal;
    case ErrorCode::kPeerLost:
    case ErrorCode::kBusy:
      return kUnavailable;
    case ErrorCode::kCorruptPayload:
      return kDataLoss;
  }
  return kInternal;
}

}  // namespace weft::transport
