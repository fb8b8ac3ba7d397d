// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/stubs/logging.h>

#include <optional>
#include <string>
#include <utility>

#include "transport/control/message_codec.hpp"
#include "weft/base/limits.hpp"
#include "weft/control.pb.h"

namespace weft::transport {
namespace {

namespace pb = weft::control::v1;

std::optional<wire::ScrubReport> read_scrub(bool present, const pb::ScrubReport& from) {
  if (!present) return std::nullopt;
  wire::ScrubReport to{std::nullopt, from.passes(), from.chunks_checked(), from.chunk_count(),
                       from.damaged_chunks()};
  if (from.has_age_ms()) to.age_ms = from.age_ms();
  return to;
}

// Walks one message and keeps the first thing that is wrong with it.
// Threads: one at a time.
class MessageReader {
 public:
  bool ok() const { return wrong_.empty(); }
  Error error() const {
    return make_error(ErrorCode::kProtocol, Stage::kControl, "control message: " + wrong_);
  }
  void require(bool holds, const char* what) {
    if (!holds && ok()) wrong_ = what;
  }

  std::string text(const std::string& from, std::size_t bytes_max, const char* what) {
    require(from.size() <= bytes_max, what);
    return ok() ? from : std::string();
  }
  // From 1 to `last`; 0 is proto3's "not set".
  template <typename Enum>
  Enum enumerator(int from, Enum last, const char* what) {
    require(from >= 1 && from <= static_cast<int>(last), what);
    return ok() ? static_cast<Enum>(from) : last;
  }

  Bits128 bits128(bool present, const pb::Bits128& from) {
    require(present, "a 128-bit field is missing");
    return {from.low(), from.high()};
  }
  Digest digest(bool present, const pb::Bits128& from) { return Digest{bits128(present, from)}; }
  FleetId fleet(bool present, const pb::Bits128& from) { return FleetId{bits128(present, from)}; }
  Epoch epoch(bool present, const pb::Epoch& from) {
    require(present, "epoch is missing");
    return {from.number(), ProcessId{from.coordinator()}};
  }
  RefitId refit(bool present, const pb::RefitId& from) {
    require(present, "refit is missing");
    return {epoch(from.has_epoch(), from.epoch()), from.attempt()};
  }
  Content content(bool present, const pb::Content& from) {
    require(present, "content is missing");
    return {Version{from.version()}, digest(from.has_lattice(), from.lattice()),
            digest(from.has_root(), from.root())};
  }
  wire::PreparedRefit prepared(bool present, const pb::PreparedRefit& from) {
    require(present, "prepared refit is missing");
    return {refit(from.has_refit(), from.refit()), content(from.has_base(), from.base()),
            content(from.has_target(), from.target())};
  }
  wire::Cause cause(bool present, const pb::Cause& from) {
    require(present, "cause is missing");
    require(from.code() >= 1 && from.code() <= kErrorCodeCount, "unknown error code");
    wire::Cause cause;
    if (ok()) cause.code = static_cast<ErrorCode>(from.code());
    cause.detail = text(from.detail(), limits::kErrorDetailBytesMax, "detail is too long");
    return cause;
  }
  std::optional<wire::Cause> optional_cause(bool present, const pb::Cause& from) {
    if (!present) return std::nullopt;
    return cause(true, from);
  }

