// SPDX-License-Identifier: Apache-2.0
// What the coordinator seals: everything a member needs to prove that it holds the whole refit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/ids.hpp"
#include "weft/base/limits.hpp"
#include "weft/base/result.hpp"
#include "weft/wire/byte_io.hpp"
#include "weft/wire/digest.hpp"

namespace weft::wire {

inline constexpr std::uint32_t kManifestMagic = 0x4E4D'4657;  // "WFMN"

struct ProducerSeal {
  std::uint32_t frame_count = 0;
  Digest frames;  // XXH3-128 over the frame checksums (16 bytes each) in sequence order
  Digest part;    // XXH3-128 over the producer's new chunk digests in lattice order
  std::uint64_t changed_elements = 0;
  std::uint64_t wire_bytes = 0;  // all frames, headers included
  auto operator<=>(const ProducerSeal&) const = default;
};

struct Manifest {
  RefitId refit;
  FleetId fleet;
  Content base;
  Content target;
  Digest schema;
  std::vector<ProducerSeal> producers;  // place = ProducerIndex
  auto operator<=>(const Manifest&) const = default;

  std::vector<std::byte> encode() const {
    ByteWriter out;
    out.write(kManifestMagic);
    out.write(std::uint32_t{1});
    out.write_refit_id(refit);
    out.write_bits128(fleet);
    out.write_content(base);
    out.write_content(target);
    out.write_bits128(schema);
    out.write(static_cast<std::uint32_t>(producers.size()));
    for (const ProducerSeal& seal : producers) {
      out.write(seal.frame_count);
      out.write_bits128(seal.frames);
      out.write_bits128(seal.part);
      out.write(seal.changed_elements);
      out.write(seal.wire_bytes);
    }
    return std::move(out).take();
  }
  Digest digest() const { return digest128(encode()); }

  // Errors: kProtocol, whatever the bytes are.
  static Result<Manifest> decode(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    Manifest manifest;
    const bool known = in.read<std::uint32_t>() == kManifestMagic && in.read<std::uint32_t>() == 1;
    manifest.refit = in.read_refit_id();
    manifest.fleet = FleetId{in.read_bits128()};
    manifest.base = in.read_content();
    manifest.target = in.read_content();
    manifest.schema = Digest{in.read_bits128()};
    const auto producer_count = in.read<std::uint32_t>();
    constexpr std::size_t kSealBytes = 4 + 16 + 16 + 8 + 8;
    if (!known || !in.ok() || producer_count > limits::kProducersMax ||
        in.remaining() != producer_count * kSealBytes) {
      return failure(
          ErrorCode::kProtocol, Stage::kPrepare,
          "manifest of " + std::to_string(bytes.size()) + " bytes is not one of version 1");
    }
    for (std::uint32_t i = 0; i < producer_count; ++i) {
      ProducerSeal seal;
      seal.frame_count = in.read<std::uint32_t>();
      seal.frames = Digest{in.read_bits128()};
      seal.part = Digest{in.read_bits128()};
      seal.changed_elements = in.read<std::uint64_t>();
      seal.wire_bytes = in.read<std::uint64_t>();
      manifest.producers.push_back(seal);
    }
    return manifest;
  }
};

}  // namespace weft::wire
