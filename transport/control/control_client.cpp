// SPDX-License-Identifier: Apache-2.0
#include "transport/control/control_client.hpp"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <random>
#include <thread>
#include <utility>

#include "transport/control/grpc_bytes.hpp"
#include "transport/control/message_codec.hpp"
#include "transport/control/tls_files.hpp"
#include "weft/base/assert.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/guarded.hpp"
#include "weft/base/limits.hpp"
#include "weft/control.grpc.pb.h"
#include "weft/wire/digest.hpp"

namespace weft::transport {
namespace {

namespace pb = weft::control::v1;

constexpr std::chrono::milliseconds kTick{50};
constexpr std::chrono::seconds kCutGrace{5};  // gRPC ends a cancelled call well within it
constexpr int kMessageSlackBytes = 4096;

// A literal goes past the name resolver.
std::string target_of(const HostPort& address) {
  if (address.is_ipv4()) return "ipv4:" + to_string(address);
  if (!address.is_ipv6()) return "dns:///" + to_string(address);
  std::string text = to_string(address);
  if (const std::size_t zone = text.find('%'); zone != std::string::npos) {
    text.replace(zone, 1, "%25");
  }
  return "ipv6:" + text;
}

// The files are read at every connect: a renewed certificate is used from then on.
Result<std::shared_ptr<grpc::Channel>> make_channel(const HostPort& coordinator,
                                                    const TlsOptions& tls, int receive_bytes_max) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(receive_bytes_max + kMessageSlackBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // not by way of $http_proxy
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  if (tls.enabled()) {
    WEFT_TRY(TlsFiles files, read_tls_files(tls));
    credentials = grpc::SslCredentials(
        {std::move(files.authority), std::move(files.key), std::move(files.certificate)});
    if (!tls.server_name.empty()) arguments.SetSslTargetNameOverride(tls.server_name);
  } else {
    WEFT_TRY_STATUS(check_plaintext(tls, coordinator));
    credentials = grpc::InsecureChannelCredentials();
  }
  return grpc::CreateCustomChannel(target_of(coordinator), credentials, arguments);
}

Error error_of(const grpc::Status& status, const grpc::ClientContext& context,
               const HostPort& coordinator) {
  ErrorCode code = code_of(status.error_code());
  const auto& metadata = context.GetServerTrailingMetadata();
  if (const auto sent = metadata.find(kCodeMetadata); sent != metadata.end()) {
    int number = 0;
    std::from_chars(sent->second.data(), sent->second.data() + sent->second.size(), number);
    if (number >= 1 && number <= kErrorCodeCount) code = static_cast<ErrorCode>(number);
  }
  const std::string what = status.ok() ? "stream closed" : status.error_message();
  return make_error(code, Stage::kControl, "coordinator " + to_string(coordinator) + ": " + what,
                    static_cast<std::int32_t>(status.error_code()));
}

// One attempt at a stream, from connect to its end.
// Life:    start() -> ... -> OnDone(): wait_done() is true from then on, and gRPC has let go of it.
// Invariant: it is destroyed by whoever waits, never in OnDone: with the last channel of the
//          process gRPC 1.51 joins its callback threads, and one of them cannot join itself.
// Threads: any.
class ClientStream final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  ClientStream(const ControlClientOptions& options, ControlClientObserver& observer,
               const std::shared_ptr<grpc::Channel>& channel)
      : options_(options), observer_(observer), stub_(channel) {}

  void start() {
    heard_at_ = MonotonicClock().now();
    stub_.PrepareBidiStreamingCall(&context_, kSessionMethod, {}, this);
    AddHold();  // writes start outside of gRPC's own calls
    StartCall();
  }

