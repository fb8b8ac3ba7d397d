// SPDX-License-Identifier: Apache-2.0
// One filled message of every type, each field with a value of its own, so that two exchanged
// fields do not compare equal.
#pragma once

#include <vector>

#include "weft/wire/messages.hpp"

namespace weft::tests {

inline Digest sample_digest(std::uint64_t seed) { return Digest{{seed, ~seed}}; }

inline RefitId sample_refit(std::uint32_t attempt = 3) {
  return {{7, ProcessId{0xABCD'0000'1111'2222}}, attempt};
}

inline Content sample_content(std::uint64_t version) {
  return {Version{version}, sample_digest(100 + version), sample_digest(200 + version)};
}

inline wire::Cause sample_cause() { return {ErrorCode::kNoSpace, "4 GiB needed, 1 GiB free"}; }

inline wire::Endpoint sample_endpoint(std::string id, std::uint64_t process = 42) {
  return {std::move(id),
          ProcessId{process},
          "eu-1",
          {{"tcp;ofi_rxm", 3, {std::byte{0}, std::byte{0xFF}, std::byte{7}}}, {"efa", 9, {}}}};
}

inline wire::Hello sample_hello(std::string id = "node-1", std::uint64_t process = 42) {
  wire::Hello hello;
  hello.endpoint = sample_endpoint(std::move(id), process);
  hello.fleet = FleetId{{11, 12}};
  hello.epoch = {6, ProcessId{13}};
  hello.state = wire::MemberState::kLagging;
  hello.cause = sample_cause();
  hello.schema = sample_digest(14);
  hello.content = sample_content(15);
  hello.prepared = wire::PreparedRefit{sample_refit(1), sample_content(16), sample_content(17)};
  hello.begun = sample_refit(2);
  hello.ready = true;
  return hello;
}

inline wire::ProducerSeal sample_seal(std::uint32_t seed) {
  return {seed, sample_digest(seed + 1), sample_digest(seed + 2), seed + 3ULL, seed + 4ULL};
}

inline wire::Plan sample_plan() {
  wire::Plan plan;
  plan.refit = sample_refit();
  plan.revision = 2;
  plan.fleet = FleetId{{21, 22}};
  plan.base = sample_content(1);
  plan.target_version = Version{2};
  plan.schema = sample_digest(23);
  plan.shape = "kary(2)";
  plan.producer_count = 1;
  plan.trees_open_max = 8;
  plan.requests = {0xFFFF'FFFF'FFFF'FFFE};
  plan.nodes = {sample_endpoint("publisher"), sample_endpoint("a"), sample_endpoint("b")};
  plan.trees.push_back(
      {{{std::nullopt, {NodeIndex{1}}}, {NodeIndex{0}, {NodeIndex{2}}}, {NodeIndex{1}, {}}}});
  return plan;
}

inline std::vector<wire::MemberMessage> sample_member_messages() {
  wire::Hello least;
  least.endpoint.member_id = "x";
  wire::Hello producer = sample_hello("p");
  producer.role = wire::Role::kProducer;
  producer.state = wire::MemberState::kRehashing;
  return {sample_hello(),
          least,
          producer,
          wire::Begin{ProducerIndex{1}, 2, 0x8000'0000'0000'0001, sample_content(5), Version{6},
                      sample_digest(31), sample_digest(32), sample_digest(33), 1ULL << 40, true,
                      "chain"},
          wire::SealReport{sample_refit(), ProducerIndex{4}, sample_seal(41)},
          wire::Progress{sample_refit(), 51, 52, "node-9"},
          wire::Vote{sample_refit(), false, sample_cause(), sample_digest(61), sample_digest(62)},
          wire::Vote{sample_refit(), true, std::nullopt, sample_digest(63), sample_digest(64)},
          wire::Ack{sample_refit(), sample_content(71), sample_cause()},
          wire::DecisionQuery{{sample_refit(), sample_content(81), sample_content(82)}},
          wire::AbortRequest{sample_refit(), 83, sample_cause()},
          wire::Heartbeat{},
          wire::Heartbeat{wire::ScrubReport{}},
          wire::Heartbeat{wire::ScrubReport{90'000, 3, 17, 4000, 1}}};
}

inline std::vector<wire::CoordinatorMessage> sample_coordinator_messages() {
  wire::Manifest manifest{sample_refit(),    FleetId{{1, 2}},   sample_content(3),
                          sample_content(4), sample_digest(95), {sample_seal(5), sample_seal(9)}};
  return {wire::Welcome{FleetId{{1, 2}}, {3, ProcessId{4}}, sample_content(5)},
          wire::Rehash{sample_refit(), sample_digest(91), sample_digest(92)},
          sample_plan(),
          wire::Seal{manifest, 60'000},
          wire::Decision{sample_refit(), wire::Verdict::kAbort, sample_content(6),
                         sample_content(7), sample_cause()},
          wire::AckReceived{sample_refit()},
          wire::BeginRefused{77, true, sample_cause(), sample_content(8)},
          wire::RefitOutcome{sample_refit(), wire::Verdict::kCommit, 1, 2, 3, 4, true, 5,
                             sample_cause()},
          wire::SessionRefused{sample_cause()},
          wire::Heartbeat{}};
}

}  // namespace weft::tests
