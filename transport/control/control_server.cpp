// SPDX-License-Identifier: Apache-2.0
#include "transport/control/control_server.hpp"

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "transport/control/connection_gate.hpp"
#include "transport/control/grpc_bytes.hpp"
#include "transport/control/lattice_calls.hpp"
#include "transport/control/library_log.hpp"
#include "transport/control/message_codec.hpp"
#include "transport/control/tls_files.hpp"
#include "transport/control/unary_call.hpp"
#include "weft/base/assert.hpp"
#include "weft/base/guarded.hpp"
#include "weft/base/limits.hpp"
#include "weft/control.grpc.pb.h"

namespace weft::transport {
namespace {

namespace pb = weft::control::v1;

constexpr std::chrono::milliseconds kTick{100};
constexpr std::chrono::seconds kEndGrace{1};       // for what is queued when a session ends
constexpr std::chrono::seconds kShutdownGrace{2};  // then every call is cut
constexpr unsigned kCertificateRefreshSeconds = 2;
constexpr int kMessageSlackBytes = 4096;

// Who a session belongs to.
struct MemberKey {
  wire::Role role = wire::Role::kAgent;
  std::string id;
  auto operator<=>(const MemberKey&) const = default;
};

class MemberStream;

// What a session needs of the server around it.
// Threads: any.
class SessionHost {
 public:
  virtual const ControlServerOptions& options() const = 0;
  virtual ControlServerObserver& observer() = 0;
  virtual EventSink& events() = 0;
  // Makes `session` the one of this member; the one before it is ended.
  virtual void admit(MemberStream& session, const MemberKey& key, ProcessId process) = 0;
  virtual void forget(MemberStream& session) = 0;

 protected:
  ~SessionHost() = default;
};

// One member's stream. gRPC runs at most one read and one write of it at a time.
// 1. start(): reads until the stream ends. 2. end(): what is queued goes out, then the status.
// 3. OnDone(): gRPC has let go of it, and so do we.
// Threads: any.
class MemberStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  MemberStream(SessionHost& host, SessionId id, grpc::CallbackServerContext* context)
      : host_(host), id_(id), context_(context), heard_at_(MonotonicClock().now()) {
    state_.with([&](State& state) { state.sent_at = heard_at_.load(); });
  }

  SessionId id() const { return id_; }
  const std::optional<MemberKey>& key() const { return key_; }
  ProcessId process() const { return process_; }

  void start(std::shared_ptr<MemberStream> self) {
    self_ = std::move(self);
    StartSendInitialMetadata();
    StartRead(&in_);
  }

  Status send(std::string bytes) {
    enum class Outcome { kQueued, kGone, kFull };
    const Outcome outcome = state_.with([&](State& state) {
      if (state.ending) return Outcome::kGone;
      const bool full = state.queue.size() >= host_.options().send_queue_max ||
                        state.queued_bytes + bytes.size() > host_.options().send_queue_bytes_max;
      if (full) {
        if (!state.overflow) host_.events().count("control_sessions_slow_total", 1);
        state.overflow = true;
        cut();  // on_closed follows from gRPC's thread: this call may come from an observer
        return Outcome::kFull;
      }
      state.queued_bytes += bytes.size();
      state.queue.push_back(std::move(bytes));
      return Outcome::kQueued;
    });
    if (outcome == Outcome::kGone) {
      return failure(ErrorCode::kPeerLost, Stage::kControl, "the session has ended");
    }
    if (outcome == Outcome::kFull) {
      return failure(ErrorCode::kResourceLimit, Stage::kControl,
                     "the session's queue is full: its member does not read");
    }
    pump();
    return ok();
  }

  // The first reason counts. `drop_queue`: nothing more goes out, not even what is queued.
  void end(Error reason, bool drop_queue) {
    const bool first = state_.with([&](State& state) {
      const bool was_open = !state.ending;
      if (was_open) {
        if (state.overflow) reason = slow_error();
        state.ending = true;
        state.reason = reason;
        state.cut_at = MonotonicClock().now() + kEndGrace;
      }
      if (drop_queue) {
        state.queue.clear();
        if (state.writing) cut();
      }
      return was_open;
    });
    if (first) tell_closed(std::move(reason));
    pump();
  }

