// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "transport/control/grpc_bytes.hpp"
#include "weft/base/result.hpp"

namespace weft::transport {

// The answer to a call of one message: once, whoever comes first.
// Threads: any.
class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  explicit UnaryCall(grpc::CallbackServerContext* context) : context_(context) {}
  // One that is answered at once.
  static UnaryCall* answered(grpc::CallbackServerContext* context, const Status& status) {
    const auto call = std::make_shared<UnaryCall>(context);
    call->start(call);
    call->answer(status);
    return call.get();
  }
  void start(std::shared_ptr<UnaryCall> self) { self_ = std::move(self); }
  void answer(const Status& status) {
    if (answered_.exchange(true)) return;
    if (status) return Finish(grpc::Status::OK);
    context_->AddTrailingMetadata(kCodeMetadata,
                                  std::to_string(static_cast<int>(status.error().code)));
    Finish(to_status(status.error()));
  }
  void OnCancel() override {
    answer(failure(ErrorCode::kTimeout, Stage::kControl, "the caller has gone"));
  }
  void OnDone() override { const std::shared_ptr<UnaryCall> last = std::move(self_); }

 private:
  grpc::CallbackServerContext* context_;
  std::shared_ptr<UnaryCall> self_;
  std::atomic<bool> answered_{false};
};

}  // namespace weft::transport
