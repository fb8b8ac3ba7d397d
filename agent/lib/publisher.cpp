// SPDX-License-Identifier: Apache-2.0
#include "agent/lib/publisher.hpp"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <variant>

#include "agent/lib/publish_session.hpp"
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

}  // namespace

Result<PublishReport> publish(const PublisherConfig& config, const PublishRequest& request,
                              EventSink& events) {
  PublishInput input;
  WEFT_TRY(auto base, open_checkpoint(request.base_dir, events));
  WEFT_TRY(auto target, open_checkpoint(request.target_dir, events));
  WEFT_TRY_STATUS(codec::schema_difference(base.schema(), target.schema()));
  WEFT_TRY(input.lattice, codec::Lattice::default_for(base.schema()));
  input.threads = config.producer.threads != 0 ? config.producer.threads
                                               : std::max(1U, std::thread::hardware_concurrency());
  WEFT_TRY(const Version base_version, choose_base_version(config, request));
  WEFT_TRY(auto table, hash(input.lattice, base, request, input.threads));
  input.base_content = {base_version, input.lattice.digest(), table.root(input.lattice)};
  input.base_part = table.part(input.lattice, ProducerIndex{0});
  input.base = &base;
  input.target = &target;
  input.model_bytes = tensor_bytes(target.schema());
  input.compute_target_part = [&]() -> Result<Digest> {
    WEFT_TRY(auto target_table, hash(input.lattice, target, request, input.threads));
    return target_table.part(input.lattice, ProducerIndex{0});
  };
  PublishSession session(config, request, input, events);
  WEFT_TRY(PublishReport report, session.run());
  report.full_bytes = input.model_bytes;
  report.total_elements = element_count(target.schema());
  return report;
}

}  // namespace weft::agent