  void refuse(const wire::Cause& cause) {
    // A full queue only means that the session ends without a word.
    const Status sent = send(encode(wire::CoordinatorMessage(wire::SessionRefused{cause})));
    end(make_error(cause.code, Stage::kControl, cause.detail), !sent);
  }

  // No observer call after this one.
  void mute() {
    std::lock_guard lock(delivery_);
    muted_ = true;
  }

  // Once per kTick. `pause`: how long this process itself stood still, which is no one's silence.
  void tick(TimePoint now, Duration pause) {
    const ControlServerOptions& options = host_.options();
    if (pause > Duration::zero()) heard_at_ = heard_at_.load() + pause;
    const Duration silence = now - heard_at_.load();
    bool heartbeat = false;
    state_.with([&](State& state) {
      if (state.ending && now >= state.cut_at) cut();
      heartbeat = !state.ending && state.queue.empty() && !state.writing &&
                  now - state.sent_at >= options.heartbeat_interval && hello_seen_.load();
    });
    if (silence > options.lost_after) {
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(silence).count();
      end(make_error(ErrorCode::kPeerLost, Stage::kControl,
                     "silent for " + std::to_string(ms) + " ms"),
          true);
    } else if (heartbeat) {
      // Full or gone: the session ends anyway.
      static_cast<void>(send(encode(wire::CoordinatorMessage(wire::Heartbeat{}))).has_value());
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) return end(make_error(ErrorCode::kPeerLost, Stage::kControl, "stream closed"), true);
    heard_at_ = MonotonicClock().now();
    const std::vector<std::byte> bytes = to_bytes(in_);
    in_.Clear();
    auto message = decode_member_message(bytes);
    if (Status taken = message ? take(*std::move(message)) : Status(message.error()); !taken) {
      host_.events().count("control_protocol_errors_total", 1);
      const Error error = std::move(taken).error();
      return refuse({error.code, error.detail});
    }
    StartRead(&in_);
  }
  void OnWriteDone(bool ok) override {
    state_.with([&](State& state) { state.writing = false; });
    if (!ok) end(make_error(ErrorCode::kPeerLost, Stage::kControl, "write failed"), true);
    pump();
  }
  void OnCancel() override {
    end(make_error(ErrorCode::kPeerLost, Stage::kControl, "connection lost"), true);
  }
  void OnDone() override {
    state_.with([&](State&) { context_ = nullptr; });
    host_.forget(*this);
    const std::shared_ptr<MemberStream> last = std::move(self_);
  }

 private:
  struct State {
    std::deque<std::string> queue;
    std::uint64_t queued_bytes = 0;
    bool writing = false;
    bool overflow = false;
    bool ending = false;
    bool finished = false;
    Error reason;
    TimePoint sent_at;
    TimePoint cut_at;
  };

  static Error slow_error() {
    return make_error(ErrorCode::kResourceLimit, Stage::kControl,
                      "the member did not read what was sent to it");
  }

  // Under the lock of state_: gRPC may let go of the context at any other moment.
  void cut() {
    if (context_ != nullptr) context_->TryCancel();
  }

  Status take(wire::MemberMessage message) {
    if (const auto* hello = std::get_if<wire::Hello>(&message)) {
      const MemberKey key{hello->role, hello->endpoint.member_id};
      if (key_ && (*key_ != key || process_ != hello->endpoint.process)) {
        return failure(ErrorCode::kProtocol, Stage::kControl,
                       "a session cannot change its member: was " + key_->id + ", is " + key.id);
      }
      if (!key_) {
        key_ = key;
        process_ = hello->endpoint.process;
        host_.admit(*this, key, process_);
        hello_seen_ = true;
      }
    } else if (!key_) {
      return failure(ErrorCode::kProtocol, Stage::kControl, "the first message is not a Hello");
    }
    std::lock_guard lock(delivery_);
    if (!closed_told_ && !muted_) {
      message_passed_ = true;
      host_.observer().on_message(id_, std::move(message));
    }
    return ok();
  }

