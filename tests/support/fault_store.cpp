// SPDX-License-Identifier: Apache-2.0
#include "support/fault_store.hpp"

#include <cerrno>
#include <utility>

#include "apply/store/native_error.hpp"
#include "apply/store/plain_queue.hpp"

namespace weft::test_support {

using apply::Access;
using apply::File;
using apply::Store;

namespace {

const char* name_of(Call call) {
  switch (call) {
    case Call::kOpen:
      return "open";
    case Call::kCreate:
      return "create";
    case Call::kRead:
      return "read";
    case Call::kWrite:
      return "write";
    case Call::kSync:
      return "sync";
    case Call::kAllocate:
      return "allocate";
    case Call::kTruncate:
      return "truncate";
    case Call::kRename:
      return "rename";
    case Call::kSyncDirectory:
      return "sync_directory";
    case Call::kRemove:
      return "remove";
  }
  return "?";
}

// Threads: as File.
class FaultFile final : public File {
 public:
  FaultFile(std::unique_ptr<File> file, std::shared_ptr<FaultPlan> plan)
      : file_(std::move(file)), plan_(std::move(plan)) {}

  Status read(std::uint64_t offset, std::span<std::byte> into) const override {
    WEFT_TRY_STATUS(plan_->check(Call::kRead, name()));
    return file_->read(offset, into);
  }
  Result<std::size_t> read_up_to(std::uint64_t offset, std::span<std::byte> into) const override {
    WEFT_TRY_STATUS(plan_->check(Call::kRead, name()));
    return file_->read_up_to(offset, into);
  }
  Status write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    WEFT_TRY_STATUS(plan_->check(Call::kWrite, name()));
    return file_->write(offset, bytes);
  }
  Status sync() override {
    WEFT_TRY_STATUS(plan_->check(Call::kSync, name()));
    return file_->sync();
  }
  Status allocate(std::uint64_t offset, std::uint64_t bytes, bool grow) override {
    WEFT_TRY_STATUS(plan_->check(Call::kAllocate, name()));
    return file_->allocate(offset, bytes, grow);
  }
  Status truncate(std::uint64_t bytes) override {
    WEFT_TRY_STATUS(plan_->check(Call::kTruncate, name()));
    return file_->truncate(bytes);
  }
  Result<std::uint64_t> size() const override { return file_->size(); }
  Result<apply::FileIdentity> identity() const override { return file_->identity(); }
  void start_writeback(std::uint64_t offset, std::uint64_t bytes) override {
    file_->start_writeback(offset, bytes);
  }
  void drop_cache(std::uint64_t offset, std::uint64_t bytes) override {
    file_->drop_cache(offset, bytes);
  }
  const std::string& name() const override { return file_->name(); }

 private:
  std::unique_ptr<File> file_;
  std::shared_ptr<FaultPlan> plan_;
};

// Threads: any.
class FaultStore final : public Store {
 public:
  FaultStore(std::unique_ptr<Store> store, std::shared_ptr<FaultPlan> plan)
      : store_(std::move(store)), plan_(std::move(plan)) {}

  Result<std::unique_ptr<File>> open(std::string_view name, Access access) override {
    WEFT_TRY_STATUS(plan_->check(Call::kOpen, std::string(name)));
    return wrap(store_->open(name, access));
  }
  Result<std::unique_ptr<File>> create(std::string_view name) override {
    WEFT_TRY_STATUS(plan_->check(Call::kCreate, std::string(name)));
    return wrap(store_->create(name));
  }
  Result<std::unique_ptr<Store>> open_directory(std::string_view name, bool create) override {
    WEFT_TRY_STATUS(plan_->check(create ? Call::kCreate : Call::kOpen, std::string(name)));
    WEFT_TRY(auto below, store_->open_directory(name, create));
    return wrap_with_faults(std::move(below), plan_);
  }
  Status rename(std::string_view from, std::string_view to) override {
    WEFT_TRY_STATUS(plan_->check(Call::kRename, std::string(to)));
    return store_->rename(from, to);
  }
  Status sync_directory() override {
    WEFT_TRY_STATUS(plan_->check(Call::kSyncDirectory, ""));
    return store_->sync_directory();
  }
  Status remove(std::string_view name) override {
    WEFT_TRY_STATUS(plan_->check(Call::kRemove, std::string(name)));
    return store_->remove(name);
  }
  Status remove_tree(std::string_view name) override {
    WEFT_TRY_STATUS(plan_->check(Call::kRemove, std::string(name)));
    return store_->remove_tree(name);
  }
  Result<std::vector<apply::DirectoryEntry>> list() const override { return store_->list(); }
  Result<apply::FileIdentity> identity(std::string_view name) const override {
    return store_->identity(name);
  }
  Result<std::unique_ptr<apply::FileLock>> try_lock(std::string_view name,
                                                    apply::LockMode mode) override {
    return store_->try_lock(name, mode);
  }
  // Through the wrapped files, so that queued requests meet the faults as well.
  Result<std::unique_ptr<apply::IoQueue>> open_queue(
      const apply::IoQueueOptions& options) override {
    return apply::PlainQueue::open(options);
  }
  std::string_view engine() const override { return store_->engine(); }
  Result<std::uint64_t> free_bytes() const override { return store_->free_bytes(); }

 private:
  Result<std::unique_ptr<File>> wrap(Result<std::unique_ptr<File>> file) const {
    if (!file) return file;
    return std::unique_ptr<File>(new FaultFile(*std::move(file), plan_));
  }

  std::unique_ptr<Store> store_;
  std::shared_ptr<FaultPlan> plan_;
};

}  // namespace

void FaultPlan::add(Fault fault) {
  state_.with([&](State& state) { state.faults.push_back(std::move(fault)); });
}

void FaultPlan::clear() {
  state_.with([](State& state) { state.faults.clear(); });
}

void FaultPlan::die_at(std::optional<std::uint64_t> step) {
  state_.with([&](State& state) { state.die_at = step; });
}

std::vector<std::string> FaultPlan::trace() const {
  return state_.with([](const State& state) { return state.trace; });
}

Status FaultPlan::check(Call call, const std::string& name) {
  const auto refused = [&](int native) {
    return apply::native_error(native, Stage::kApply, std::string(name_of(call)) + " " + name);
  };
  return state_.with([&](State& state) -> Status {
    if (dead_) return refused(EIO);
    const bool changes = call != Call::kOpen && call != Call::kRead;
    if (changes) {
      if (state.die_at == steps_.load()) {
        dead_ = true;
        return refused(EIO);
      }
      ++steps_;
      state.trace.push_back(std::string(name_of(call)) + " " + name);
    }
    for (Fault& fault : state.faults) {
      if (fault.call != call || name.find(fault.name_part) == std::string::npos) continue;
      if (fault.skip > 0) {
        --fault.skip;
        continue;
      }
      const int native = fault.native;
      if (native != 0 && fault.once) fault.native = 0;
      if (native != 0) return refused(native);
    }
    return ok();
  });
}

std::unique_ptr<Store> wrap_with_faults(std::unique_ptr<Store> store,
                                        std::shared_ptr<FaultPlan> plan) {
  return std::make_unique<FaultStore>(std::move(store), std::move(plan));
}

}  // namespace weft::test_support
