// SPDX-License-Identifier: Apache-2.0
#include "python/publisher_handle.hpp"

#include <cstring>
#include <exception>
#include <utility>

#include "python/failure.hpp"

namespace py = pybind11;

namespace weft::python {

namespace {

// A commit that waits for its decision is left to itself after so long.
constexpr Duration kCommitPatience = std::chrono::seconds(2);
constexpr Duration kForEver = std::chrono::hours(24);

// Python code that gives values, called on any thread.
// Threads: any.
class PythonConverter {
 public:
  PythonConverter(const std::string& name, const py::function& converter)
      : name_(name), converter_(converter) {}

  // The values go through memory of Python's own, which the converter may keep.
  Status operator()(std::uint64_t first_element, std::span<std::byte> into) {
    const py::gil_scoped_acquire locked;
    try {
      const py::object buffer = py::reinterpret_steal<py::object>(
          PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(into.size())));
      if (!buffer) throw py::error_already_set();
      converter_(first_element, py::memoryview(buffer));
      if (static_cast<std::size_t>(PyByteArray_Size(buffer.ptr())) != into.size()) {
        throw py::value_error("the converter of " + name_ + " changed the size of its buffer");
      }
      std::memcpy(into.data(), PyByteArray_AsString(buffer.ptr()), into.size());
      return ok();
    } catch (py::error_already_set&) {
      if (!thrown_) thrown_ = std::current_exception();
    } catch (const std::exception&) {
      if (!thrown_) thrown_ = std::current_exception();
    }
    return failure(ErrorCode::kConfig, Stage::kScan, "the converter of " + name_ + " has failed");
  }

  // What it raised first, if anything. With the interpreter's lock.
  void rethrow() {
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  }

 private:
  const std::string& name_;
  const py::function& converter_;
  std::exception_ptr thrown_;  // under the interpreter's lock
};

std::vector<HostArray> arrays_of(const py::object& tensors) {
  std::vector<HostArray> arrays;
  if (tensors.is_none()) return arrays;
  if (!py::isinstance<py::tuple>(tensors) && !py::isinstance<py::list>(tensors)) {
    arrays.emplace_back(tensors);
    return arrays;
  }
  for (const py::handle tensor : tensors) arrays.emplace_back(tensor);
  return arrays;
}

}  // namespace

PublisherHandle::Turn::Turn(PublisherHandle& publisher) : publisher_(publisher) {
  if (publisher_.in_turn_.exchange(true)) {
    throw Failure(failure(ErrorCode::kBusy, Stage::kPublish,
                          "another thread is in a call of this publisher; one at a time"));
  }
}

PublisherHandle::Turn::~Turn() {
  publisher_.in_turn_.store(false);
  try {
    publisher_.events_.flush();
  } catch (py::error_already_set& raised) {  // a logger that fails is not the caller's trouble
    raised.discard_as_unraisable("weft: the logger failed");
  }
}

std::shared_ptr<PublisherHandle> PublisherHandle::open(const PublisherOptions& options) {
  std::shared_ptr<PublisherHandle> handle(new PublisherHandle());
  std::optional<Result<std::unique_ptr<Publisher>>> opened;
  {
    const Turn turn(*handle);
    LongCall call([&] { opened.emplace(Publisher::open(options, handle->events_)); });
    wait_with_signals(
        call, [] {}, kForEver);
  }
  handle->publisher_ = must(*std::move(opened));
  for (ShardTensor& tensor : handle->publisher_->shard_tensors()) {
    std::string name = tensor.name;
    handle->shard_.emplace(std::move(name), std::move(tensor));
  }
  return handle;
}

PublisherHandle::~PublisherHandle() { drop(); }

void PublisherHandle::close() {
  const Turn turn(*this);
  if (const auto refit = refit_.lock()) refit->end();
  drop();
}

// From here on no other thread finds it.
void PublisherHandle::drop() {
  auto publisher = std::move(publisher_);
  auto commit = std::move(left_behind_);
  const py::gil_scoped_release unlocked;
  commit.reset();
  publisher.reset();
}

Publisher& PublisherHandle::opened() {
  if (publisher_ == nullptr) throw misuse("the publisher is closed");
  return *publisher_;
}

// Until a commit that was left behind has its decision.
void PublisherHandle::settle() {
  if (left_behind_ == nullptr) return;
  wait_with_signals(
      *left_behind_, [] {}, Duration::zero());
  left_behind_.reset();
}

std::shared_ptr<RefitHandle> PublisherHandle::begin(std::uint64_t version, bool partial) {
  const Turn turn(*this);
  Publisher& publisher = opened();
  settle();
  if (const auto before = refit_.lock(); before && before->is_open()) {
    throw Failure(failure(
        ErrorCode::kBusy, Stage::kPublish,
        "the refit of version " + std::to_string(before->version().value) + " is still open"));
  }
  std::optional<Result<std::unique_ptr<Refit>>> begun;
  {
    LongCall call([&] { begun.emplace(publisher.begin(Version{version})); });
    try {
      wait_with_signals(
          call, [&] { publisher.cancel(); }, kForEver);
    } catch (...) {
      const py::gil_scoped_release unlocked;
      begun.reset();
      throw;
    }
  }
  auto refit = std::make_shared<RefitHandle>(shared_from_this(), must(*std::move(begun)),
                                             Version{version}, partial);
  refit_ = refit;
  return refit;
}

