// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <variant>

#include "transport/control/message_codec.hpp"
#include "weft/base/limits.hpp"
#include "weft/control.pb.h"

namespace weft::transport {
namespace {

namespace pb = weft::control::v1;

// Length of the UTF-8 sequence at the front of `text`; 0 when it is none (RFC 3629: no overlong
// forms, no surrogates, nothing above U+10FFFF).
std::size_t sequence_bytes(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0U) != 0x80U) return 0;
  }
  const unsigned second = at(1);
  const bool wrong = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                     (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
  return wrong ? 0 : length;
}

void put(const Bits128& from, pb::Bits128* to) {
  to->set_low(from.low);
  to->set_high(from.high);
}

void put(const Epoch& from, pb::Epoch* to) {
  to->set_number(from.number);
  to->set_coordinator(from.coordinator.value);
}

void put(const RefitId& from, pb::RefitId* to) {
  put(from.epoch, to->mutable_epoch());
  to->set_attempt(from.attempt);
}

void put(const Content& from, pb::Content* to) {
  to->set_version(from.version.value);
  put(from.lattice, to->mutable_lattice());
  put(from.root, to->mutable_root());
}

void put(const wire::PreparedRefit& from, pb::PreparedRefit* to) {
  put(from.refit, to->mutable_refit());
  put(from.base, to->mutable_base());
  put(from.target, to->mutable_target());
}

void put(const wire::Cause& from, pb::Cause* to) {
  to->set_code(static_cast<std::uint32_t>(from.code));
  to->set_detail(clean_text(from.detail, limits::kErrorDetailBytesMax));
}

void put(const wire::Endpoint& from, pb::Endpoint* to) {
  to->set_member_id(clean_text(from.member_id, limits::kMemberIdBytesMax));
  to->set_process(from.process.value);
  to->set_region(clean_text(from.region, limits::kRegionBytesMax));
  for (const wire::RailAddress& rail : from.rails) {
    pb::RailAddress* out = to->add_rails();
    out->set_provider(clean_text(rail.provider, limits::kProviderNameBytesMax));
    out->set_protocol(rail.protocol);
    out->set_address(rail.address.data(), rail.address.size());
  }
}

void put(const wire::ProducerSeal& from, pb::ProducerSeal* to) {
  to->set_frame_count(from.frame_count);
  put(from.frames, to->mutable_frames());
  put(from.part, to->mutable_part());
  to->set_changed_elements(from.changed_elements);
  to->set_wire_bytes(from.wire_bytes);
}

void put(const wire::Manifest& from, pb::Manifest* to) {
  put(from.refit, to->mutable_refit());
  put(from.fleet, to->mutable_fleet());
  put(from.base, to->mutable_base());
  put(from.target, to->mutable_target());
  put(from.schema, to->mutable_schema());
  for (const wire::ProducerSeal& seal : from.producers) put(seal, to->add_producers());
}

void put(const wire::Hello& from, pb::Hello* to) {
  to->set_role(static_cast<pb::Role>(from.role));
  put(from.endpoint, to->mutable_endpoint());
  put(from.fleet, to->mutable_fleet());
  put(from.epoch, to->mutable_epoch());
  to->set_state(static_cast<pb::MemberState>(from.state));
  if (from.cause) put(*from.cause, to->mutable_cause());
  put(from.schema, to->mutable_schema());
  put(from.content, to->mutable_content());
  if (from.prepared) put(*from.prepared, to->mutable_prepared());
  if (from.begun) put(*from.begun, to->mutable_begun());
  to->set_ready(from.ready);
}

void put(const wire::Begin& from, pb::Begin* to) {
  to->set_producer(from.producer.value);
  to->set_producer_count(from.producer_count);
  to->set_request(from.request);
  put(from.base, to->mutable_base());
  to->set_target_version(from.target_version.value);
  put(from.schema, to->mutable_schema());
  put(from.base_part, to->mutable_base_part());
  put(from.target_part, to->mutable_target_part());
  to->set_model_bytes(from.model_bytes);
  to->set_full(from.full);
  to->set_shape(clean_text(from.shape, limits::kShapeBytesMax));
}

void put(const wire::SealReport& from, pb::SealReport* to) {
  put(from.refit, to->mutable_refit());
  to->set_producer(from.producer.value);
  put(from.seal, to->mutable_seal());
}

void put(const wire::Progress& from, pb::Progress* to) {
  put(from.refit, to->mutable_refit());
  to->set_frames(from.frames);
  to->set_bytes(from.bytes);
  to->set_lost_peer(clean_text(from.lost_peer, limits::kMemberIdBytesMax));
}

void put(const wire::Vote& from, pb::Vote* to) {
  put(from.refit, to->mutable_refit());
  to->set_yes(from.yes);
  if (from.cause) put(*from.cause, to->mutable_cause());
  put(from.manifest, to->mutable_manifest());
  put(from.target_root, to->mutable_target_root());
}

