// SPDX-License-Identifier: Apache-2.0
#include "apply/read/state_page.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <climits>
#include <ctime>
#include <optional>
#include <vector>

#include "apply/store/descriptor.hpp"
#include "apply/store/native_error.hpp"
#include "weft/base/limits.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::apply {

namespace {

constexpr std::uint64_t kPageMagic = 0x4554'4154'5346'4557;  // "WEFSTATE" in memory order
constexpr std::uint32_t kPageFormatVersion = 1;
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kFutexOffset = 0;  // u32: low half of the sequence
constexpr std::size_t kBodyOffset = 64;  // the rest of the first line is left to the futex
constexpr std::size_t kBodyBytes = 128;
constexpr unsigned kReadableByAll = 0644;
constexpr int kTornReadsMax = 1000;

using Page = std::array<std::byte, kBodyOffset + kBodyBytes>;

Page encode(const PublishedState& state) {
  wire::ByteWriter out;
  out.write(static_cast<std::uint32_t>(state.sequence));
  out.write_bytes(std::array<std::byte, kBodyOffset - 4>{});
  out.write(kPageMagic);
  out.write(kPageFormatVersion);
  out.write(static_cast<std::uint32_t>(state.phase));
  out.write(state.sequence);
  out.write_content(state.content);
  out.write_bits128(state.boot_id);
  out.write(static_cast<std::uint8_t>(state.set));
  const std::size_t rest = kBodyOffset + kBodyBytes - 8 - out.bytes().size();
  out.write_bytes(std::vector<std::byte>(rest));
  out.write(wire::digest64(std::span(out.bytes()).subspan(kBodyOffset)));
  Page page;
  std::copy(out.bytes().begin(), out.bytes().end(), page.begin());
  return page;
}

// nullopt: a write was under way while the page was read, or it was never finished.
std::optional<PublishedState> decode(std::span<const std::byte> page) {
  const auto body = page.subspan(kBodyOffset, kBodyBytes);
  if (wire::load_le<std::uint64_t>(body.data() + kBodyBytes - 8) !=
      wire::digest64(body.first(kBodyBytes - 8))) {
    return std::nullopt;
  }
  wire::ByteReader in(body);
  if (in.read<std::uint64_t>() != kPageMagic || in.read<std::uint32_t>() != kPageFormatVersion) {
    return std::nullopt;
  }
  PublishedState state;
  const auto phase = in.read<std::uint32_t>();
  if (phase > static_cast<std::uint32_t>(ReadPhase::kApplying)) return std::nullopt;
  state.phase = static_cast<ReadPhase>(phase);
  state.sequence = in.read<std::uint64_t>();
  state.content = in.read_content();
  state.boot_id = in.read_bits128();
  const auto set = in.read<std::uint8_t>();
  if (set != 0 && set != 'a' && set != 'b') return std::nullopt;
  state.set = static_cast<WeightSet>(set);
  return state;
}

timespec to_timespec(Duration duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
  return {static_cast<time_t>(seconds.count()), static_cast<long>((duration - seconds).count())};
}

}  // namespace

Result<Bits128> kernel_boot_id() {
  const Descriptor file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, 64> text{};
  const ssize_t count = file ? ::read(file.number(), text.data(), text.size()) : -1;
  if (count < 0) return native_error(errno, Stage::kOpen, "read the kernel's boot id");
  Bits128 id;
  int digits = 0;
  for (ssize_t i = 0; i < count; ++i) {
    const char c = text[static_cast<std::size_t>(i)];
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) continue;
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    id.high = (id.high << 4) | (id.low >> 60);
    id.low = (id.low << 4) | static_cast<std::uint64_t>(digit);
    ++digits;
  }
  if (digits != 32) {
    return failure(ErrorCode::kIoFailed, Stage::kOpen, "the kernel's boot id is not 128 bits");
  }
  return id;
}

StatePage::~StatePage() {
  if (mapping_ != nullptr) ::munmap(mapping_, kPageBytes);
}

Result<std::unique_ptr<StatePage>> StatePage::open(Store& weights) {
  std::unique_ptr<StatePage> page(new StatePage());
  WEFT_TRY(page->file_, weights.open(kStatePageName, Access::kRead));
  void* mapping =
      ::mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, page->file_->native_handle(), 0);
  if (mapping == MAP_FAILED) return native_error(errno, Stage::kOpen, "map weft.state");
  page->mapping_ = mapping;
  return page;
}

Result<std::unique_ptr<StatePage>> StatePage::open_for_writing(Store& weights) {
  std::unique_ptr<StatePage> page(new StatePage());
  WEFT_TRY(page->boot_id_, kernel_boot_id());
  auto file = weights.open(kStatePageName, Access::kReadWrite);
  const bool created = !file && is_missing(file.error());
  if (created) file = weights.create(kStatePageName);
  if (!file) return std::move(file).error();
  page->file_ = *std::move(file);
  const int descriptor = page->file_->native_handle();
  WEFT_TRY_STATUS(page->file_->allocate(0, kPageBytes, true));
  if (::fchmod(descriptor, kReadableByAll) != 0) {
    return native_error(errno, Stage::kOpen, "weft.state: make it readable");
  }
  void* mapping = ::mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapping == MAP_FAILED) return native_error(errno, Stage::kOpen, "map weft.state");
  page->mapping_ = mapping;
  Page bytes{};
  WEFT_TRY_STATUS(page->file_->read(0, bytes));
  if (const auto found = decode(bytes)) page->sequence_ = found->sequence;
  if (created) {
    WEFT_TRY_STATUS(page->write(ReadPhase::kNotReady, {}, true));
    WEFT_TRY_STATUS(weights.sync_directory());
  }
  return page;
}

Status StatePage::write(ReadPhase phase, const Content& content, bool sync) {
  const PublishedState state{phase, content, boot_id_, ++sequence_, set_};
  const Page bytes = encode(state);
  // The body first: whoever is woken by the futex word finds it whole.
  WEFT_TRY_STATUS(file_->write(kBodyOffset, std::span(bytes).subspan(kBodyOffset)));
  WEFT_TRY_STATUS(file_->write(0, std::span(bytes).first(kBodyOffset)));
  ::syscall(SYS_futex, static_cast<std::byte*>(mapping_) + kFutexOffset, FUTEX_WAKE, INT_MAX,
            nullptr, nullptr, 0);
  return sync ? file_->sync() : ok();
}

Result<PublishedState> StatePage::read() const {
  Page bytes{};
  for (int attempt = 0; attempt < kTornReadsMax; ++attempt) {
    WEFT_TRY(const std::size_t count, file_->read_up_to(0, bytes));
    if (count < bytes.size()) {
      return failure(ErrorCode::kFormat, Stage::kPublish, file_->name() + " is too short");
    }
    if (const auto state = decode(bytes)) return *state;
  }
  return failure(ErrorCode::kFormat, Stage::kPublish, file_->name() + " holds no published state");
}

Result<PublishedState> StatePage::wait(std::uint64_t seen, Duration timeout) const {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    WEFT_TRY(const PublishedState state, read());
    if (state.sequence != seen) return state;
    const Duration left = deadline - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) {
      return failure(ErrorCode::kTimeout, Stage::kPublish,
                     file_->name() + " did not change from sequence " + std::to_string(seen));
    }
    const timespec relative = to_timespec(left);
    // A page that was truncated under us is EFAULT here and an error at the next read.
    ::syscall(SYS_futex, static_cast<std::byte*>(mapping_) + kFutexOffset, FUTEX_WAIT,
              static_cast<std::uint32_t>(seen), &relative, nullptr, 0);
  }
}

}  // namespace weft::apply