  std::string member_id(const std::string& from) {
    require(!from.empty(), "member id is empty");
    return text(from, limits::kMemberIdBytesMax, "member id is too long");
  }
  wire::Endpoint endpoint(bool present, const pb::Endpoint& from) {
    require(present, "endpoint is missing");
    require(from.rails_size() <= static_cast<int>(limits::kRailsMax), "too many rails");
    wire::Endpoint to;
    to.member_id = member_id(from.member_id());
    to.process = ProcessId{from.process()};
    to.region = text(from.region(), limits::kRegionBytesMax, "region is too long");
    for (int i = 0; ok() && i < from.rails_size(); ++i) to.rails.push_back(rail(from.rails(i)));
    return to;
  }
  wire::RailAddress rail(const pb::RailAddress& from) {
    require(from.address().size() <= limits::kFabricAddressBytesMax, "rail address is too long");
    wire::RailAddress to;
    to.provider = text(from.provider(), limits::kProviderNameBytesMax, "provider is too long");
    to.protocol = from.protocol();
    if (ok()) {
      const auto* bytes = reinterpret_cast<const std::byte*>(from.address().data());
      to.address.assign(bytes, bytes + from.address().size());
    }
    return to;
  }
  wire::ProducerSeal seal(bool present, const pb::ProducerSeal& from) {
    require(present, "producer seal is missing");
    wire::ProducerSeal to;
    to.frame_count = from.frame_count();
    to.frames = digest(from.has_frames(), from.frames());
    to.part = digest(from.has_part(), from.part());
    to.changed_elements = from.changed_elements();
    to.wire_bytes = from.wire_bytes();
    return to;
  }
  wire::Manifest manifest(bool present, const pb::Manifest& from) {
    require(present, "manifest is missing");
    wire::Manifest to;
    to.refit = refit(from.has_refit(), from.refit());
    to.fleet = fleet(from.has_fleet(), from.fleet());
    to.base = content(from.has_base(), from.base());
    to.target = content(from.has_target(), from.target());
    to.schema = digest(from.has_schema(), from.schema());
    require(from.producers_size() <= static_cast<int>(limits::kProducersMax),
            "too many producers in the manifest");
    for (int i = 0; ok() && i < from.producers_size(); ++i) {
      to.producers.push_back(seal(true, from.producers(i)));
    }
    return to;
  }
  ProducerIndex producer(std::uint32_t from) {
    require(from < limits::kProducersMax, "producer index is too large");
    return ProducerIndex{from};
  }
  std::uint32_t producer_count(std::uint32_t from) {
    require(from >= 1 && from <= limits::kProducersMax, "producer count is out of range");
    return from;
  }

