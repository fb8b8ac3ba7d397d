// SPDX-License-Identifier: Apache-2.0
// The one list of error codes, the stages that name where an error arose, and what a caller does
// next.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

// Unchanged in C++, C, Python, metrics and logs; docs/errors.md explains each one.
enum class ErrorCode : std::uint8_t {
  kFormat = 1,
  kInconsistentCheckpoint = 2,
  kConcurrentModification = 3,
  kSchemaChanged = 4,
  kBaseMismatch = 5,
  kVersionOrder = 6,
  kCorruptPayload = 7,
  kPayloadConflict = 8,
  kDecodeLimit = 9,
  kNoSpace = 10,
  kIoFailed = 11,
  kResourceLimit = 12,
  kPeerLost = 13,
  kTimeout = 14,
  kProtocol = 15,
  kDenied = 16,
  kFenced = 17,
  kInDoubt = 18,
  kNeedsReseed = 19,
  kConfig = 20,
  kBusy = 21,
  kUnsupported = 22,
  kInternal = 23,
};
inline constexpr int kErrorCodeCount = 23;

// The step of the one-way flow (or the surface around it) where an error arose.
enum class Stage : std::uint8_t {
  kConfig,
  kOpen,
  kScan,
  kEncode,
  kFrame,
  kRelay,
  kResolve,
  kPrepare,
  kDecide,
  kApply,
  kPublish,
  kControl,
  kRecover,
};

// What the caller does about an error.
enum class NextStep : std::uint8_t {
  kFixRequest,
  kRetryLater,
  kReconnect,
  kRefetch,
  kReseed,
  kReport,
};

constexpr std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kFormat:
      return "format";
    case ErrorCode::kInconsistentCheckpoint:
      return "inconsistent_checkpoint";
    case ErrorCode::kConcurrentModification:
      return "concurrent_modification";
    case ErrorCode::kSchemaChanged:
      return "schema_changed";
    case ErrorCode::kBaseMismatch:
      return "base_mismatch";
    case ErrorCode::kVersionOrder:
      return "version_order";
    case ErrorCode::kCorruptPayload:
      return "corrupt_payload";
    case ErrorCode::kPayloadConflict:
      return "payload_conflict";
    case ErrorCode::kDecodeLimit:
      return "decode_limit";
    case ErrorCode::kNoSpace:
      return "no_space";
    case ErrorCode::kIoFailed:
      return "io_failed";
    case ErrorCode::kResourceLimit:
      return "resource_limit";
    case ErrorCode::kPeerLost:
      return "peer_lost";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kProtocol:
      return "protocol";
    case ErrorCode::kDenied:
      return "denied";
    case ErrorCode::kFenced:
      return "fenced";
    case ErrorCode::kInDoubt:
      return "in_doubt";
    case ErrorCode::kNeedsReseed:
      return "needs_reseed";
    case ErrorCode::kConfig:
      return "config";
    case ErrorCode::kBusy:
      return "busy";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

constexpr std::string_view to_string(Stage stage) {
  switch (stage) {
    case Stage::kConfig:
      return "config";
    case Stage::kOpen:
      return "open";
    case Stage::kScan:
      return "scan";
    case Stage::kEncode:
      return "encode";
    case Stage::kFrame:
      return "frame";
    case Stage::kRelay:
      return "relay";
    case Stage::kResolve:
      return "resolve";
    case Stage::kPrepare:
      return "prepare";
    case Stage::kDecide:
      return "decide";
    case Stage::kApply:
      return "apply";
    case Stage::kPublish:
      return "publish";
    case Stage::kControl:
      return "control";
    case Stage::kRecover:
      return "recover";
  }
  return "unknown";
}

// No default: a new code does not compile (-Wswitch -Werror) until it is placed.
constexpr NextStep next_step(ErrorCode code) {
  switch (code) {
    case ErrorCode::kFormat:
    case ErrorCode::kInconsistentCheckpoint:
    case ErrorCode::kSchemaChanged:
    case ErrorCode::kVersionOrder:
    case ErrorCode::kPayloadConflict:
    case ErrorCode::kDenied:
    case ErrorCode::kConfig:
    case ErrorCode::kUnsupported:
      return NextStep::kFixRequest;
    case ErrorCode::kConcurrentModification:
    case ErrorCode::kNoSpace:
    case ErrorCode::kResourceLimit:
    case ErrorCode::kTimeout:
    case ErrorCode::kInDoubt:
    case ErrorCode::kBusy:
      return NextStep::kRetryLater;
    case ErrorCode::kPeerLost:
    case ErrorCode::kFenced:
      return NextStep::kReconnect;
    case ErrorCode::kBaseMismatch:
    case ErrorCode::kCorruptPayload:
      return NextStep::kRefetch;
    case ErrorCode::kNeedsReseed:
      return NextStep::kReseed;
    case ErrorCode::kDecodeLimit:
    case ErrorCode::kIoFailed:
    case ErrorCode::kProtocol:
    case ErrorCode::kInternal:
      return NextStep::kReport;
  }
  return NextStep::kReport;
}

constexpr std::string_view to_string(NextStep step) {
  switch (step) {
    case NextStep::kFixRequest:
      return "fix the request";
    case NextStep::kRetryLater:
      return "retry later";
    case NextStep::kReconnect:
      return "reconnect";
    case NextStep::kRefetch:
      return "refetch";
    case NextStep::kReseed:
      return "reseed";
    case NextStep::kReport:
      return "report";
  }
  return "report";
}

// Exit code of a program that ends with this error: 10 + the code's number (1 is a crash's, 2 the
// command line's).
constexpr int exit_code(ErrorCode code) { return 10 + static_cast<int>(code); }

// Threads: a value; one at a time.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  Stage stage = Stage::kOpen;
  std::int32_t native = 0;  // errno, fi_errno or gRPC status; 0 when there is none
  std::string detail;       // what, where, and figures; never a secret

  std::string message() const {
    std::string text =
        std::string(to_string(code)) + " (" + std::string(to_string(stage)) + "): " + detail;
    if (native != 0) text += " [native " + std::to_string(native) + "]";
    return text;
  }
};

inline Error make_error(ErrorCode code, Stage stage, std::string detail, std::int32_t native = 0) {
  return Error{code, stage, native, std::move(detail)};
}

}  // namespace weft