  void tell_closed(Error reason) {
    std::lock_guard lock(delivery_);
    if (message_passed_ && !closed_told_ && !muted_) {
      host_.observer().on_closed(id_, std::move(reason));
    }
    closed_told_ = true;
  }

  // Starts the next write, or the end behind the last one.
  void pump() {
    enum class Next { kNothing, kWrite, kFinish };
    grpc::Status status;
    const Next next = state_.with([&](State& state) {
      if (state.writing || state.finished) return Next::kNothing;
      if (!state.queue.empty()) {
        out_ = to_buffer(state.queue.front());
        state.queued_bytes -= state.queue.front().size();
        state.queue.pop_front();
        state.writing = true;
        state.sent_at = MonotonicClock().now();
        return Next::kWrite;
      }
      if (!state.ending) return Next::kNothing;
      state.finished = true;
      status = to_status(state.reason);
      if (context_ != nullptr) {
        context_->AddTrailingMetadata(kCodeMetadata,
                                      std::to_string(static_cast<int>(state.reason.code)));
      }
      return Next::kFinish;
    });
    if (next == Next::kWrite) StartWrite(&out_);
    if (next == Next::kFinish) Finish(status);
  }

  SessionHost& host_;
  const SessionId id_;
  grpc::CallbackServerContext* context_;  // under the lock of state_
  std::shared_ptr<MemberStream> self_;    // until OnDone
  std::atomic<TimePoint> heard_at_;
  std::atomic<bool> hello_seen_{false};
  grpc::ByteBuffer in_;
  grpc::ByteBuffer out_;
  std::optional<MemberKey> key_;  // set by the reading thread before admit()
  ProcessId process_;
  Guarded<State> state_;

  std::mutex delivery_;  // held while the observer is called: on_closed is the last call
  bool message_passed_ = false;
  bool closed_told_ = false;
  bool muted_ = false;
};

using RawControl =
    pb::Control::WithRawCallbackMethod_Session<pb::Control::WithRawCallbackMethod_Status<
        pb::Control::WithRawCallbackMethod_Resolve<pb::Control::WithRawCallbackMethod_PutLattice<
            pb::Control::WithRawCallbackMethod_GetLattice<pb::Control::Service>>>>>;

Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(
    const ControlServerOptions& options) {
  if (!options.tls.enabled()) {
    WEFT_TRY_STATUS(check_plaintext(options.tls, options.listen));
    return grpc::InsecureServerCredentials();
  }
  // Read once here for the error message; gRPC watches the files from then on.
  WEFT_TRY(const TlsFiles files, read_tls_files(options.tls));
  static_cast<void>(files);
  auto provider = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      options.tls.key_file, options.tls.certificate_file, options.tls.authority_file,
      kCertificateRefreshSeconds);
  grpc::experimental::TlsServerCredentialsOptions tls(provider);
  tls.watch_root_certs();
  tls.watch_identity_key_cert_pairs();
  tls.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(tls);
}

}  // namespace

// Owns:    the gRPC server, the gate and its thread, every session.
// Threads: any.
class ControlServer::Impl final : public RawControl, public SessionHost {
 public:
  Impl(const ControlServerOptions& options, ControlServerObserver& observer, EventSink& events,
       ConnectionGate gate)
      : options_(options), observer_(observer), events_(events), gate_(std::move(gate)) {
    address_ = gate_.address();
  }
  ~Impl() override { close(); }