  weft::Status send(std::string bytes) {
    const bool taken = state_->with([&](State& state) {
      if (!state.connected || state.over || state.closing) return false;
      if (state.queue.size() >= options_.send_queue_max) state.over = true;
      if (!state.over) state.queue.push_back(std::move(bytes));
      return true;
    });
    if (!taken) {
      return failure(ErrorCode::kPeerLost, Stage::kControl, "not connected to the coordinator");
    }
    if (state_->with([](const State& state) { return state.over; })) {
      cut(make_error(ErrorCode::kResourceLimit, Stage::kControl,
                     "the coordinator does not read: " + std::to_string(options_.send_queue_max) +
                         " messages wait"));
      return failure(ErrorCode::kResourceLimit, Stage::kControl, "the send queue is full");
    }
    pump();
    return ok();
  }

  // What is queued goes out, then the stream is closed from this side.
  void close() {
    state_->with([](State& state) { state.closing = true; });
    pump();
  }

  // At once. The first reason counts.
  void cut(Error reason) {
    state_->with([&](State& state) {
      if (!state.reason) state.reason = std::move(reason);
      state.over = true;
      state.queue.clear();
    });
    context_.TryCancel();
  }

  bool connected() const {
    return state_->with([](const State& s) { return s.connected && !s.over && !s.done; });
  }
  // Connected at any time of its life.
  bool was_connected() const {
    return state_->with([](const State& s) { return s.connected; });
  }
  bool refused() const { return refused_.load(); }
  bool wait_done(std::chrono::milliseconds timeout) {
    return state_->wait_for(
        timeout, [](const State& s) { return s.done; }, [](State&, bool done) { return done; });
  }
  // After done.
  Error error() const {
    return state_->with([](const State& s) { return s.reason.value_or(s.end); });
  }

  void tick(TimePoint now, Duration pause) {
    if (pause > Duration::zero()) heard_at_ = heard_at_.load() + pause;
    const Duration silence = now - heard_at_.load();
    if (!was_connected()) {
      if (silence > options_.connect_timeout) {
        cut(make_error(ErrorCode::kTimeout, Stage::kControl,
                       "coordinator " + to_string(options_.coordinator) + ": no answer within " +
                           std::to_string(options_.connect_timeout.count()) + " ms"));
      }
      return;
    }
    if (silence > options_.lost_after) {
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(silence).count();
      cut(make_error(ErrorCode::kPeerLost, Stage::kControl,
                     "coordinator " + to_string(options_.coordinator) + " is silent for " +
                         std::to_string(ms) + " ms"));
      return;
    }
    // The first message is the observer's Hello; a heartbeat must not come before it.
    const bool due = state_->with([&](const State& s) {
      return s.spoken && s.queue.empty() && !s.writing &&
             now - s.sent_at >= options_.heartbeat_interval;
    });
    if (due) static_cast<void>(send(encode(wire::MemberMessage(wire::Heartbeat{}))).has_value());
  }

  void OnReadInitialMetadataDone(bool ok) override {
    if (!ok) return finish_reading();
    heard_at_ = MonotonicClock().now();
    const bool open = state_->with([](State& state) {
      state.connected = !state.over && !state.closing;
      return state.connected;
    });
    if (open) observer_.on_connected();
    StartRead(&in_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return finish_reading();
    heard_at_ = MonotonicClock().now();
    auto message = decode_coordinator_message(to_bytes(in_));
    in_.Clear();
    if (!message) {
      cut(std::move(message).error());
    } else if (!muted_.load()) {
      if (std::holds_alternative<wire::SessionRefused>(*message)) refused_ = true;
      observer_.on_message(*std::move(message));
    }
    StartRead(&in_);
  }
  void OnWriteDone(bool ok) override {
    const bool over = state_->with([&](State& state) {
      state.writing = false;
      if (!ok) state.over = true;
      return state.over;
    });
    if (over) return release();
    pump();
  }
  void OnWritesDoneDone(bool) override {
    state_->with([](State& state) { state.writing = false; });
    release();
  }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<Guarded<State>> kept = state_;
    Error end = error_of(status, context_, options_.coordinator);
    kept->update([&](State& state) {
      state.end = std::move(end);
      state.done = true;
    });
  }
  void mute() { muted_ = true; }