void put(const wire::Ack& from, pb::Ack* to) {
  put(from.refit, to->mutable_refit());
  put(from.content, to->mutable_content());
  if (from.cause) put(*from.cause, to->mutable_cause());
}

void put(const wire::AbortRequest& from, pb::AbortRequest* to) {
  put(from.refit, to->mutable_refit());
  to->set_request(from.request);
  put(from.cause, to->mutable_cause());
}

void put(const wire::Welcome& from, pb::Welcome* to) {
  put(from.fleet, to->mutable_fleet());
  put(from.epoch, to->mutable_epoch());
  put(from.committed, to->mutable_committed());
}

void put(const wire::Rehash& from, pb::Rehash* to) {
  put(from.refit, to->mutable_refit());
  put(from.schema, to->mutable_schema());
  put(from.lattice, to->mutable_lattice());
}

void put(const wire::Plan& from, pb::Plan* to) {
  put(from.refit, to->mutable_refit());
  to->set_revision(from.revision);
  put(from.fleet, to->mutable_fleet());
  put(from.base, to->mutable_base());
  to->set_target_version(from.target_version.value);
  put(from.schema, to->mutable_schema());
  to->set_shape(clean_text(from.shape, limits::kShapeBytesMax));
  to->set_producer_count(from.producer_count);
  for (const std::uint64_t request : from.requests) to->add_requests(request);
  for (const wire::Endpoint& node : from.nodes) put(node, to->add_nodes());
  to->set_trees_open_max(from.trees_open_max);
  for (const wire::Plan::Tree& tree : from.trees) {
    pb::Tree* out = to->add_trees();
    for (const wire::TreeNode& node : tree.nodes) {
      pb::TreeNode* place = out->add_nodes();
      if (node.parent) place->set_parent(node.parent->value);
      for (const NodeIndex child : node.children) place->add_children(child.value);
    }
  }
}

void put(const wire::Decision& from, pb::Decision* to) {
  put(from.refit, to->mutable_refit());
  to->set_verdict(static_cast<pb::Verdict>(from.verdict));
  put(from.base, to->mutable_base());
  put(from.target, to->mutable_target());
  if (from.cause) put(*from.cause, to->mutable_cause());
}

void put(const wire::BeginRefused& from, pb::BeginRefused* to) {
  to->set_request(from.request);
  to->set_already_committed(from.already_committed);
  put(from.cause, to->mutable_cause());
  put(from.committed, to->mutable_committed());
}

void put(const wire::RefitOutcome& from, pb::RefitOutcome* to) {
  put(from.refit, to->mutable_refit());
  to->set_verdict(static_cast<pb::Verdict>(from.verdict));
  to->set_planned(from.planned);
  to->set_prepared(from.prepared);
  to->set_lost(from.lost);
  to->set_applied(from.applied);
  to->set_settled(from.settled);
  to->set_prepare_ns(from.prepare_ns);
  if (from.cause) put(*from.cause, to->mutable_cause());
}

void put(const wire::ScrubReport& from, pb::ScrubReport* to) {
  if (from.age_ms) to->set_age_ms(*from.age_ms);
  to->set_passes(from.passes);
  to->set_chunks_checked(from.chunks_checked);
  to->set_chunk_count(from.chunk_count);
  to->set_damaged_chunks(from.damaged_chunks);
}

void put(const MemberStatus& from, pb::MemberStatus* to) {
  to->set_id(clean_text(from.id, limits::kMemberIdBytesMax));
  to->set_role(static_cast<pb::Role>(from.role));
  to->set_state(static_cast<pb::MemberState>(from.state));
  put(from.content, to->mutable_content());
  if (from.cause) put(*from.cause, to->mutable_cause());
  to->set_region(clean_text(from.region, limits::kRegionBytesMax));
  to->set_ready(from.ready);
  to->set_connected(from.connected);
  to->set_unconfirmed(from.unconfirmed);
  to->set_process(from.process.value);
  to->set_silent_ms(from.silent_ms);
  if (from.scrub) put(*from.scrub, to->mutable_scrub());
  to->set_frames(from.frames);
  to->set_bytes(from.bytes);
  to->set_parent(clean_text(from.parent, limits::kMemberIdBytesMax));
}

void put(const RefitStatus& from, pb::RefitStatus* to) {
  put(from.id, to->mutable_id());
  to->set_phase(clean_text(from.phase, limits::kShapeBytesMax));
  to->set_base(from.base.value);
  to->set_target(from.target.value);
  to->set_shape(clean_text(from.shape, limits::kShapeBytesMax));
  to->set_planned(from.planned);
  to->set_lost(from.lost);
  to->set_yes(from.yes);
  to->set_no(from.no);
  to->set_frames_min(from.frames_min);
  to->set_open_ms(from.open_ms);
}