 private:
  std::string wrong_;
};

wire::Hello read(MessageReader& in, const pb::Hello& from) {
  wire::Hello to;
  to.role = in.enumerator(from.role(), wire::Role::kProducer, "unknown role");
  to.endpoint = in.endpoint(from.has_endpoint(), from.endpoint());
  to.fleet = in.fleet(from.has_fleet(), from.fleet());
  to.epoch = in.epoch(from.has_epoch(), from.epoch());
  to.state = in.enumerator(from.state(), wire::MemberState::kRehashing, "unknown member state");
  in.require(to.state != wire::MemberState::kLost || !in.ok(), "a member says it is lost");
  to.cause = in.optional_cause(from.has_cause(), from.cause());
  to.schema = in.digest(from.has_schema(), from.schema());
  to.content = in.content(from.has_content(), from.content());
  if (from.has_prepared()) to.prepared = in.prepared(true, from.prepared());
  if (from.has_begun()) to.begun = in.refit(true, from.begun());
  to.ready = from.ready();
  return to;
}

wire::Begin read(MessageReader& in, const pb::Begin& from) {
  wire::Begin to;
  to.producer = in.producer(from.producer());
  to.producer_count = in.producer_count(from.producer_count());
  in.require(from.producer() < from.producer_count(), "producer index is beyond the count");
  to.request = from.request();
  to.base = in.content(from.has_base(), from.base());
  to.target_version = Version{from.target_version()};
  to.schema = in.digest(from.has_schema(), from.schema());
  to.base_part = in.digest(from.has_base_part(), from.base_part());
  to.target_part = in.digest(from.has_target_part(), from.target_part());
  to.model_bytes = from.model_bytes();
  to.full = from.full();
  to.shape = in.text(from.shape(), limits::kShapeBytesMax, "shape is too long");
  return to;
}

wire::SealReport read(MessageReader& in, const pb::SealReport& from) {
  return {in.refit(from.has_refit(), from.refit()), in.producer(from.producer()),
          in.seal(from.has_seal(), from.seal())};
}

wire::Progress read(MessageReader& in, const pb::Progress& from) {
  wire::Progress to;
  to.refit = in.refit(from.has_refit(), from.refit());
  to.frames = from.frames();
  to.bytes = from.bytes();
  to.lost_peer = in.text(from.lost_peer(), limits::kMemberIdBytesMax, "lost peer is too long");
  return to;
}

wire::Vote read(MessageReader& in, const pb::Vote& from) {
  wire::Vote to;
  to.refit = in.refit(from.has_refit(), from.refit());
  to.yes = from.yes();
  to.cause = in.optional_cause(from.has_cause(), from.cause());
  to.manifest = in.digest(from.has_manifest(), from.manifest());
  to.target_root = in.digest(from.has_target_root(), from.target_root());
  return to;
}

wire::Ack read(MessageReader& in, const pb::Ack& from) {
  return {in.refit(from.has_refit(), from.refit()), in.content(from.has_content(), from.content()),
          in.optional_cause(from.has_cause(), from.cause())};
}

wire::Welcome read(MessageReader& in, const pb::Welcome& from) {
  return {in.fleet(from.has_fleet(), from.fleet()), in.epoch(from.has_epoch(), from.epoch()),
          in.content(from.has_committed(), from.committed())};
}

wire::TreeNode read(MessageReader& in, const pb::TreeNode& from, std::size_t node_count) {
  wire::TreeNode to;
  if (from.has_parent()) {
    in.require(from.parent() < node_count, "parent is beyond the nodes");
    to.parent = NodeIndex{from.parent()};
  }
  in.require(static_cast<std::size_t>(from.children_size()) <= node_count, "too many children");
  for (int i = 0; in.ok() && i < from.children_size(); ++i) {
    in.require(from.children(i) < node_count, "child is beyond the nodes");
    to.children.push_back(NodeIndex{from.children(i)});
  }
  return to;
}

wire::Rehash read(MessageReader& in, const pb::Rehash& from) {
  return {in.refit(from.has_refit(), from.refit()), in.digest(from.has_schema(), from.schema()),
          in.digest(from.has_lattice(), from.lattice())};
}

wire::Plan read(MessageReader& in, const pb::Plan& from) {
  wire::Plan to;
  to.refit = in.refit(from.has_refit(), from.refit());
  to.revision = from.revision();
  to.fleet = in.fleet(from.has_fleet(), from.fleet());
  to.base = in.content(from.has_base(), from.base());
  to.target_version = Version{from.target_version()};
  to.schema = in.digest(from.has_schema(), from.schema());
  to.shape = in.text(from.shape(), limits::kShapeBytesMax, "shape is too long");
  to.producer_count = in.producer_count(from.producer_count());
  to.trees_open_max = from.trees_open_max();
  in.require(from.requests_size() <= static_cast<int>(limits::kProducersMax), "too many requests");
  if (in.ok()) to.requests.assign(from.requests().begin(), from.requests().end());
  const auto node_count = static_cast<std::size_t>(from.nodes_size());
  in.require(node_count <= std::size_t{limits::kMembersMax} + limits::kProducersMax,
             "too many nodes in the plan");
  in.require(to.producer_count <= node_count, "fewer nodes than producers");
  in.require(from.trees_size() <= static_cast<int>(limits::kProducersMax), "too many trees");
  for (int i = 0; in.ok() && i < from.nodes_size(); ++i) {
    to.nodes.push_back(in.endpoint(true, from.nodes(i)));
  }
  for (int t = 0; in.ok() && t < from.trees_size(); ++t) {
    const pb::Tree& tree = from.trees(t);
    in.require(static_cast<std::size_t>(tree.nodes_size()) == node_count,
               "a tree does not place every node");
    wire::Plan::Tree& out = to.trees.emplace_back();
    for (int i = 0; in.ok() && i < tree.nodes_size(); ++i) {
      out.nodes.push_back(read(in, tree.nodes(i), node_count));
    }
  }
  return to;
}

wire::Decision read(MessageReader& in, const pb::Decision& from) {
  return {in.refit(from.has_refit(), from.refit()),
          in.enumerator(from.verdict(), wire::Verdict::kUndecided, "unknown verdict"),
          in.content(from.has_base(), from.base()), in.content(from.has_target(), from.target()),
          in.optional_cause(from.has_cause(), from.cause())};
}

wire::BeginRefused read(MessageReader& in, const pb::BeginRefused& from) {
  return {from.request(), from.already_committed(), in.cause(from.has_cause(), from.cause()),
          in.content(from.has_committed(), from.committed())};
}

wire::RefitOutcome read(MessageReader& in, const pb::RefitOutcome& from) {
  wire::RefitOutcome to;
  to.refit = in.refit(from.has_refit(), from.refit());
  to.verdict = in.enumerator(from.verdict(), wire::Verdict::kUndecided, "unknown verdict");
  to.planned = from.planned();
  to.prepared = from.prepared();
  to.lost = from.lost();
  to.applied = from.applied();
  to.settled = from.settled();
  to.prepare_ns = from.prepare_ns();
  to.cause = in.optional_cause(from.has_cause(), from.cause());
  return to;
}

wire::MemberMessage read(MessageReader& in, const pb::MemberMessage& from) {
  switch (from.body_case()) {
    case pb::MemberMessage::kHello:
      return read(in, from.hello());
    case pb::MemberMessage::kBegin:
      return read(in, from.begin());
    case pb::MemberMessage::kSealReport:
      return read(in, from.seal_report());
    case pb::MemberMessage::kProgress:
      return read(in, from.progress());
    case pb::MemberMessage::kVote:
      return read(in, from.vote());
    case pb::MemberMessage::kAck:
      return read(in, from.ack());
    case pb::MemberMessage::kDecisionQuery:
      return wire::DecisionQuery{
          in.prepared(from.decision_query().has_prepared(), from.decision_query().prepared())};
    case pb::MemberMessage::kAbortRequest:
      return wire::AbortRequest{
          in.refit(from.abort_request().has_refit(), from.abort_request().refit()),
          from.abort_request().request(),
          in.cause(from.abort_request().has_cause(), from.abort_request().cause())};
    case pb::MemberMessage::kHeartbeat:
      return wire::Heartbeat{read_scrub(from.heartbeat().has_scrub(), from.heartbeat().scrub())};
    case pb::MemberMessage::BODY_NOT_SET:
      break;
  }
  in.require(false, "no body that this version knows");
  return wire::Heartbeat{};
}

wire::CoordinatorMessage read(MessageReader& in, const pb::CoordinatorMessage& from) {
  switch (from.body_case()) {
    case pb::CoordinatorMessage::kWelcome:
      return read(in, from.welcome());
    case pb::CoordinatorMessage::kRehash:
      return read(in, from.rehash());
    case pb::CoordinatorMessage::kPlan:
      return read(in, from.plan());
    case pb::CoordinatorMessage::kSeal:
      return wire::Seal{in.manifest(from.seal().has_manifest(), from.seal().manifest()),
                        from.seal().prepare_timeout_ms()};
    case pb::CoordinatorMessage::kDecision:
      return read(in, from.decision());
    case pb::CoordinatorMessage::kAckReceived:
      return wire::AckReceived{
          in.refit(from.ack_received().has_refit(), from.ack_received().refit())};
    case pb::CoordinatorMessage::kBeginRefused:
      return read(in, from.begin_refused());
    case pb::CoordinatorMessage::kRefitOutcome:
      return read(in, from.refit_outcome());
    case pb::CoordinatorMessage::kSessionRefused:
      return wire::SessionRefused{
          in.cause(from.session_refused().has_cause(), from.session_refused().cause())};
    case pb::CoordinatorMessage::kHeartbeat:
      return wire::Heartbeat{};
    case pb::CoordinatorMessage::BODY_NOT_SET:
      break;
  }
  in.require(false, "no body that this version knows");
  return wire::Heartbeat{};
}

MemberStatus read(MessageReader& in, const pb::MemberStatus& from) {
  MemberStatus to;
  to.id = in.member_id(from.id());
  to.role = in.enumerator(from.role(), wire::Role::kProducer, "unknown role");
  to.state = in.enumerator(from.state(), wire::MemberState::kRehashing, "unknown member state");
  to.content = in.content(from.has_content(), from.content());
  to.cause = in.optional_cause(from.has_cause(), from.cause());
  to.region = in.text(from.region(), limits::kRegionBytesMax, "region is too long");
  to.ready = from.ready();
  to.connected = from.connected();
  to.unconfirmed = from.unconfirmed();
  to.process = ProcessId{from.process()};
  to.silent_ms = from.silent_ms();
  to.scrub = read_scrub(from.has_scrub(), from.scrub());
  to.frames = from.frames();
  to.bytes = from.bytes();
  to.parent = in.text(from.parent(), limits::kMemberIdBytesMax, "parent is too long");
  return to;
}

RefitStatus read(MessageReader& in, const pb::RefitStatus& from) {
  RefitStatus to;
  to.id = in.refit(from.has_id(), from.id());
  to.phase = in.text(from.phase(), limits::kShapeBytesMax, "phase is too long");
  to.base = Version{from.base()};
  to.target = Version{from.target()};
  to.shape = in.text(from.shape(), limits::kShapeBytesMax, "shape is too long");
  to.planned = from.planned();
  to.lost = from.lost();
  to.yes = from.yes();
  to.no = from.no();
  to.frames_min = from.frames_min();
  to.open_ms = from.open_ms();
  return to;
}

FleetStatus read(MessageReader& in, const pb::FleetStatus& from) {
  FleetStatus to;
  to.fleet = in.fleet(from.has_fleet(), from.fleet());
  to.epoch = in.epoch(from.has_epoch(), from.epoch());
  to.committed = in.content(from.has_committed(), from.committed());
  in.require(from.members_size() <= static_cast<int>(limits::kMembersMax + limits::kProducersMax),
             "too many members");
  for (int i = 0; in.ok() && i < from.members_size(); ++i) {
    to.members.push_back(read(in, from.members(i)));
  }
  if (from.has_refit()) to.refit = read(in, from.refit());
  if (from.has_last()) to.last = read(in, from.last());
  return to;
}

ResolveRequest read(MessageReader& in, const pb::ResolveRequest& from) {
  return {in.refit(from.has_refit(), from.refit()), from.commit()};
}

// A message from a member is small; only the coordinator's plan may fill a whole one.
template <typename Message>
auto parse(std::span<const std::byte> bytes, std::size_t bytes_max)
    -> Result<decltype(read(std::declval<MessageReader&>(), std::declval<const Message&>()))> {
  const auto wrong = [](const std::string& what) {
    return failure(ErrorCode::kProtocol, Stage::kControl, "control message: " + what);
  };
  if (bytes.size() > bytes_max) {
    return wrong(std::to_string(bytes.size()) + " bytes, at most " + std::to_string(bytes_max));
  }
  // A text field that is no UTF-8 makes protobuf print a line: a peer must not be able to.
  [[maybe_unused]] static const auto silenced = google::protobuf::SetLogHandler(nullptr);
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return wrong(std::to_string(bytes.size()) + " bytes that do not parse");
  }
  MessageReader in;
  auto value = read(in, message);
  if (!in.ok()) return in.error();
  return value;
}

}  // namespace

Result<wire::MemberMessage> decode_member_message(std::span<const std::byte> bytes) {
  return parse<pb::MemberMessage>(bytes, limits::kMemberMessageBytesMax);
}

Result<wire::CoordinatorMessage> decode_coordinator_message(std::span<const std::byte> bytes) {
  return parse<pb::CoordinatorMessage>(bytes, limits::kControlMessageBytesMax);
}

Result<ResolveRequest> decode_resolve_request(std::span<const std::byte> bytes) {
  return parse<pb::ResolveRequest>(bytes, limits::kMemberMessageBytesMax);
}

Result<FleetStatus> decode_fleet_status(std::span<const std::byte> bytes) {
  return parse<pb::FleetStatus>(bytes, limits::kStatusBytesMax);
}

}  // namespace weft::transport
