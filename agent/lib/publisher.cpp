// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/publisher.hpp"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "agent/lib/fault_point.hpp"
#include "agent/lib/producer_session.hpp"
#include "apply/store/checkpoint_source.hpp"
#include "codec/flow/encode_flow.hpp"

namespace weft::agent {
namespace {

Result<apply::CheckpointDir> open_checkpoint(const std::string& path, EventSink& events) {
  return apply::CheckpointDir::open_path(path, apply::Access::kRead, apply::StoreOptions{}, events);
}

// Counts hashed bytes for the progress line.
// Threads: any.
class CountingSource final : public codec::ChunkSource {
 public:
  CountingSource(codec::ChunkSource& source, const PublishRequest& request, std::uint64_t total)
      : source_(source), request_(request), total_(total) {}

  Status read(ChunkIndex chunk, std::span<std::byte> old_bytes,
              std::span<std::byte> new_bytes) override {
    if (request_.on_progress) {
      request_.on_progress("hash", bytes_ += new_bytes.size(), total_);
    }
    return source_.read(chunk, old_bytes, new_bytes);
  }

 private:
  codec::ChunkSource& source_;
  const PublishRequest& request_;
  const std::uint64_t total_;
  std::atomic<std::uint64_t> bytes_{0};
};

std::uint64_t tensor_bytes(const codec::Schema& schema) {
  std::uint64_t bytes = 0;
  for (const codec::Tensor& tensor : schema.tensors()) bytes += tensor.bytes;
  return bytes;
}

std::uint64_t element_count(const codec::Schema& schema) {
  std::uint64_t count = 0;
  for (const codec::Tensor& tensor : schema.tensors()) count += tensor.element_count;
  return count;
}

Result<codec::DigestTable> hash(const codec::Lattice& lattice, const apply::CheckpointDir& dir,
                                const PublishRequest& request, std::uint32_t threads) {
  apply::CheckpointSource source(lattice, dir);
  CountingSource counted(source, request, tensor_bytes(dir.schema()));
  WEFT_TRY(auto table, codec::digest_flow(lattice, counted, threads));
  WEFT_TRY_STATUS(dir.check_identity());
  return table;
}

// The fleet's committed version. A fresh fleet has none: the base becomes the one before the
// target. Versions start at 1, because 0 means "not known" everywhere.
Result<Version> choose_base_version(const PublisherConfig& config, const PublishRequest& request) {
  if (request.base_version) return *request.base_version;
  transport::ControlCallOptions call;
  call.coordinator = request.coordinator;
  call.tls = config.tls;
  call.timeout = config.control.connect_timeout;
  WEFT_TRY(const transport::FleetStatus status, transport::fetch_status(call));
  const Version committed = status.committed.version;
  // Asked again for what is committed already: its base was an earlier one.
  const bool repeated = committed == request.target_version;
  if (committed.value != 0 && !repeated) return committed;
  if (request.target_version.value < 2) {
    return failure(ErrorCode::kConfig, Stage::kPublish,
                   "the fleet has no version yet and the base needs one, at least 1: publish "
                   "version 2 or a higher one");
  }
  return Version{request.target_version.value - 1};
}

double seconds_since(TimePoint begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// From the encoder into the trees.
// Threads: as FrameSink.
class InjectingSink final : public codec::FrameSink {
 public:
  InjectingSink(ProducerSession& session, const PublishRequest& request)
      : session_(session), request_(request) {}

  Status take(SharedSlot slot, const wire::FrameHeader& header) override {
    wire::FrameHeader sent = header;
    if (corrupt_frame_point() == header.sequence) {
      damage_frame(slot);
      std::memcpy(&sent, slot.frame().data(), sizeof(sent));
    }
    WEFT_TRY_STATUS(session_.inject(sent, slot));
    if (request_.on_progress) request_.on_progress("encode", header.sequence + 1ULL, 0);
    return ok();
  }

 private:
  ProducerSession& session_;
  const PublishRequest& request_;
};

// Both checkpoints of a publish.
// Threads: immutable.
struct CheckpointPair {
  apply::CheckpointDir base;
  apply::CheckpointDir target;
  codec::Lattice lattice;
  std::uint32_t threads = 1;
};

Result<wire::ProducerSeal> encode(const CheckpointPair& pair, const wire::Plan& plan,
                                  const PublishRequest& request, ProducerSession& session) {
  apply::CheckpointSource source(pair.lattice, pair.base, pair.target);
  InjectingSink sink(session, request);
  codec::EncodeFlowOptions options;
  options.ids.fleet = plan.fleet;
  options.ids.refit = plan.refit;
  options.choice.full = request.full;
  options.threads = pair.threads;
  WEFT_TRY(auto summary, codec::encode_flow(pair.lattice, ProducerIndex{0}, source, session.slots(),
                                            sink, options));
  // What was read was one state of both checkpoints, or nothing is published.
  WEFT_TRY_STATUS(pair.base.check_identity());
  WEFT_TRY_STATUS(pair.target.check_identity());
  return summary.seal;
}

// Every attempt of one publish.
Result<PublishReport> run(const CheckpointPair& pair, apply::producer::Publish publish,
                          const PublishRequest& request, ProducerSession& session) {
  PublishReport report;
  wire::ProducerSeal last_seal;
  const TimePoint begun = std::chrono::steady_clock::now();
  session.begin(std::move(publish));
  while (const auto plan = session.next_plan()) {
    if (!session.enter_encode()) continue;
    const TimePoint encode_begun = std::chrono::steady_clock::now();
    const auto sealed = encode(pair, *plan, request, session);
    session.leave_encode();
    report.refit = plan->refit;
    report.encode_seconds = seconds_since(encode_begun);
    if (sealed) last_seal = *sealed;
    session.seal(sealed);
  }
  const auto done = session.wait_done();
  report.total_seconds = seconds_since(begun);
  if (!done.status) return done.status.error();
  report.target = done.content;
  report.already_committed = done.already;
  report.attempts = done.attempts;
  report.outcome = done.outcome;
  report.frames = last_seal.frame_count;
  report.wire_bytes = last_seal.wire_bytes;
  report.changed_elements = last_seal.changed_elements;
  if (done.already) report.encode_seconds = 0;
  if (done.outcome) {
    report.prepare_seconds = static_cast<double>(done.outcome->prepare_ns) * 1e-9;
  }
  return report;
}

}  // namespace

Result<PublishReport> publish(const PublisherConfig& config, const PublishRequest& request,
                              EventSink& events) {
  WEFT_TRY(auto base, open_checkpoint(request.base_dir, events));
  WEFT_TRY(auto target, open_checkpoint(request.target_dir, events));
  WEFT_TRY_STATUS(codec::schema_difference(base.schema(), target.schema()));
  WEFT_TRY(auto lattice, codec::Lattice::default_for(base.schema()));
  const std::uint32_t threads = config.producer.threads != 0
                                    ? config.producer.threads
                                    : std::max(1U, std::thread::hardware_concurrency());
  const CheckpointPair pair{std::move(base), std::move(target), std::move(lattice), threads};
  WEFT_TRY(const Version base_version, choose_base_version(config, request));
  WEFT_TRY(auto table, hash(pair.lattice, pair.base, request, threads));
  ProducerInput input;
  input.coordinator = request.coordinator;
  input.schema = pair.target.schema().digest();
  input.recovery.content = {base_version, pair.lattice.digest(), table.root(pair.lattice)};
  input.recovery.part = table.part(pair.lattice, ProducerIndex{0});
  input.target_part = [&]() -> Result<Digest> {
    WEFT_TRY(auto target_table, hash(pair.lattice, pair.target, request, threads));
    return target_table.part(pair.lattice, ProducerIndex{0});
  };
  input.stop_requested = request.stop_requested;
  apply::producer::Publish publish;
  publish.target_version = request.target_version;
  publish.shape = request.shape;
  publish.model_bytes = tensor_bytes(pair.target.schema());
  publish.full = request.full;
  publish.retries = config.producer.retries;
  publish.busy_timeout = config.producer.outcome_timeout;
  publish.commit_timeout = config.producer.outcome_timeout;
  WEFT_TRY(auto session, ProducerSession::open(config, input, events));
  WEFT_TRY(PublishReport report, run(pair, std::move(publish), request, *session));
  report.base = input.recovery.content;
  report.full_bytes = tensor_bytes(pair.target.schema());
  report.total_elements = element_count(pair.target.schema());
  return report;
}

}  // namespace weft::agent
