// SPDX-License-Identifier: Apache-2.0
#include "apply/journal/journal_layout.hpp"

#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::apply {

namespace {

constexpr std::uint64_t kSealMagic = 0x4C41'4553'4A46'5757;  // "WWFJSEAL" in memory order
constexpr std::uint32_t kSealFormatVersion = 1;

}  // namespace

std::vector<std::byte> JournalSeal::encode() const {
  wire::ByteWriter out;
  out.write(kSealMagic);
  out.write(kSealFormatVersion);
  out.write_bits128(schema);
  out.write(records_bytes);
  out.write(entry_count);
  out.write_bits128(index);
  out.write_bits128(table);
  const auto body = manifest.encode();
  out.write(static_cast<std::uint32_t>(body.size()));
  out.write_bytes(body);
  out.write(wire::digest64(out.bytes()));
  return std::move(out).take();
}

Result<JournalSeal> JournalSeal::decode(std::span<const std::byte> bytes) {
  const auto refuse = [](const char* why) {
    return failure(ErrorCode::kNeedsReseed, Stage::kRecover, std::string("journal seal: ") + why);
  };
  if (bytes.size() < 8 || wire::load_le<std::uint64_t>(bytes.data() + bytes.size() - 8) !=
                              wire::digest64(bytes.first(bytes.size() - 8))) {
    return refuse("its check does not hold");
  }
  wire::ByteReader in(bytes.first(bytes.size() - 8));
  if (in.read<std::uint64_t>() != kSealMagic) return refuse("wrong magic");
  if (in.read<std::uint32_t>() != kSealFormatVersion) return refuse("unknown format version");
  JournalSeal seal;
  seal.schema = Digest{in.read_bits128()};
  seal.records_bytes = in.read<std::uint64_t>();
  seal.entry_count = in.read<std::uint64_t>();
  seal.index = Digest{in.read_bits128()};
  seal.table = Digest{in.read_bits128()};
  const auto body = in.read_bytes(in.read<std::uint32_t>());
  if (!in.ok() || in.remaining() != 0) return refuse("its lengths do not add up");
  auto manifest = wire::Manifest::decode(body);
  if (!manifest) return refuse("its manifest is damaged");
  seal.manifest = *std::move(manifest);
  return seal;
}

void encode_entry(const JournalIndexEntry& entry, std::byte* to) {
  wire::store_le(to, entry.address);
  wire::store_le(to + 8, entry.record_offset);
  wire::store_le(to + 16, entry.bytes);
  wire::store_le(to + 20, entry.record_bytes);
}

JournalIndexEntry decode_entry(const std::byte* from) {
  return {wire::load_le<std::uint64_t>(from), wire::load_le<std::uint64_t>(from + 8),
          wire::load_le<std::uint32_t>(from + 16), wire::load_le<std::uint32_t>(from + 20)};
}

std::vector<std::uint64_t> file_bases(const codec::Schema& schema) {
  std::vector<std::uint64_t> bases{0};
  for (const codec::SchemaFile& file : schema.files()) bases.push_back(bases.back() + file.bytes);
  return bases;
}

}  // namespace weft::apply