 private:
  struct State {
    std::deque<std::string> queue;
    bool connected = false;
    bool spoken = false;   // something has been sent
    bool writing = false;  // a write, or the closing of our side, is under way
    bool closing = false;
    bool closed = false;  // our side is closed
    bool over = false;    // nothing more is sent
    bool reading = true;
    bool released = false;
    bool done = false;
    TimePoint sent_at;
    std::optional<Error> reason;  // ours
    Error end;                    // gRPC's
  };

  void finish_reading() {
    state_->with([](State& state) {
      state.reading = false;
      state.over = true;
      state.queue.clear();
    });
    release();
  }

  // The hold goes once nothing more will be written and nothing more can be read.
  void release() {
    const bool last = state_->with([](State& state) {
      if (state.released || state.writing || state.reading) return false;
      return state.released = true;
    });
    if (last) RemoveHold();
  }

  void pump() {
    enum class Next { kNothing, kWrite, kClose };
    const Next next = state_->with([&](State& state) {
      if (state.writing || state.over || state.closed) return Next::kNothing;
      if (!state.queue.empty()) {
        out_ = to_buffer(state.queue.front());
        state.queue.pop_front();
        state.writing = state.spoken = true;
        state.sent_at = MonotonicClock().now();
        return Next::kWrite;
      }
      if (!state.closing) return Next::kNothing;
      state.writing = state.closed = true;
      return Next::kClose;
    });
    if (next == Next::kWrite) StartWrite(&out_);
    if (next == Next::kClose) StartWritesDone();
  }

  const ControlClientOptions& options_;
  ControlClientObserver& observer_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer in_;
  grpc::ByteBuffer out_;
  std::atomic<TimePoint> heard_at_;
  std::atomic<bool> refused_{false};
  std::atomic<bool> muted_{false};
  const std::shared_ptr<Guarded<State>> state_ = std::make_shared<Guarded<State>>();
};

}  // namespace

// Owns:    the connecting thread and the one stream.
// Threads: any.
class ControlClient::Impl {
 public:
  Impl(const ControlClientOptions& options, ControlClientObserver& observer, EventSink& events)
      : options_(options),
        observer_(observer),
        events_(events),
        random_(options.jitter_seed != 0 ? options.jitter_seed : std::random_device{}()) {}
  ~Impl() { close(std::chrono::milliseconds(0)); }

  void start() {
    thread_ = std::thread([this] { run(); });
  }

  Status send(std::string bytes) {
    const auto stream = current();
    if (stream == nullptr) {
      return failure(ErrorCode::kPeerLost, Stage::kControl, "not connected to the coordinator");
    }
    return stream->send(std::move(bytes));
  }

  bool connected() const {
    const auto stream = current();
    return stream != nullptr && stream->connected();
  }

  void close(std::chrono::milliseconds grace) {
    shared_.update([&](Shared& shared) {
      if (shared.stopping) return;
      shared.stopping = true;
      shared.grace = grace;
    });
    if (thread_.joinable()) thread_.join();
  }

 private:
  struct Shared {
    std::shared_ptr<ClientStream> stream;
    bool stopping = false;
    std::chrono::milliseconds grace{0};
  };

  std::shared_ptr<ClientStream> current() const {
    return shared_.with([](const Shared& shared) { return shared.stream; });
  }
  bool stopping() const {
    return shared_.with([](const Shared& shared) { return shared.stopping; });
  }

