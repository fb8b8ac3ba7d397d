// SPDX-License-Identifier: Apache-2.0
#include "apply/spool/delta_file.hpp"

#include <cstring>
#include <utility>

#include "weft/base/limits.hpp"
#include "weft/base/units.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::apply {

namespace {

constexpr std::uint64_t kHeadMagic = 0x4154'4C44'5446'4557;  // "WEFTDLTA" in memory order
constexpr std::uint64_t kFootMagic = 0x444E'4544'5446'4557;  // "WEFTDEND"
constexpr std::uint32_t kFormatVersion = 1;
constexpr std::size_t kHeadBytes = 64;
constexpr std::size_t kFootBytes = 40;
constexpr std::uint64_t kLatticeBytesMax = 256 * kMiB;
constexpr std::uint64_t kManifestBytesMax = 8 * kMiB;
constexpr std::uint64_t kFrameBytesMax = 4 * kMiB;  // of the largest slot

struct Head {
  Digest schema;
  Digest lattice;
  std::uint64_t lattice_bytes = 0;  // 0: the default lattice of the schema
};

std::vector<std::byte> encode_head(const Head& head) {
  wire::ByteWriter out;
  out.write(kHeadMagic);
  out.write(kFormatVersion);
  out.write(std::uint32_t{0});
  out.write_bits128(head.schema);
  out.write_bits128(head.lattice);
  out.write(head.lattice_bytes);
  out.write(wire::digest64(out.bytes()));
  return std::move(out).take();
}

struct Foot {
  std::uint64_t frames_bytes = 0;
  std::uint64_t frame_count = 0;
  std::uint32_t manifest_bytes = 0;
};

// The check covers the manifest before it, too.
std::vector<std::byte> encode_foot(const Foot& foot, std::span<const std::byte> manifest) {
  wire::ByteWriter out;
  out.write_bytes(manifest);
  out.write(kFootMagic);
  out.write(foot.frames_bytes);
  out.write(foot.frame_count);
  out.write(foot.manifest_bytes);
  out.write(std::uint32_t{0});
  out.write(wire::digest64(out.bytes()));
  return std::move(out).take();
}

Error refuse(const File& file, const std::string& why) {
  return failure(ErrorCode::kFormat, Stage::kOpen, file.name() + ": " + why);
}

Result<Head> load_head(const File& file) {
  std::vector<std::byte> bytes(kHeadBytes);
  WEFT_TRY(const std::size_t found, file.read_up_to(0, bytes));
  if (found < kHeadBytes || wire::load_le<std::uint64_t>(bytes.data()) != kHeadMagic) {
    return refuse(file, "not a delta file");
  }
  wire::ByteReader in(bytes);
  in.read<std::uint64_t>();
  const auto version = in.read<std::uint32_t>();
  if (version != kFormatVersion) {
    return failure(
        ErrorCode::kUnsupported, Stage::kOpen,
        file.name() + ": delta file version " + std::to_string(version) + "; this build reads 1");
  }
  in.read<std::uint32_t>();
  Head head;
  head.schema = Digest{in.read_bits128()};
  head.lattice = Digest{in.read_bits128()};
  head.lattice_bytes = in.read<std::uint64_t>();
  if (in.read<std::uint64_t>() != wire::digest64(std::span(bytes).first(kHeadBytes - 8))) {
    return refuse(file, "its header is damaged");
  }
  if (head.lattice_bytes > kLatticeBytesMax) return refuse(file, "its lattice is too long");
  return head;
}

}  // namespace

Result<std::unique_ptr<DeltaFileWriter>> DeltaFileWriter::open(Store& store, std::string name,
                                                               const codec::Schema& schema,
                                                               const codec::Lattice& lattice) {
  std::unique_ptr<DeltaFileWriter> writer(new DeltaFileWriter(store, std::move(name)));
  WEFT_TRY_STATUS(check_name(writer->name_));
  writer->fresh_name_ = writer->name_ + ".part";
  WEFT_TRY_STATUS(store.remove_tree(writer->fresh_name_));
  WEFT_TRY(writer->file_, store.create(writer->fresh_name_));
  // Most files are of the default lattice: its body need not be in them.
  WEFT_TRY(const auto usual, codec::Lattice::default_for(schema));
  std::vector<std::byte> body;
  if (usual.digest() != lattice.digest()) body = lattice.encode();
  auto bytes = encode_head({schema.digest(), lattice.digest(), body.size()});
  bytes.insert(bytes.end(), body.begin(), body.end());
  WEFT_TRY_STATUS(writer->file_->write(0, bytes));
  writer->end_ = writer->frames_begin_ = bytes.size();
  return writer;
}

DeltaFileWriter::~DeltaFileWriter() {
  if (!finished_ && file_ != nullptr) static_cast<void>(store_.remove(fresh_name_));
}

Status DeltaFileWriter::take(SharedSlot slot, const wire::FrameHeader& header) {
  const auto frame = slot.frame().first(static_cast<std::size_t>(header.frame_bytes()));
  WEFT_TRY_STATUS(file_->write(end_, frame));
  end_ += frame.size();
  ++frame_count_;
  return ok();
}

