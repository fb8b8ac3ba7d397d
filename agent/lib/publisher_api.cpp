// SPDX-License-Identifier: Apache-2.0
// weft::Publisher and weft::Refit (include/weft/publisher.hpp).
#include <algorithm>
#include <array>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "agent/lib/producer_session.hpp"
#include "agent/lib/shard_source.hpp"
#include "apply/store/checkpoint_source.hpp"
#include "codec/flow/part_encoder.hpp"
#include "codec/project/box_file.hpp"
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

// The whole checkpoint from shard tensors of the same names.
codec::Projection whole_checkpoint(const codec::Schema& schema) {
  codec::Projection projection;
  for (std::uint32_t t = 0; t < schema.tensors().size(); ++t) {
    const codec::Tensor& tensor = schema.tensors()[t];
    projection.sources.push_back({tensor.name, tensor.element_count});
    if (tensor.element_count == 0) continue;
    codec::Box box;
    box.source = t;
    box.target = TensorIndex{t};
    box.rank = 1;
    box.axes[0] = {tensor.element_count, 1, 1};
    projection.boxes.push_back(box);
  }
  return projection;
}

// What one shard tensor feeds.
// Threads: a value; one at a time.
struct SourceUse {
  std::uint64_t elements = 0;
  std::vector<ChunkIndex> chunks;  // ascending
  std::optional<codec::DType> type;
  bool one_type = true;
};

// One producer's part of the model, read once.
// Threads: immutable after open, but for the baseline.
struct TrainPart {
  std::optional<apply::CheckpointDir> base;
  codec::Lattice lattice;
  codec::Projection projection;
  codec::Gather gather;
  ProducerIndex producer;
  std::uint32_t producer_count = 1;
  std::uint32_t threads = 1;
  std::unique_ptr<ShardBaseline> baseline;
  std::vector<SourceUse> uses;               // by source
  std::vector<std::uint32_t> source_counts;  // by chunk of the producer
  std::unordered_map<std::string, std::uint32_t> places;
  Content content;
  std::uint64_t model_bytes = 0;
  std::uint64_t own_elements = 0;
  const codec::Schema& schema() const { return base->schema(); }
};

Status read_boxes(const PublisherOptions& options, TrainPart& part) {
  std::vector<codec::Tile> tiles;
  part.producer = ProducerIndex{options.producer};
  part.producer_count =
      static_cast<std::uint32_t>(std::max<std::size_t>(1, options.box_files.size()));
  if (options.producer >= part.producer_count) {
    return misuse("producer " + std::to_string(options.producer) + " of " +
                  std::to_string(part.producer_count));
  }
  for (std::uint32_t p = 0; p < part.producer_count; ++p) {
    Result<codec::Projection> read =
        options.box_files.empty() ? Result<codec::Projection>(whole_checkpoint(part.schema()))
                                  : codec::parse_boxes(options.box_files[p], part.schema());
    if (!read) {
      Error error = std::move(read).error();
      error.detail += " (boxes of producer " + std::to_string(p) + ")";
      return error;
    }
    WEFT_TRY(const auto own, codec::tiles_of(part.schema(), *read, ProducerIndex{p}));
    tiles.insert(tiles.end(), own.begin(), own.end());
    if (p == options.producer) part.projection = *std::move(read);
  }
  WEFT_TRY(part.lattice,
           codec::Lattice::from_tiles(part.schema(), std::move(tiles), part.producer_count));
  WEFT_TRY(part.gather,
           codec::Gather::open(part.schema(), part.lattice, part.producer, part.projection));
  return ok();
}