// One overload per alternative: a new message type does not compile until it has a place.
void put_body(const wire::Hello& m, pb::MemberMessage* to) { put(m, to->mutable_hello()); }
void put_body(const wire::Begin& m, pb::MemberMessage* to) { put(m, to->mutable_begin()); }
void put_body(const wire::SealReport& m, pb::MemberMessage* to) {
  put(m, to->mutable_seal_report());
}
void put_body(const wire::Progress& m, pb::MemberMessage* to) { put(m, to->mutable_progress()); }
void put_body(const wire::Vote& m, pb::MemberMessage* to) { put(m, to->mutable_vote()); }
void put_body(const wire::Ack& m, pb::MemberMessage* to) { put(m, to->mutable_ack()); }
void put_body(const wire::DecisionQuery& m, pb::MemberMessage* to) {
  put(m.prepared, to->mutable_decision_query()->mutable_prepared());
}
void put_body(const wire::AbortRequest& m, pb::MemberMessage* to) {
  put(m, to->mutable_abort_request());
}
void put_body(const wire::Heartbeat& m, pb::MemberMessage* to) {
  pb::Heartbeat* heartbeat = to->mutable_heartbeat();
  if (m.scrub) put(*m.scrub, heartbeat->mutable_scrub());
}

void put_body(const wire::Welcome& m, pb::CoordinatorMessage* to) { put(m, to->mutable_welcome()); }
void put_body(const wire::Rehash& m, pb::CoordinatorMessage* to) { put(m, to->mutable_rehash()); }
void put_body(const wire::Plan& m, pb::CoordinatorMessage* to) { put(m, to->mutable_plan()); }
void put_body(const wire::Seal& m, pb::CoordinatorMessage* to) {
  put(m.manifest, to->mutable_seal()->mutable_manifest());
  to->mutable_seal()->set_prepare_timeout_ms(m.prepare_timeout_ms);
}
void put_body(const wire::Decision& m, pb::CoordinatorMessage* to) {
  put(m, to->mutable_decision());
}
void put_body(const wire::AckReceived& m, pb::CoordinatorMessage* to) {
  put(m.refit, to->mutable_ack_received()->mutable_refit());
}
void put_body(const wire::BeginRefused& m, pb::CoordinatorMessage* to) {
  put(m, to->mutable_begin_refused());
}
void put_body(const wire::RefitOutcome& m, pb::CoordinatorMessage* to) {
  put(m, to->mutable_refit_outcome());
}
void put_body(const wire::SessionRefused& m, pb::CoordinatorMessage* to) {
  put(m.cause, to->mutable_session_refused()->mutable_cause());
}
void put_body(const wire::Heartbeat&, pb::CoordinatorMessage* to) { to->mutable_heartbeat(); }

}  // namespace

std::string clean_text(std::string_view text, std::size_t bytes_max) {
  std::string clean;
  clean.reserve(std::min(text.size(), bytes_max));
  while (!text.empty()) {
    // Whole runs of ASCII: nearly all text is one.
    const char* const end = std::find_if(text.data(), text.data() + text.size(),
                                         [](char c) { return (c & 0x80) != 0; });
    const auto ascii =
        std::min(static_cast<std::size_t>(end - text.data()), bytes_max - clean.size());
    clean += text.substr(0, ascii);
    text.remove_prefix(ascii);
    if (text.empty()) break;
    const std::size_t length = sequence_bytes(text);
    const std::size_t taken = length == 0 ? 1 : length;
    if (clean.size() + taken > bytes_max) break;
    if (length == 0) {
      clean += '?';
    } else {
      clean += text.substr(0, taken);
    }
    text.remove_prefix(taken);
  }
  return clean;
}

std::string encode(const wire::MemberMessage& message) {
  pb::MemberMessage out;
  std::visit([&](const auto& body) { put_body(body, &out); }, message);
  return out.SerializeAsString();
}

std::string encode(const wire::CoordinatorMessage& message) {
  pb::CoordinatorMessage out;
  std::visit([&](const auto& body) { put_body(body, &out); }, message);
  return out.SerializeAsString();
}

std::string encode(const ResolveRequest& request) {
  pb::ResolveRequest out;
  put(request.refit, out.mutable_refit());
  out.set_commit(request.commit);
  return out.SerializeAsString();
}

std::string encode(const FleetStatus& status) {
  pb::FleetStatus out;
  put(status.fleet, out.mutable_fleet());
  put(status.epoch, out.mutable_epoch());
  put(status.committed, out.mutable_committed());
  for (const MemberStatus& member : status.members) put(member, out.add_members());
  if (status.refit) put(*status.refit, out.mutable_refit());
  if (status.last) put(*status.last, out.mutable_last());
  return out.SerializeAsString();
}

}  // namespace weft::transport