Result<std::uint64_t> DeltaFileWriter::finish(const wire::Manifest& manifest) {
  const auto body = manifest.encode();
  const auto foot = encode_foot(
      {end_ - frames_begin_, frame_count_, static_cast<std::uint32_t>(body.size())}, body);
  WEFT_TRY_STATUS(file_->write(end_, foot));
  WEFT_TRY_STATUS(file_->sync());
  WEFT_TRY_STATUS(store_.rename(fresh_name_, name_));
  finished_ = true;
  WEFT_TRY_STATUS(store_.sync_directory());
  return end_ + foot.size();
}

Result<std::unique_ptr<DeltaFileReader>> DeltaFileReader::open(Store& store,
                                                               std::string_view name) {
  std::unique_ptr<DeltaFileReader> reader(new DeltaFileReader());
  WEFT_TRY(reader->file_, store.open(name, Access::kRead));
  const File& file = *reader->file_;
  WEFT_TRY(reader->file_bytes_, file.size());
  WEFT_TRY(const Head head, load_head(file));
  reader->schema_digest_ = head.schema;
  reader->lattice_digest_ = head.lattice;
  reader->frames_begin_ = reader->at_ = kHeadBytes + head.lattice_bytes;

  const std::uint64_t bytes = reader->file_bytes_;
  if (bytes < reader->frames_begin_ + kFootBytes) return refuse(file, "truncated");
  std::vector<std::byte> foot_bytes(kFootBytes);
  WEFT_TRY_STATUS(file.read(bytes - kFootBytes, foot_bytes));
  wire::ByteReader in(foot_bytes);
  if (in.read<std::uint64_t>() != kFootMagic) {
    return refuse(file, "truncated, or bytes behind its end");
  }
  Foot foot;
  foot.frames_bytes = in.read<std::uint64_t>();
  foot.frame_count = in.read<std::uint64_t>();
  foot.manifest_bytes = in.read<std::uint32_t>();
  const std::uint64_t room = bytes - kFootBytes - reader->frames_begin_;
  if (foot.manifest_bytes > kManifestBytesMax || foot.frames_bytes > room ||
      room - foot.frames_bytes != foot.manifest_bytes) {
    return refuse(file, "its lengths do not add up");
  }
  reader->frames_end_ = reader->frames_begin_ + foot.frames_bytes;
  reader->frame_count_ = foot.frame_count;
  std::vector<std::byte> body(foot.manifest_bytes);
  WEFT_TRY_STATUS(file.read(reader->frames_end_, body));
  if (encode_foot(foot, body) != [&] {
        auto whole = body;
        whole.insert(whole.end(), foot_bytes.begin(), foot_bytes.end());
        return whole;
      }()) {
    return refuse(file, "its manifest or end is damaged");
  }
  auto manifest = wire::Manifest::decode(body);
  if (!manifest) return refuse(file, "its manifest is not one");
  reader->manifest_ = *std::move(manifest);
  if (reader->manifest_.schema != head.schema || reader->manifest_.target.lattice != head.lattice) {
    return refuse(file, "its manifest is of another schema or lattice");
  }
  reader->lattice_body_.resize(static_cast<std::size_t>(head.lattice_bytes));
  WEFT_TRY_STATUS(file.read(kHeadBytes, reader->lattice_body_));
  return reader;
}

Result<codec::Lattice> DeltaFileReader::lattice(const codec::Schema& schema) const {
  if (schema.digest() != schema_digest_) {
    return failure(ErrorCode::kSchemaChanged, Stage::kOpen,
                   file_->name() + " is of a checkpoint with other tensors (schema " +
                       to_hex(schema_digest_) + ", here " + to_hex(schema.digest()) + ")");
  }
  auto lattice = lattice_body_.empty() ? codec::Lattice::default_for(schema)
                                       : codec::Lattice::decode(schema, lattice_body_);
  if (!lattice) return refuse(*file_, "its lattice: " + lattice.error().detail);
  if (lattice->digest() != lattice_digest_) return refuse(*file_, "its lattice is damaged");
  return lattice;
}

Result<std::optional<wire::FrameHeader>> DeltaFileReader::next_frame(std::vector<std::byte>& into) {
  if (at_ == frames_end_) return std::optional<wire::FrameHeader>();
  const auto cut = [this] { return refuse(*file_, "no frame at byte " + std::to_string(at_)); };
  into.resize(limits::kFrameHeaderBytes);
  if (frames_end_ - at_ < into.size()) return cut();
  WEFT_TRY_STATUS(file_->read(at_, into));
  wire::FrameHeader claimed;
  std::memcpy(&claimed, into.data(), sizeof(claimed));
  if (claimed.magic != wire::kFrameMagic || claimed.frame_bytes() > kFrameBytesMax ||
      claimed.frame_bytes() > frames_end_ - at_) {
    return cut();
  }
  into.resize(static_cast<std::size_t>(claimed.frame_bytes()));
  WEFT_TRY_STATUS(file_->read(at_, into));
  WEFT_TRY(const wire::FrameHeader header, wire::load_frame_header(into));
  at_ += into.size();
  return std::optional(header);
}

}  // namespace weft::apply