void index_sources(TrainPart& part) {
  part.uses.resize(part.projection.sources.size());
  for (std::uint32_t s = 0; s < part.uses.size(); ++s) {
    part.uses[s].elements = part.projection.sources[s].element_count;
    part.places.emplace(part.projection.sources[s].name, s);
  }
  const codec::ChunkRange own = part.lattice.chunks_of(part.producer);
  for (std::uint32_t i = 0; i < own.count; ++i) {
    const ChunkIndex chunk{own.first.value + i};
    const codec::ChunkPlace place = part.lattice.place(chunk);
    part.own_elements += place.element_count;
    const auto sources = part.gather.sources_of(chunk);
    part.source_counts.push_back(static_cast<std::uint32_t>(sources.size()));
    const codec::DType type = part.schema().tensor(place.tensor).dtype;
    for (const std::uint32_t source : sources) {
      SourceUse& use = part.uses[source];
      use.chunks.push_back(chunk);
      use.one_type = use.one_type && (!use.type || *use.type == type);
      use.type = type;
    }
  }
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
        options_(flow_options(part, plan)),
        encoder_(part.lattice, part.producer, session.slots(), *this, options_) {}
  ~TrainRefit() override { abort(); }

  Status put(std::string_view name, const ShardView& view) override;
  Status put_residual(std::string_view name, const ResidualConverter& converter) override;
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
  Status check_view(std::string_view name, const SourceUse& use, const ShardView& view) const;
  Status scan(std::uint32_t place);
  Status check_all_put(bool partial) const;
  Error outcome();

  TrainPart& part_;
  ProducerSession& session_;
  const Version target_;
  PutTensors put_;
  std::vector<std::uint32_t> missing_;  // by chunk: sources that are still to be put
  ShardSource source_;
  const codec::EncodeFlowOptions options_;
  codec::PartEncoder encoder_;
  double put_seconds_ = 0;
  bool failed_ = false;
  bool closed_ = false;
};

Result<std::uint32_t> TrainRefit::place_of(std::string_view name) const {
  if (closed_) return misuse("the refit is closed");
  const auto found = part_.places.find(std::string(name));
  if (found == part_.places.end()) return misuse(std::string(name) + " is no shard tensor");
  if (put_.tensors[found->second].put) return misuse(std::string(name) + " was put before");
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
  return scan(place);
}

Status TrainRefit::put_residual(std::string_view name, const ResidualConverter& converter) {
  WEFT_TRY(const std::uint32_t place, place_of(name));
  for (const ChunkIndex chunk : part_.uses[place].chunks) {
    if (part_.gather.row_of(chunk)) continue;
    return misuse(std::string(name) + ": a converter can only give boxes that are rows");
  }
  put_.tensors[place].put = true;
  put_.tensors[place].converter = &converter;
  Status scanned = scan(place);
  put_.tensors[place].converter = nullptr;
  return scanned;
}

// Encodes the chunks that have all their sources now.
Status TrainRefit::scan(std::uint32_t place) {
  const TimePoint begun = std::chrono::steady_clock::now();
  PutTensor& tensor = put_.tensors[place];
  const ChunkIndex first = part_.lattice.chunks_of(part_.producer).first;
  std::vector<ChunkIndex> ready;
  for (const ChunkIndex chunk : part_.uses[place].chunks) {
    if (--missing_[chunk.value - first.value] == 0) ready.push_back(chunk);
  }
  if (!session_.enter_encode()) return outcome();
  Status encoded = encoder_.encode(ready, source_);
  session_.leave_encode();
  if (!encoded) {
    failed_ = true;
    if (session_.ended()) return outcome();
    session_.seal(encoded.error());
    return encoded;
  }
  // Other chunks wait for another source: the caller may free the view all the same.
  if (ready.size() < part_.uses[place].chunks.size()) {
    tensor.kept.assign(put_.views[place].begin(), put_.views[place].end());
    put_.views[place] = tensor.kept;
  } else {
    put_.views[place] = {};
  }
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
  const ChunkIndex first = part_.lattice.chunks_of(part_.producer).first;
  for (std::uint32_t s = 0; s < put_.tensors.size(); ++s) {
    if (put_.tensors[s].put) continue;
    const std::string& name = part_.projection.sources[s].name;
    for (const ChunkIndex chunk : part_.uses[s].chunks) {
      const std::uint32_t number = chunk.value - first.value;
      if (!partial) return misuse(name + " was not put");
      if (missing_[number] != part_.source_counts[number]) {
        return misuse(name + " was not put, but what it is interleaved with was");
      }
    }
  }
  return ok();
}

Result<RefitReport> TrainRefit::commit(bool partial) {
  if (closed_) return misuse("the refit is closed");
  if (failed_) {
    closed_ = true;
    return outcome();
  }
  WEFT_TRY_STATUS(check_all_put(partial));
  closed_ = true;
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
  input.move_baseline = [this] { return part_.baseline->move(); };
  input.drop_pending = [this] { part_.baseline->drop(); };
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