  // The client's own thread.
  void run() {
    std::chrono::milliseconds backoff = options_.backoff_first;
    while (!stopping()) {
      bool was_connected = false;
      bool refused = false;
      Error error = run_stream(was_connected, refused);
      if (stopping()) return;
      events_.count(was_connected ? "control_disconnects_total" : "control_connect_failures_total",
                    1);
      observer_.on_disconnected(std::move(error));
      if (refused) return;
      if (was_connected) backoff = options_.backoff_first;
      // Half of the pause is certain and half is chance: a fleet must not come back as one.
      std::uniform_int_distribution<std::int64_t> jitter(backoff.count() / 2, backoff.count());
      shared_.wait_for(
          std::chrono::milliseconds(jitter(random_)), [](const Shared& s) { return s.stopping; },
          [](Shared&, bool) {});
      backoff = std::min(backoff * 2, options_.backoff_max);
    }
  }

  Error run_stream(bool& was_connected, bool& refused) {
    auto channel = make_channel(options_.coordinator, options_.tls,
                                static_cast<int>(limits::kControlMessageBytesMax));
    if (!channel) return std::move(channel).error();
    const auto stream = std::make_shared<ClientStream>(options_, observer_, *channel);
    shared_.with([&](Shared& shared) { shared.stream = stream; });
    stream->start();
    const MonotonicClock clock;
    TimePoint ticked_at = clock.now();
    while (!stream->wait_done(kTick)) {
      const TimePoint now = clock.now();
      stream->tick(now, now - ticked_at > 10 * kTick ? now - ticked_at - kTick : Duration{});
      ticked_at = now;
      if (stopping()) {
        end_stream(*stream);
        break;
      }
    }
    shared_.with([](Shared& shared) { shared.stream = nullptr; });
    was_connected = stream->was_connected();
    refused = stream->refused();
    return stream->error();
  }

  void end_stream(ClientStream& stream) {
    stream.mute();
    stream.close();
    const auto grace = shared_.with([](const Shared& shared) { return shared.grace; });
    if (stream.wait_done(grace)) return;
    stream.cut(make_error(ErrorCode::kPeerLost, Stage::kControl, "closed by this side"));
    // gRPC promises the end of a cancelled call; it still has the object until then.
    const bool done = stream.wait_done(kCutGrace);
    WEFT_ASSERT(done);
  }

  const ControlClientOptions options_;
  ControlClientObserver& observer_;
  EventSink& events_;
  std::mt19937_64 random_;
  Guarded<Shared> shared_;
  std::thread thread_;
};

ControlClient::ControlClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlClient::~ControlClient() = default;

Result<std::unique_ptr<ControlClient>> ControlClient::open(const ControlClientOptions& options,
                                                           ControlClientObserver& observer,
                                                           EventSink& events) {
  // Wrong files are told now, not by a loop of failing connects.
  if (options.tls.enabled()) {
    WEFT_TRY([[maybe_unused]] const TlsFiles files, read_tls_files(options.tls));
  } else {
    WEFT_TRY_STATUS(check_plaintext(options.tls, options.coordinator));
  }
  auto impl = std::make_unique<Impl>(options, observer, events);
  impl->start();
  return std::unique_ptr<ControlClient>(new ControlClient(std::move(impl)));
}

Status ControlClient::send(const wire::MemberMessage& message) {
  std::string bytes = encode(message);
  if (bytes.size() > limits::kMemberMessageBytesMax) {
    return failure(ErrorCode::kResourceLimit, Stage::kControl,
                   "control message of " + std::to_string(bytes.size()) + " bytes, at most " +
                       std::to_string(limits::kMemberMessageBytesMax));
  }
  return impl_->send(std::move(bytes));
}

bool ControlClient::connected() const { return impl_->connected(); }

void ControlClient::close(std::chrono::milliseconds grace) { impl_->close(grace); }

Result<FleetStatus> fetch_status(const ControlCallOptions& options) {
  WEFT_TRY(const auto channel, make_channel(options.coordinator, options.tls,
                                            static_cast<int>(limits::kStatusBytesMax)));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + options.timeout);
  pb::FleetStatus answer;
  const grpc::Status status = pb::Control::NewStub(channel)->Status(&context, {}, &answer);
  if (!status.ok()) return error_of(status, context, options.coordinator);
  const std::string bytes = answer.SerializeAsString();
  return decode_fleet_status(std::as_bytes(std::span(bytes)));
}

