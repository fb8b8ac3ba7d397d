// SPDX-License-Identifier: Apache-2.0
// A delta file of any bytes: it is refused, or gives frames that lie inside it.
#include <cstddef>
#include <cstdint>
#include <span>

#include "apply/spool/delta_file.hpp"
#include "support/checkpoint_files.hpp"
#include "support/memory_store.hpp"
#include "weft/base/assert.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  using namespace weft;         // NOLINT(google-build-using-namespace)
  using namespace weft::apply;  // NOLINT(google-build-using-namespace)
  auto disk = test_support::MemoryDisk::make();
  auto store = disk->open();
  test_support::write_whole(*store, "d", std::as_bytes(std::span(bytes, count)));
  const auto reader = DeltaFileReader::open(*store, "d");
  if (!reader) return 0;
  std::vector<std::byte> frame;
  std::uint64_t frames = 0;
  while (true) {
    const auto header = (*reader)->next_frame(frame);
    if (!header || !*header) break;
    WEFT_ASSERT((*header)->frame_bytes() == frame.size());
    ++frames;
  }
  WEFT_ASSERT(frames <= count / 128);
  return 0;
}