  weft::Status start() {
    WEFT_TRY(auto credentials, server_credentials(options_));
    wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd_ < 0) {
      return failure(ErrorCode::kResourceLimit, Stage::kControl, "eventfd failed", errno);
    }
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(static_cast<int>(limits::kMemberMessageBytesMax) +
                                     kMessageSlackBytes);
    builder.SetMaxSendMessageSize(static_cast<int>(limits::kStatusBytesMax) + kMessageSlackBytes);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 5000);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 60'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        std::move(credentials));
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      return failure(ErrorCode::kConfig, Stage::kControl, "gRPC did not start its server");
    }
    thread_ = std::thread([this] { run(); });
    return ok();
  }

  const HostPort& address() const { return address_; }

  std::shared_ptr<MemberStream> find(SessionId id) {
    return registry_.with([&](Registry& registry) -> std::shared_ptr<MemberStream> {
      const auto found = registry.sessions.find(id.value);
      return found == registry.sessions.end() ? nullptr : found->second;
    });
  }

  std::uint32_t session_count() const {
    return registry_.with([](const Registry& registry) {
      return static_cast<std::uint32_t>(registry.sessions.size());
    });
  }

  void close() {
    if (closed_.exchange(true)) return;
    for (const auto& session : all()) {
      session->mute();
      session->end(make_error(ErrorCode::kPeerLost, Stage::kControl, "the coordinator stops"),
                   false);
    }
    if (thread_.joinable()) {
      const std::uint64_t one = 1;
      WEFT_ASSERT(write(wake_fd_, &one, sizeof(one)) == sizeof(one));
      thread_.join();
    }
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
      server_->Wait();
    }
    const bool gone = registry_.wait_for(
        kShutdownGrace, [](const Registry& registry) { return registry.sessions.empty(); },
        [](Registry&, bool empty) { return empty; });
    WEFT_ASSERT(gone);  // gRPC ends every call in Shutdown()
    server_.reset();
    if (wake_fd_ >= 0) ::close(wake_fd_);
    wake_fd_ = -1;
  }

  // --- SessionHost ---
  const ControlServerOptions& options() const override { return options_; }
  ControlServerObserver& observer() override { return observer_; }
  EventSink& events() override { return events_; }

  void admit(MemberStream& session, const MemberKey& key, ProcessId process) override {
    const std::shared_ptr<MemberStream> before =
        registry_.with([&](Registry& registry) -> std::shared_ptr<MemberStream> {
          auto& current = registry.by_member[key];
          const auto found = registry.sessions.find(std::exchange(current, session.id().value));
          return found == registry.sessions.end() ? nullptr : found->second;
        });
    if (before == nullptr || before.get() == &session) return;
    events_.count("control_sessions_replaced_total", 1);
    if (before->process() == process) {
      before->end(make_error(ErrorCode::kPeerLost, Stage::kControl, "the member reconnected"),
                  true);
    } else {
      before->refuse(
          {ErrorCode::kFenced, "member '" + key.id + "' is now process " + to_hex(process.value)});
    }
  }

  void forget(MemberStream& session) override {
    registry_.update([&](Registry& registry) {
      registry.sessions.erase(session.id().value);
      if (!session.key()) return;
      const auto found = registry.by_member.find(*session.key());
      const bool current = found != registry.by_member.end() && found->second == session.id().value;
      if (current) registry.by_member.erase(found);
    });
  }

  // --- gRPC ---
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Session(
      grpc::CallbackServerContext* context) override {
    auto session =
        std::make_shared<MemberStream>(*this, SessionId{next_session_.fetch_add(1)}, context);
    const bool room = registry_.with([&](Registry& registry) {
      registry.sessions.emplace(session->id().value, session);
      return registry.sessions.size() <= options_.sessions_max;
    });
    MemberStream* const reactor = session.get();
    reactor->start(std::move(session));
    if (closed_.load()) reactor->mute();
    if (!room || closed_.load()) {
      reactor->end(make_error(ErrorCode::kResourceLimit, Stage::kControl,
                              "the coordinator takes no further session"),
                   true);
    }
    return reactor;
  }

  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const grpc::ByteBuffer*,
                                   grpc::ByteBuffer* answer) override {
    *answer = to_buffer(encode(observer_.status()));
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* Resolve(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* asked,
                                    grpc::ByteBuffer* answer) override {
    *answer = to_buffer(std::string());
    auto call = std::make_shared<UnaryCall>(context);
    call->start(call);
    const auto request = decode_resolve_request(to_bytes(*asked));
    if (!request) {
      call->answer(request.error());
    } else {
      observer_.on_resolve(request->refit, request->commit,
                           [call](const weft::Status& status) { call->answer(status); });
    }
    return call.get();
  }

  grpc::ServerUnaryReactor* PutLattice(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* asked,
                                       grpc::ByteBuffer* answer) override {
    *answer = to_buffer(std::string());
    return UnaryCall::answered(context, put_lattice_piece(lattices_, *asked));
  }

  grpc::ServerUnaryReactor* GetLattice(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* asked,
                                       grpc::ByteBuffer* answer) override {
    auto found = get_lattice_piece(lattices_, *asked);
    if (!found) {
      *answer = to_buffer(std::string());
      return UnaryCall::answered(context, found.error());
    }
    *answer = *std::move(found);
    return UnaryCall::answered(context, ok());
  }

 private:
  struct Registry {
    std::map<std::uint64_t, std::shared_ptr<MemberStream>> sessions;
    std::map<MemberKey, std::uint64_t> by_member;
  };

  std::vector<std::shared_ptr<MemberStream>> all() {
    std::vector<std::shared_ptr<MemberStream>> sessions;
    registry_.with([&](Registry& registry) {
      for (const auto& [id, session] : registry.sessions) sessions.push_back(session);
    });
    return sessions;
  }

  // The gate's thread: connections in, and the clock of every session.
  void run() {
    const MonotonicClock clock;
    TimePoint ticked_at = clock.now();
    const auto hand_on = [this](int fd) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = fd;
      acceptor_->HandleNewConnection(&connection);
    };
    while (!closed_.load()) {
      gate_.run_once(kTick, wake_fd_, hand_on, events_);
      const TimePoint now = clock.now();
      if (now - ticked_at < kTick) continue;
      const Duration pause = now - ticked_at > 5 * kTick ? now - ticked_at - kTick : Duration{};
      ticked_at = now;
      for (const auto& session : all()) session->tick(now, pause);
    }
  }

  const ControlServerOptions options_;
  ControlServerObserver& observer_;
  EventSink& events_;
  ConnectionGate gate_;
  HostPort address_;
  int wake_fd_ = -1;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  Guarded<Registry> registry_;
  BodyShelf lattices_;
  std::atomic<std::uint64_t> next_session_{1};
  std::atomic<bool> closed_{false};
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;
};