Status request_resolve(const ControlCallOptions& options, const RefitId& refit, bool commit) {
  WEFT_TRY(const auto channel, make_channel(options.coordinator, options.tls,
                                            static_cast<int>(limits::kControlMessageBytesMax)));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + options.timeout);
  pb::ResolveRequest request;
  request.ParseFromString(encode(ResolveRequest{refit, commit}));
  pb::ResolveReply answer;
  const grpc::Status status = pb::Control::NewStub(channel)->Resolve(&context, request, &answer);
  if (!status.ok()) return error_of(status, context, options.coordinator);
  return ok();
}

namespace {

pb::LatticePiece piece_of(const Digest& digest, std::uint64_t offset) {
  pb::LatticePiece piece;
  piece.mutable_digest()->set_low(digest.low);
  piece.mutable_digest()->set_high(digest.high);
  piece.set_offset(offset);
  return piece;
}

}  // namespace

Status put_lattice(const ControlCallOptions& options, const Digest& digest,
                   std::span<const std::byte> body) {
  WEFT_TRY(const auto channel, make_channel(options.coordinator, options.tls,
                                            static_cast<int>(limits::kMemberMessageBytesMax)));
  const auto stub = pb::Control::NewStub(channel);
  const auto deadline = std::chrono::system_clock::now() + options.timeout;
  {
    grpc::ClientContext context;
    context.set_deadline(deadline);
    pb::LatticePiece answer;
    if (stub->GetLattice(&context, piece_of(digest, 0), &answer).ok() &&
        answer.total_bytes() == body.size()) {
      return ok();
    }
  }
  for (std::size_t offset = 0; offset < body.size();) {
    const auto part = body.subspan(
        offset, std::min<std::size_t>(body.size() - offset, limits::kLatticePieceBytesMax));
    grpc::ClientContext context;
    context.set_deadline(deadline);
    pb::LatticePiece piece = piece_of(digest, offset);
    piece.set_total_bytes(body.size());
    piece.set_piece(part.data(), part.size());
    pb::LatticePiece answer;
    const grpc::Status status = stub->PutLattice(&context, piece, &answer);
    if (!status.ok()) return error_of(status, context, options.coordinator);
    offset += part.size();
  }
  return ok();
}

Result<std::vector<std::byte>> fetch_lattice(const ControlCallOptions& options,
                                             const Digest& digest) {
  WEFT_TRY(const auto channel, make_channel(options.coordinator, options.tls,
                                            static_cast<int>(limits::kMemberMessageBytesMax)));
  const auto stub = pb::Control::NewStub(channel);
  const auto deadline = std::chrono::system_clock::now() + options.timeout;
  std::vector<std::byte> body;
  std::uint64_t total = 0;
  do {
    grpc::ClientContext context;
    context.set_deadline(deadline);
    pb::LatticePiece answer;
    const grpc::Status status = stub->GetLattice(&context, piece_of(digest, body.size()), &answer);
    if (!status.ok()) return error_of(status, context, options.coordinator);
    const auto piece = std::as_bytes(std::span(answer.piece()));
    total = answer.total_bytes();
    if (piece.empty() || total > limits::kLatticeBytesMax || piece.size() > total - body.size()) {
      return failure(ErrorCode::kProtocol, Stage::kControl,
                     "lattice " + to_hex(digest) + ": its pieces do not add up");
    }
    body.insert(body.end(), piece.begin(), piece.end());
  } while (body.size() < total);
  if (wire::digest128(body) != digest) {
    return failure(ErrorCode::kCorruptPayload, Stage::kControl,
                   "lattice " + to_hex(digest) + " arrived with other bytes");
  }
  return body;
}

}  // namespace weft::transport
