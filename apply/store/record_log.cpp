// SPDX-License-Identifier: Apache-2.0
#include "apply/store/record_log.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "weft/base/assert.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::apply {

namespace {

constexpr std::uint64_t kFileMagic = 0x474F'4C52'5446'4557;  // "WEFTRLOG" in memory order
constexpr std::uint32_t kFormatVersion = 1;
constexpr std::size_t kFileHeaderBytes = 64;
constexpr std::uint32_t kRecordMagic = 0x4345'5257;  // "WREC"
constexpr std::size_t kRecordHeaderBytes = 24;
constexpr std::size_t kCheckedHeaderBytes = 16;  // the record header before its check
constexpr std::size_t kAlignment = 8;

std::vector<std::byte> encode_file_header(std::uint32_t log_kind, std::uint64_t capacity_bytes) {
  wire::ByteWriter out;
  out.write(kFileMagic);
  out.write(kFormatVersion);
  out.write(log_kind);
  out.write(capacity_bytes);
  const std::array<std::byte, kFileHeaderBytes - 32> reserved{};
  out.write_bytes(reserved);
  out.write(wire::digest64(out.bytes()));
  WEFT_ASSERT(out.bytes().size() == kFileHeaderBytes);
  return std::move(out).take();
}

// XXH3-64 over the record header before its check, then the payload.
std::uint64_t record_check(std::span<const std::byte> header, std::span<const std::byte> payload) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, header.data(), header.size());
  XXH3_64bits_update(&state, payload.data(), payload.size());
  return XXH3_64bits_digest(&state);
}

void encode_record(std::vector<std::byte>& out, std::uint16_t kind, std::uint32_t sequence,
                   std::span<const std::byte> payload) {
  wire::ByteWriter header;
  header.write(kRecordMagic);
  header.write(static_cast<std::uint32_t>(payload.size()));
  header.write(sequence);
  header.write(kind);
  header.write(std::uint16_t{0});
  header.write(record_check(header.bytes(), payload));
  out.insert(out.end(), header.bytes().begin(), header.bytes().end());
  out.insert(out.end(), payload.begin(), payload.end());
  out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment);
}

struct ParsedRecord {
  std::uint16_t kind = 0;
  std::uint32_t sequence = 0;
  std::span<const std::byte> payload;
};

// The record that starts `bytes`, if a whole and undamaged one does.
std::optional<ParsedRecord> parse_record(std::span<const std::byte> bytes,
                                         std::uint32_t payload_bytes_max) {
  if (bytes.size() < kRecordHeaderBytes) return std::nullopt;
  wire::ByteReader in(bytes);
  if (in.read<std::uint32_t>() != kRecordMagic) return std::nullopt;
  const auto payload_bytes = in.read<std::uint32_t>();
  ParsedRecord record;
  record.sequence = in.read<std::uint32_t>();
  record.kind = in.read<std::uint16_t>();
  const auto reserved = in.read<std::uint16_t>();
  const auto check = in.read<std::uint64_t>();
  if (reserved != 0 || payload_bytes > payload_bytes_max) return std::nullopt;
  record.payload = in.read_bytes(payload_bytes);
  if (!in.ok() || record_check(bytes.first(kCheckedHeaderBytes), record.payload) != check) {
    return std::nullopt;
  }
  return record;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Whether any whole record lies at an aligned place of `bytes`, its first place left out.
bool has_record_behind_first(std::span<const std::byte> bytes, std::uint32_t payload_bytes_max) {
  for (std::size_t at = kAlignment; at < bytes.size(); at += kAlignment) {
    if (parse_record(bytes.subspan(at), payload_bytes_max)) return true;
  }
  return false;
}

}  // namespace

