// SPDX-License-Identifier: Apache-2.0
// A log file of any bytes: it opens or is refused; what it gives back can be appended to and comes
// back the same.
#include <cstddef>
#include <cstdint>
#include <span>

#include "apply/store/record_log.hpp"
#include "support/checkpoint_files.hpp"
#include "support/memory_store.hpp"
#include "weft/base/assert.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  using namespace weft;         // NOLINT(google-build-using-namespace)
  using namespace weft::apply;  // NOLINT(google-build-using-namespace)
  const RecordLogOptions options{
      .log_kind = 7, .capacity_bytes = 4096, .capacity_bytes_max = 64 * kKiB};
  auto disk = test_support::MemoryDisk::make();
  auto store = disk->open();
  // A whole log first, then the input over some of it: random bytes alone never pass the header.
  {
    auto log = RecordLog::open(*store, "log", options);
    WEFT_ASSERT(log && log->append(1, std::as_bytes(std::span("first"))));
    WEFT_ASSERT(log->append(2, std::as_bytes(std::span("second"))));
  }
  if (count < 2) return 0;
  const std::size_t at = (bytes[0] | (std::size_t{bytes[1]} << 8)) % 4096;
  auto file = *store->open("log", Access::kReadWrite);
  const auto part = std::as_bytes(std::span(bytes + 2, count - 2));
  const std::size_t room = std::min<std::size_t>(part.size(), 4096 - at);
  WEFT_ASSERT(file->write(at, part.first(room)));

  auto log = RecordLog::open(*store, "log", options);
  if (!log) {
    WEFT_ASSERT(log.error().code == ErrorCode::kNeedsReseed);
    return 0;
  }
  const auto found = log->recovered();
  const bool appended =
      static_cast<bool>(log->append(3, part.first(std::min<std::size_t>(part.size(), 100))));
  auto again = RecordLog::open(*store, "log", options);
  WEFT_ASSERT(again && again->cut_bytes() == 0);
  WEFT_ASSERT(again->recovered().size() == found.size() + (appended ? 1 : 0));
  for (std::size_t i = 0; i < found.size(); ++i) WEFT_ASSERT(again->recovered()[i] == found[i]);
  return 0;
}
