// SPDX-License-Identifier: Apache-2.0
// weft::Publisher and weft::Refit (include/weft/publisher.hpp).
#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "agent/lib/box_source.hpp"
#include "agent/lib/producer_session.hpp"
#include "agent/lib/shard_source.hpp"
#include "agent/lib/train_part.hpp"
#include "apply/store/checkpoint_source.hpp"
#include "codec/flow/part_encoder.hpp"
#include "codec/project/cast.hpp"
#include "transport/control/host_port.hpp"

namespace weft::agent {
namespace {

constexpr std::chrono::seconds kLatticeTimeout{60};
// A begin that is refused as busy is said again for so long.
constexpr std::chrono::seconds kBusyTimeout{60};

double seconds_since(TimePoint begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Error misuse(const std::string& what) { return failure(ErrorCode::kConfig, Stage::kPublish, what); }

Error aborted_by_trainer() {
  return failure(ErrorCode::kBusy, Stage::kPublish, "aborted by the trainer");
}

// Its root is the fleet's when the fleet is at this lattice; else every element is read once.
Status find_content(const PublisherOptions& options, const transport::ControlCallOptions& call,
                    TrainPart& part) {
  WEFT_TRY(const transport::FleetStatus status, transport::fetch_status(call));
  part.content.version =
      status.committed.version.value != 0 ? status.committed.version : options.base_version;
  part.content.lattice = part.lattice.digest();
  if (status.committed.lattice == part.lattice.digest() && status.committed.version.value != 0) {
    part.content.root = status.committed.root;
    return ok();
  }
  apply::CheckpointSource source(part.lattice, *part.base);
  WEFT_TRY(const auto table, codec::digest_flow(part.lattice, source, part.threads));
  WEFT_TRY_STATUS(part.base->check_identity());
  part.content.root = table.root(part.lattice);
  return ok();
}

// Threads: as Publisher.
class TrainPublisher final : public Publisher {
 public:
  explicit TrainPublisher(EventSink& events) : events_(events) {}

  Status start(const PublisherOptions& options);
  Status open_baseline(const PublisherOptions& options);
  Status open_session(apply::ProducerRecovery recovery);
  Result<std::unique_ptr<Refit>> begin(Version target) override;
  Content content() const override { return session_->content(); }
  std::vector<ShardTensor> shard_tensors() const override;
  void cancel() override { session_->cancel(aborted_by_trainer()); }

 private:
  EventSink& events_;
  PublisherConfig config_;
  transport::ControlCallOptions call_;
  std::unique_ptr<ProducerState> state_;  // with a baseline_dir
  TrainPart part_;
  std::unique_ptr<ProducerSession> session_;
};

// Threads: as Refit; FrameSink's from the encoder.
class TrainRefit final : public Refit, public codec::FrameSink {
 public:
  TrainRefit(TrainPart& part, ProducerSession& session, const wire::Plan& plan)
      : part_(part),
        session_(session),
        target_(plan.target_version),
        put_(part.uses.size()),
        missing_(part.source_counts),
        source_(part.schema(), part.lattice, part.gather, *part.baseline, put_),
        boxed_(part.schema(), part.lattice, part.producer, *part.baseline, source_),
        options_(flow_options(part, plan)),
        encoder_(part.lattice, part.producer, session.slots(), *this, options_) {}
  ~TrainRefit() override { abort(); }

  Status put(std::string_view name, const ShardView& view) override;
  using Refit::put_residual;
  Status put_residual(std::string_view name, const ResidualConverter& converter,
                      const ResidualSource& source) override;
  Status put_shard(std::span<const ShardBox> boxes, const ShardView& view) override;
  Result<RefitReport> commit(bool partial) override;
  void abort() override;

  Status take(SharedSlot slot, const wire::FrameHeader& header) override {
    return session_.inject(header, slot);
  }

 private:
  static codec::EncodeFlowOptions flow_options(const TrainPart& part, const wire::Plan& plan) {
    codec::EncodeFlowOptions options;
    options.ids.fleet = plan.fleet;
    options.ids.refit = plan.refit;
    options.threads = part.threads;
    return options;
  }
  Result<std::uint32_t> place_of(std::string_view name) const;
  std::string text_of(ChunkIndex chunk) const;
  Status check_view(std::string_view name, const SourceUse& use, const ShardView& view) const;
  Result<std::vector<bool>> must_convert(std::string_view name, std::uint32_t place,
                                         const ResidualSource& source);
  // `wanted`: which chunks of the tensor may have changed; empty: all.
  Status scan(std::uint32_t place, const std::vector<bool>& wanted = {});
  // Encodes chunks that are whole; an error ends the refit.
  Status encode(std::span<const ChunkIndex> ready, codec::ChunkSource& source);
  Status check_not_named(ChunkIndex chunk) const;
  Status check_all_put(bool partial) const;
  Status check_complete() const;
  std::uint32_t number_of(ChunkIndex chunk) const {
    return chunk.value - part_.lattice.chunks_of(part_.producer).first.value;
  }
  Error outcome();

  TrainPart& part_;
  ProducerSession& session_;
  const Version target_;
  PutTensors put_;
  std::vector<std::uint32_t> missing_;  // by chunk: sources that are still to be put
  ShardSource source_;
  BoxSource boxed_;
  const codec::EncodeFlowOptions options_;
  codec::PartEncoder encoder_;
  double put_seconds_ = 0;
  std::uint64_t skipped_elements_ = 0;
  bool failed_ = false;
  bool closed_ = false;
};

// "w elements [0, 512)", the tensor's elements between the chunk's first and last.
std::string TrainRefit::text_of(ChunkIndex chunk) const {
  const codec::ChunkPlace place = part_.lattice.place(chunk);
  return part_.schema().tensor(place.tensor).name + " elements [" +
         std::to_string(place.first_element) + ", " +
         std::to_string(place.element_at(place.element_count - 1) + 1) + ")";
}

Result<std::uint32_t> TrainRefit::place_of(std::string_view name) const {
  if (closed_) return misuse("the refit is closed");
  const auto found = part_.places.find(std::string(name));
  if (found == part_.places.end()) return misuse(std::string(name) + " is no shard tensor");
  if (put_.tensors[found->second].put) return misuse(std::string(name) + " was put before");
  if (!boxed_.is_used()) return found->second;
  for (const ChunkIndex chunk : part_.uses[found->second].chunks) {
    if (boxed_.has(chunk)) {
      return misuse(std::string(name) + ": put_shard gave elements of " + text_of(chunk));
    }
  }
  return found->second;
}

Status TrainRefit::check_view(std::string_view name, const SourceUse& use,
                              const ShardView& view) const {
  if (!use.type) return ok();  // nothing of it is emitted here
  const bool same = view.type == ShardType::kSame;
  if (!use.one_type || (!same && !codec::can_cast(*use.type))) {
    return misuse(std::string(name) + " feeds tensors of another type than it can be cast to");
  }
  const std::uint64_t width = same ? codec::element_bytes(*use.type) : 4;
  if (view.bytes.size() == use.elements * width) return ok();
  return misuse(std::string(name) + " has " + std::to_string(view.bytes.size()) + " bytes, not " +
                std::to_string(use.elements * width));
}

Status TrainRefit::put(std::string_view name, const ShardView& view) {
  WEFT_TRY(const std::uint32_t place, place_of(name));
  WEFT_TRY_STATUS(check_view(name, part_.uses[place], view));
  put_.tensors[place].put = true;
  put_.tensors[place].type = view.type;
  put_.views[place] = view.bytes;
  part_.marks->forget(place);
  return scan(place);
}

// By chunk of the tensor.
Result<std::vector<bool>> TrainRefit::must_convert(std::string_view name, std::uint32_t place,
                                                   const ResidualSource& source) {
  const SourceUse& use = part_.uses[place];
  std::vector<ElementRange> ranges;
  ranges.reserve(use.chunks.size());
  for (const ChunkIndex chunk : use.chunks) {
    const auto row = part_.gather.row_of(chunk);
    if (!row) {
      return misuse(std::string(name) + ": a converter can only give boxes that are rows");
    }
    ranges.push_back({row->first_element, part_.lattice.place(chunk).element_count});
  }
  if (source.elementwise) {
    for (const auto bytes : source.parts) {
      if (bytes.size() % std::max<std::uint64_t>(1, use.elements) == 0) continue;
      return misuse(std::string(name) + " has " + std::to_string(use.elements) +
                    " elements: a source of " + std::to_string(bytes.size()) +
                    " bytes has not as many, so it is not elementwise");
    }
  }
  std::vector<bool> wanted = part_.marks->changed(place, use.elements, ranges, source);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (!wanted[i]) skipped_elements_ += ranges[i].count;
  }
  return wanted;
}

Status TrainRefit::put_residual(std::string_view name, const ResidualConverter& converter,
                                const ResidualSource& source) {
  WEFT_TRY(const std::uint32_t place, place_of(name));
  WEFT_TRY(const std::vector<bool> wanted, must_convert(name, place, source));
  put_.tensors[place].put = true;
  put_.tensors[place].converter = &converter;
  Status scanned = scan(place, wanted);
  put_.tensors[place].converter = nullptr;
  return scanned;
}

// Encodes the chunks that have all their sources now.
Status TrainRefit::scan(std::uint32_t place, const std::vector<bool>& wanted) {
  const TimePoint begun = std::chrono::steady_clock::now();
  PutTensor& tensor = put_.tensors[place];
  std::vector<ChunkIndex> ready;
  bool waiting = false;
  const auto& chunks = part_.uses[place].chunks;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (--missing_[number_of(chunks[i])] != 0) {
      waiting = true;
    } else if (wanted.empty() || wanted[i]) {
      ready.push_back(chunks[i]);
    }
  }
  WEFT_TRY_STATUS(encode(ready, source_));
  // Other chunks wait for another source: the caller may free the view all the same.
  if (waiting) {
    tensor.kept.assign(put_.views[place].begin(), put_.views[place].end());
    put_.views[place] = tensor.kept;
  } else {
    put_.views[place] = {};
  }
  put_seconds_ += seconds_since(begun);
  return ok();
}

Status TrainRefit::encode(std::span<const ChunkIndex> ready, codec::ChunkSource& source) {
  if (!session_.enter_encode()) return outcome();
  Status encoded = encoder_.encode(ready, source);
  session_.leave_encode();
  if (encoded) return ok();
  failed_ = true;
  if (session_.ended()) return outcome();
  session_.seal(encoded.error());
  return encoded;
}

Status TrainRefit::check_not_named(ChunkIndex chunk) const {
  const std::uint32_t number = number_of(chunk);
  if (boxed_.has(chunk) || missing_[number] == part_.source_counts[number]) return ok();
  return misuse("put_shard: an overlap with what was put by name in tensor " + text_of(chunk));
}

Status TrainRefit::put_shard(std::span<const ShardBox> boxes, const ShardView& view) {
  if (closed_) return misuse("the refit is closed");
  const TimePoint begun = std::chrono::steady_clock::now();
  WEFT_TRY_STATUS(boxed_.open(boxes, view));
  for (const auto& share : boxed_.shares()) WEFT_TRY_STATUS(check_not_named(share.chunk));
  for (const auto& share : boxed_.shares()) {
    for (const std::uint32_t source : part_.gather.sources_of(share.chunk)) {
      part_.marks->forget(source);
    }
  }
  WEFT_TRY(const std::vector<ChunkIndex> whole, boxed_.take());
  WEFT_TRY_STATUS(encode(whole, boxed_));
  boxed_.release(whole);
  put_seconds_ += seconds_since(begun);
  return ok();
}

Error TrainRefit::outcome() {
  failed_ = true;
  const auto done = session_.wait_done();
  if (!done.status) return done.status.error();
  return failure(ErrorCode::kBusy, Stage::kPublish, "the refit has ended");
}

Status TrainRefit::check_all_put(bool partial) const {
  if (!partial && boxed_.is_used()) return check_complete();
  for (std::uint32_t s = 0; s < put_.tensors.size(); ++s) {
    if (put_.tensors[s].put) continue;
    const std::string& name = part_.projection.sources[s].name;
    for (const ChunkIndex chunk : part_.uses[s].chunks) {
      const std::uint32_t number = number_of(chunk);
      if (!partial) return misuse(name + " was not put");
      if (missing_[number] != part_.source_counts[number]) {
        return misuse(name + " was not put, but what it is interleaved with was");
      }
    }
  }
  return ok();
}

// By elements, not by names.
Status TrainRefit::check_complete() const {
  codec::Projection put;
  put.sources = part_.projection.sources;
  for (const codec::Box& box : part_.projection.boxes) {
    if (put_.tensors[box.source].put) put.boxes.push_back(box);
  }
  return boxed_.check_complete(put);
}

Result<RefitReport> TrainRefit::commit(bool partial) {
  if (closed_) return misuse("the refit is closed");
  if (failed_) {
    closed_ = true;
    return outcome();
  }
  WEFT_TRY_STATUS(check_all_put(partial));
  closed_ = true;
  if (boxed_.is_used()) WEFT_TRY_STATUS(encode(boxed_.unfinished(), boxed_));
  const TimePoint begun = std::chrono::steady_clock::now();
  RefitReport report;
  report.version = target_;
  report.total_elements = part_.own_elements;
  if (!session_.enter_encode()) return outcome();
  auto summary = encoder_.finish(part_.baseline->table());
  if (summary) {
    if (Status kept = part_.baseline->keep_pending(session_.refit()); !kept) {
      summary = std::move(kept).error();
    }
  }
  session_.leave_encode();
  if (!summary && session_.ended()) return outcome();
  report.pending_bytes = part_.baseline->pending_bytes();
  report.baseline_bytes = part_.baseline->baseline_bytes();
  if (summary) part_.baseline->set_pending_table(std::move(summary->table));
  session_.seal(summary ? Result<wire::ProducerSeal>(summary->seal)
                        : Result<wire::ProducerSeal>(summary.error()));
  const auto done = session_.wait_done();
  if (!done.status) return done.status.error();
  report.changed_elements = summary->seal.changed_elements;
  report.skipped_elements = skipped_elements_;
  report.frames = summary->seal.frame_count;
  report.wire_bytes = summary->seal.wire_bytes;
  report.put_seconds = put_seconds_;
  report.commit_seconds = seconds_since(begun);
  return report;
}

void TrainRefit::abort() {
  if (std::exchange(closed_, true)) return;
  session_.cancel(aborted_by_trainer());
  static_cast<void>(session_.wait_done());
}

Status TrainPublisher::start(const PublisherOptions& options) {
  if (!options.config_file.empty()) {
    WEFT_TRY(auto loaded, load_publisher_config(options.config_file));
    config_ = std::move(loaded.config);
  }
  if (!options.coordinator.empty()) {
    WEFT_TRY(config_.coordinator, transport::parse_host_port(options.coordinator));
  }
  if (!config_.coordinator) return misuse("no coordinator is named");
  if (!options.box_files.empty()) config_.producer_id += "-" + std::to_string(options.producer);
  call_.coordinator = *config_.coordinator;
  call_.tls = config_.tls;
  call_.timeout = config_.control.connect_timeout;
  part_.threads = config_.producer.threads != 0 ? config_.producer.threads
                                                : std::max(1U, std::thread::hardware_concurrency());
  WEFT_TRY(auto base,
           apply::CheckpointDir::open_path(options.base_dir, apply::Access::kRead, {}, events_));
  part_.base.emplace(std::move(base));
  part_.model_bytes = part_.schema().tensor_bytes();
  WEFT_TRY_STATUS(read_boxes(options, part_));
  index_sources(part_);
  if (!options.baseline_dir.empty()) config_.producer.baseline_dir = options.baseline_dir;
  if (!config_.producer.baseline_dir.empty()) {
    const std::string own = "producer-" + std::to_string(options.producer);
    WEFT_TRY(state_, ProducerState::open(config_.producer.baseline_dir + "/" + own, events_));
  }
  return open_baseline(options);
}

// A state on disk knows which content it is; a new one, and memory, are what base_dir holds.
Status TrainPublisher::open_baseline(const PublisherOptions& options) {
  apply::ProducerRecovery recovery;
  const apply::ProducerFold known = state_ ? state_->fold() : apply::ProducerFold{};
  if (known.baseline && known.baseline->content.lattice != part_.lattice.digest()) {
    return misuse("producer.baseline_dir " + config_.producer.baseline_dir +
                  " is of other boxes or another checkpoint: name another directory, or remove it");
  }
  WEFT_TRY(part_.baseline, ShardBaseline::open(part_.lattice, part_.producer,
                                               {&*part_.base, state_.get(), part_.threads}));
  recovery.fleet = known.fleet;
  recovery.epoch = known.epoch;
  recovery.pending = known.pending;
  if (known.baseline) {
    recovery.content = known.baseline->content;
    recovery.part = known.baseline->part;
  } else {
    WEFT_TRY_STATUS(find_content(options, call_, part_));
    recovery.content = part_.content;
    recovery.part = part_.baseline->table().part(part_.lattice, part_.producer);
    if (state_) {
      WEFT_TRY_STATUS(
          state_->append(apply::BaselineRecord{std::nullopt, recovery.content, recovery.part}));
    }
  }
  return open_session(std::move(recovery));
}

Status TrainPublisher::open_session(apply::ProducerRecovery recovery) {
  ProducerInput input;
  input.coordinator = *config_.coordinator;
  input.producer = part_.producer;
  input.producer_count = part_.producer_count;
  input.schema = part_.schema().digest();
  input.recovery = std::move(recovery);
  input.move_baseline = [this]() -> Status {
    WEFT_TRY_STATUS(part_.baseline->move());
    part_.marks->move();
    return ok();
  };
  input.drop_pending = [this] {
    part_.baseline->drop();
    part_.marks->drop();
  };
  if (state_) {
    input.append = [this](const apply::ProducerRecord& record) { return state_->append(record); };
  }
  WEFT_TRY(session_, ProducerSession::open(config_, input, events_));
  return ok();
}

std::vector<ShardTensor> TrainPublisher::shard_tensors() const {
  std::vector<ShardTensor> tensors;
  for (std::uint32_t s = 0; s < part_.uses.size(); ++s) {
    const SourceUse& use = part_.uses[s];
    const bool one = use.type && use.one_type;
    tensors.push_back({part_.projection.sources[s].name, use.elements,
                       one ? std::string(codec::name(*use.type)) : std::string()});
  }
  return tensors;
}

Result<std::unique_ptr<Refit>> TrainPublisher::begin(Version target) {
  // Agents fetch it when the plan is made; the coordinator may have been started anew.
  auto call = call_;
  call.timeout = kLatticeTimeout;
  WEFT_TRY_STATUS(transport::put_lattice(call, part_.lattice.digest(), part_.lattice.encode()));
  apply::producer::Publish publish;
  publish.target_version = target;
  publish.model_bytes = part_.model_bytes;
  publish.retries = 0;  // the views are the caller's: it puts them again
  publish.busy_timeout = kBusyTimeout;
  publish.commit_timeout = config_.producer.outcome_timeout;
  session_->begin(std::move(publish));
  if (const auto plan = session_->next_plan()) {
    return std::unique_ptr<Refit>(std::make_unique<TrainRefit>(part_, *session_, *plan));
  }
  const auto done = session_->wait_done();
  if (!done.status) return done.status.error();
  return failure(ErrorCode::kVersionOrder, Stage::kPublish,
                 "version " + std::to_string(target.value) + " is committed already");
}

}  // namespace
}  // namespace weft::agent

namespace weft {

Result<std::unique_ptr<Publisher>> Publisher::open(const PublisherOptions& options,
                                                   EventSink& events) {
  auto publisher = std::make_unique<agent::TrainPublisher>(events);
  WEFT_TRY_STATUS(publisher->start(options));
  return std::unique_ptr<Publisher>(std::move(publisher));
}

}  // namespace weft