std::uint64_t RecordLog::record_bytes(std::size_t payload_bytes) {
  return (kRecordHeaderBytes + payload_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

RecordLog::RecordLog(Store& store, std::string name, const RecordLogOptions& options)
    : store_(&store), name_(std::move(name)), options_(options) {}

Result<RecordLog> RecordLog::open(Store& store, std::string name, const RecordLogOptions& options) {
  RecordLog log(store, std::move(name), options);
  // A leftover of a rewrite that a crash cut short; the old log still counts.
  WEFT_TRY_STATUS(store.remove_tree(log.name_ + ".new"));
  auto file = store.open(log.name_, Access::kReadWrite);
  if (!file && is_missing(file.error())) {
    WEFT_TRY_STATUS(log.rewrite({}));
    log.created_ = true;
    return log;
  }
  if (!file) return file.error();
  log.file_ = *std::move(file);
  WEFT_TRY_STATUS(log.recover());
  return log;
}

Status RecordLog::recover() {
  const auto unreadable = [this](std::uint64_t offset, const std::string& why) {
    return failure(
        ErrorCode::kNeedsReseed, Stage::kRecover,
        "log " + name_ + " is unreadable at byte " + std::to_string(offset) + ": " + why);
  };
  WEFT_TRY(const std::uint64_t file_bytes, file_->size());
  if (file_bytes < kFileHeaderBytes) return unreadable(0, "shorter than its header");
  if (file_bytes > options_.capacity_bytes_max) return unreadable(0, "longer than its maximum");
  std::vector<std::byte> bytes(static_cast<std::size_t>(file_bytes));
  WEFT_TRY_STATUS(file_->read(0, bytes));
  wire::ByteReader header(bytes);
  const bool known = header.read<std::uint64_t>() == kFileMagic;
  const auto version = header.read<std::uint32_t>();
  const auto log_kind = header.read<std::uint32_t>();
  capacity_bytes_ = header.read<std::uint64_t>();
  if (!known || wire::load_le<std::uint64_t>(bytes.data() + kFileHeaderBytes - 8) !=
                    wire::digest64(std::span(bytes).first(kFileHeaderBytes - 8))) {
    return unreadable(0, "not the header of a log");
  }
  if (version != kFormatVersion) {
    return unreadable(0, "format version " + std::to_string(version) + "; this build reads 1");
  }
  if (log_kind != options_.log_kind) return unreadable(0, "a log of another kind");
  if (capacity_bytes_ != file_bytes) return unreadable(0, "another length than its header says");

  std::size_t at = kFileHeaderBytes;
  while (const auto record =
             parse_record(std::span(bytes).subspan(at), options_.payload_bytes_max)) {
    if (record->sequence != next_sequence_) return unreadable(at, "a record is out of order");
    recovered_.push_back({record->kind, {record->payload.begin(), record->payload.end()}});
    at += static_cast<std::size_t>(record_bytes(record->payload.size()));
    ++next_sequence_;
    if (at > bytes.size()) return unreadable(bytes.size(), "the last record is not padded");
  }
  end_ = at;
  const auto tail = std::span<const std::byte>(bytes).subspan(at);
  if (all_zero(tail)) return ok();
  if (has_record_behind_first(tail, options_.payload_bytes_max)) {
    return unreadable(at, "a bad record before a good one");
  }
  return cut_tail(tail);
}

// A torn append was never answered: it goes before anything is appended in its place.
Status RecordLog::cut_tail(std::span<const std::byte> tail) {
  std::size_t used = tail.size();
  while (used > 0 && tail[used - 1] == std::byte{0}) --used;
  const std::vector<std::byte> zeros(used);
  WEFT_TRY_STATUS(file_->write(end_, zeros));
  WEFT_TRY_STATUS(file_->sync());
  cut_bytes_ = used;
  return ok();
}

Status RecordLog::append(std::uint16_t kind, std::span<const std::byte> payload) {
  WEFT_TRY_STATUS(broken_);
  if (payload.size() > options_.payload_bytes_max) {
    return failure(ErrorCode::kResourceLimit, Stage::kPrepare,
                   "log " + name_ + ": a record of " + std::to_string(payload.size()) +
                       " bytes; at most " + std::to_string(options_.payload_bytes_max));
  }
  if (end_ + record_bytes(payload.size()) > capacity_bytes_) {
    return failure(ErrorCode::kNoSpace, Stage::kPrepare,
                   "log " + name_ + " is full at " + std::to_string(end_) + " bytes");
  }
  std::vector<std::byte> bytes;
  encode_record(bytes, kind, next_sequence_, payload);
  Status written = file_->write(end_, bytes);
  if (written) written = file_->sync();
  if (!written) {
    broken_ = written;
    return written;
  }
  end_ += bytes.size();
  ++next_sequence_;
  return ok();
}

Status RecordLog::rewrite(std::span<const LogRecord> kept) {
  WEFT_TRY_STATUS(broken_);
  std::vector<std::byte> records;
  std::uint32_t sequence = 0;
  for (const LogRecord& record : kept) {
    if (record.payload.size() > options_.payload_bytes_max) {
      return failure(ErrorCode::kResourceLimit, Stage::kPrepare,
                     "log " + name_ + ": a record of " + std::to_string(record.payload.size()) +
                         " bytes; at most " + std::to_string(options_.payload_bytes_max));
    }
    encode_record(records, record.kind, sequence++, record.payload);
  }
  // Twice what is kept, so that the new log is not half full at once.
  std::uint64_t capacity = std::max(options_.capacity_bytes, capacity_bytes_);
  while (capacity < 2 * (kFileHeaderBytes + records.size())) capacity *= 2;
  if (capacity > options_.capacity_bytes_max) {
    return failure(ErrorCode::kResourceLimit, Stage::kPrepare,
                   "log " + name_ + ": " + std::to_string(records.size()) +
                       " bytes of records; at most half of " +
                       std::to_string(options_.capacity_bytes_max));
  }
  std::vector<std::byte> bytes = encode_file_header(options_.log_kind, capacity);
  bytes.insert(bytes.end(), records.begin(), records.end());

  const std::string fresh_name = name_ + ".new";
  WEFT_TRY_STATUS(store_->remove_tree(fresh_name));
  WEFT_TRY(std::unique_ptr<File> fresh, store_->create(fresh_name));
  Status built = fresh->allocate(0, capacity, true);
  if (built) built = fresh->write(0, bytes);
  if (built) built = fresh->sync();
  if (!built) {
    static_cast<void>(store_->remove(fresh_name));
    return built;
  }
  Status placed = store_->rename(fresh_name, name_);
  if (placed) placed = store_->sync_directory();
  if (!placed) {
    broken_ = placed;
    return placed;
  }
  file_ = std::move(fresh);
  capacity_bytes_ = capacity;
  end_ = bytes.size();
  next_sequence_ = sequence;
  return ok();
}

}  // namespace weft::apply