ControlServer::ControlServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlServer::~ControlServer() = default;

Result<std::unique_ptr<ControlServer>> ControlServer::open(const ControlServerOptions& options,
                                                           ControlServerObserver& observer,
                                                           EventSink& events) {
  ConnectionGateOptions gate_options;
  gate_options.connections_max = options.connections_max;
  WEFT_TRY(auto gate, ConnectionGate::open(options.listen, gate_options));
  auto impl = std::make_unique<Impl>(options, observer, events, std::move(gate));
  WEFT_TRY_STATUS(impl->start());
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
}

const HostPort& ControlServer::address() const { return impl_->address(); }

Status ControlServer::send(SessionId session, const wire::CoordinatorMessage& message) {
  std::string bytes = encode(message);
  if (bytes.size() > limits::kControlMessageBytesMax) {
    return failure(ErrorCode::kResourceLimit, Stage::kControl,
                   "control message of " + std::to_string(bytes.size()) + " bytes, at most " +
                       std::to_string(limits::kControlMessageBytesMax));
  }
  const auto found = impl_->find(session);
  if (found == nullptr) {
    return failure(ErrorCode::kPeerLost, Stage::kControl, "no such session");
  }
  return found->send(std::move(bytes));
}

void ControlServer::refuse(SessionId session, const wire::Cause& cause) {
  if (const auto found = impl_->find(session); found != nullptr) found->refuse(cause);
}

void ControlServer::end(SessionId session) {
  if (const auto found = impl_->find(session); found != nullptr) {
    found->end(make_error(ErrorCode::kPeerLost, Stage::kControl, "closed by the coordinator"),
               false);
  }
}

std::uint32_t ControlServer::session_count() const { return impl_->session_count(); }

void ControlServer::close() { impl_->close(); }

}  // namespace weft::transport
