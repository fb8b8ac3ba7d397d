// SPDX-License-Identifier: Apache-2.0
// weft.state: one page by which readers learn what the weight files are (docs/formats/state.md).
#pragma once

#include <cstdint>
#include <memory>

#include "apply/store/store.hpp"
#include "apply/store/weight_set.hpp"
#include "weft/base/clock.hpp"
#include "weft/base/ids.hpp"
#include "weft/base/result.hpp"

namespace weft::apply {

inline constexpr std::string_view kStatePageName = "weft.state";
inline constexpr std::string_view kReaderLockName = "weft.lock";

enum class ReadPhase : std::uint32_t {
  kNotReady = 0,  // unknown, in doubt, or needs a reseed: nothing may be read
  kReady = 1,
  kApplyPending = 2,  // ready, but readers let the writer have its turn first
  kApplying = 3,      // bytes are changing
};

// Threads: a value; one at a time.
struct PublishedState {
  ReadPhase phase = ReadPhase::kNotReady;
  Content content;
  Bits128 boot_id;                   // of the kernel that ran when this was written
  std::uint64_t sequence = 0;        // grows with every write
  WeightSet set = WeightSet::kNone;  // where `content` lies
  auto operator<=>(const PublishedState&) const = default;
};

// The kernel's boot id, new at every boot. Errors: kIoFailed.
Result<Bits128> kernel_boot_id();

// StatePage is the page, as its writer or as a reader. It is read and written through the file,
// never through the mapping, so that a truncated file is an error and not a signal; the mapping
// only gives the futex its address.
// Owns:    the descriptor and the mapping.
// Threads: any for read and wait; write one at a time.
class StatePage {
 public:
  // Makes the page (mode 0644) when it is missing; never replaces one.
  static Result<std::unique_ptr<StatePage>> open_for_writing(Store& weights);
  // Errors: is_missing() when no agent has ever owned the directory.
  static Result<std::unique_ptr<StatePage>> open(Store& weights);
  ~StatePage();
  StatePage(const StatePage&) = delete;
  StatePage& operator=(const StatePage&) = delete;

  // Sequence and boot id are filled in; wakes every waiter. Durable only when `sync` is set.
  Status write(ReadPhase phase, const Content& content, bool sync = false);
  // Which set later writes name; kNone until then.
  void name_set(WeightSet set) { set_ = set; }
  // Errors: kFormat (not a page), kTimeout (always found half written).
  Result<PublishedState> read() const;
  // Until the sequence is another than `seen`, then the new state. Errors: kTimeout.
  Result<PublishedState> wait(std::uint64_t seen, Duration timeout) const;

 private:
  StatePage() = default;

  std::unique_ptr<File> file_;
  void* mapping_ = nullptr;
  std::uint64_t sequence_ = 0;
  WeightSet set_ = WeightSet::kNone;
  Bits128 boot_id_;
};

}  // namespace weft::apply