void PublisherHandle::cancel() { opened().cancel(); }

Content PublisherHandle::content() { return opened().content(); }

std::vector<ShardTensor> PublisherHandle::shard_tensors() { return opened().shard_tensors(); }

// A type that was mixed up would be taken for bits: everything but plain words must agree.
ShardView PublisherHandle::view_of(const std::string& name, const HostArray& array,
                                   bool cast) const {
  const auto found = shard_.find(name);
  if (found == shard_.end() || found->second.dtype.empty())
    return {ShardType::kSame, array.bytes()};
  const std::string& wanted = found->second.dtype;
  if (array.dtype() == wanted) return {ShardType::kSame, array.bytes()};
  if (cast && array.dtype() == "F32") return {ShardType::kFloat32, array.bytes()};
  if (array.is_opaque()) return {ShardType::kSame, array.bytes()};
  const bool can_cast = array.dtype() == "F32" && (wanted == "BF16" || wanted == "F16");
  throw misuse(name + " is " + array.dtype() + ", the checkpoint has " + wanted +
               (can_cast ? ": say cast=True" : ""));
}

RefitHandle::~RefitHandle() {
  if (refit_ == nullptr) return;
  const py::gil_scoped_release unlocked;
  refit_.reset();
}

void RefitHandle::end() {
  auto refit = std::exchange(refit_, nullptr);
  const py::gil_scoped_release unlocked;
  refit.reset();
}

Refit& RefitHandle::open_refit() {
  if (refit_ == nullptr) throw misuse("the refit is closed");
  return *refit_;
}

void RefitHandle::put(const std::string& name, py::handle tensor, bool cast) {
  const PublisherHandle::Turn turn(*publisher_);
  Refit& refit = open_refit();
  const HostArray array(tensor);
  const ShardView view = publisher_->view_of(name, array, cast);
  Status status;
  {
    const py::gil_scoped_release unlocked;
    status = refit.put(name, view);
  }
  must(std::move(status));
}

void RefitHandle::put_shard(const std::vector<ShardBox>& boxes, py::handle tensor, bool cast) {
  const PublisherHandle::Turn turn(*publisher_);
  Refit& refit = open_refit();
  const HostArray array(tensor);
  ShardView view{ShardType::kSame, array.bytes()};
  if (cast && array.dtype() == "F32") view.type = ShardType::kFloat32;
  if (!array.is_opaque()) view.dtype = array.dtype();
  Status status;
  {
    const py::gil_scoped_release unlocked;
    status = refit.put_shard(boxes, view);
  }
  must(std::move(status));
}

void RefitHandle::put_residual(const std::string& name, const py::function& converter,
                               const py::object& source, bool elementwise) {
  const PublisherHandle::Turn turn(*publisher_);
  Refit& refit = open_refit();
  const std::vector<HostArray> arrays = arrays_of(source);
  ResidualSource read;
  read.elementwise = elementwise;
  for (const HostArray& array : arrays) read.parts.push_back(array.bytes());
  PythonConverter values(name, converter);
  Status status;
  {
    const py::gil_scoped_release unlocked;
    status = refit.put_residual(name, std::ref(values), read);
  }
  values.rethrow();
  must(std::move(status));
}

RefitReport RefitHandle::commit(bool partial) {
  const PublisherHandle::Turn turn(*publisher_);
  open_refit();
  using Outcome = std::optional<Result<RefitReport>>;
  const auto outcome = std::make_shared<Outcome>();
  auto call = std::make_unique<LongCall>(
      [outcome, refit = refit_, partial] { outcome->emplace(refit->commit(partial)); });
  try {
    Publisher& publisher = publisher_->opened();
    wait_with_signals(
        *call, [&] { publisher.cancel(); }, kCommitPatience);
  } catch (...) {
    publisher_->left_behind_ = std::move(call);
    refit_.reset();
    throw;
  }
  {
    const py::gil_scoped_release unlocked;
    call.reset();
  }
  Result<RefitReport>& done = **outcome;
  // What was not put can still be put; anything else ends the refit.
  if (!done && done.error().code == ErrorCode::kConfig) throw Failure(done.error());
  end();
  stats_ = must(std::move(done));
  return *stats_;
}

void RefitHandle::abort() {
  if (refit_ == nullptr) return;
  const PublisherHandle::Turn turn(*publisher_);
  end();
}

void RefitHandle::leave(bool failed) {
  if (refit_ == nullptr) return;
  if (failed) {
    abort();
    return;
  }
  try {
    commit(partial_);
  } catch (...) {
    if (refit_ != nullptr) abort();
    throw;
  }
}

}  // namespace weft::python
