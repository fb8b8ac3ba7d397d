// SPDX-License-Identifier: Apache-2.0
#include "codec/digest/digest_table.hpp"

#include <string>

#include "weft/base/assert.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::codec {

namespace {

constexpr std::uint32_t kTableMagic = 0x4254'4657;  // "WFTB"
constexpr std::size_t kTableHeadBytes = 4 + 4 + 16 + 4;
constexpr std::size_t kTableTailBytes = 8;

}  // namespace

Digest fold_root(const Digest& schema, const Digest& lattice, std::span<const Digest> parts) {
  wire::ByteWriter out;
  out.write_bits128(schema);
  out.write_bits128(lattice);
  for (const Digest& part : parts) out.write_bits128(part);
  return wire::digest128(out.bytes());
}

Digest DigestTable::part(const Lattice& lattice, ProducerIndex producer) const {
  WEFT_ASSERT(chunk_count() == lattice.chunk_count());
  const ChunkRange range = lattice.chunks_of(producer);
  return wire::digest128(
      std::as_bytes(std::span(entries_).subspan(range.first.value, range.count)));
}

Digest DigestTable::root(const Lattice& lattice) const {
  std::vector<Digest> parts;
  for (std::uint32_t p = 0; p < lattice.producer_count(); ++p) {
    parts.push_back(part(lattice, ProducerIndex{p}));
  }
  return fold_root(lattice.schema_digest(), lattice.digest(), parts);
}

std::vector<std::byte> DigestTable::encode(const Lattice& lattice) const {
  wire::ByteWriter out;
  out.write(kTableMagic);
  out.write(std::uint32_t{1});
  out.write_bits128(lattice.digest());
  out.write(chunk_count());
  out.write_bytes(std::as_bytes(std::span(entries_)));
  out.write(wire::digest64(out.bytes()));
  return std::move(out).take();
}

Result<DigestTable> DigestTable::decode(const Lattice& lattice, std::span<const std::byte> bytes) {
  const auto wrong = [](const std::string& what) {
    return failure(ErrorCode::kFormat, Stage::kOpen, "digest table: " + what);
  };
  wire::ByteReader in(bytes);
  const bool known = in.read<std::uint32_t>() == kTableMagic && in.read<std::uint32_t>() == 1;
  const Digest lattice_digest{in.read_bits128()};
  const std::uint64_t chunk_count = in.read<std::uint32_t>();
  if (!known || !in.ok()) return wrong("not one of version 1");
  if (lattice_digest != lattice.digest() || chunk_count != lattice.chunk_count()) {
    return wrong("is of another lattice");
  }
  if (bytes.size() != kTableHeadBytes + chunk_count * 8 + kTableTailBytes) return wrong("length");
  DigestTable table(lattice.chunk_count());
  for (std::uint64_t& entry : table.entries_) entry = in.read<std::uint64_t>();
  if (in.read<std::uint64_t>() != wire::digest64(bytes.first(bytes.size() - kTableTailBytes))) {
    return wrong("damaged");
  }
  return table;
}

}  // namespace weft::codec
