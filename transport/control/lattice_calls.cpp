// SPDX-License-Identifier: Apache-2.0
#include "transport/control/lattice_calls.hpp"

#include "transport/control/grpc_bytes.hpp"
#include "weft/base/limits.hpp"
#include "weft/control.pb.h"

namespace weft::transport {

namespace {

namespace pb = weft::control::v1;

Result<pb::LatticePiece> parse_piece(const grpc::ByteBuffer& buffer) {
  const auto bytes = to_bytes(buffer);
  pb::LatticePiece piece;
  if (bytes.size() > limits::kMemberMessageBytesMax ||
      !piece.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      piece.piece().size() > limits::kLatticePieceBytesMax) {
    return failure(ErrorCode::kProtocol, Stage::kControl, "not a piece of a lattice");
  }
  return piece;
}

Digest digest_of(const pb::LatticePiece& piece) {
  return Digest{{piece.digest().low(), piece.digest().high()}};
}

}  // namespace

Status put_lattice_piece(BodyShelf& shelf, const grpc::ByteBuffer& asked) {
  WEFT_TRY(const pb::LatticePiece put, parse_piece(asked));
  return shelf.put(digest_of(put), put.total_bytes(), put.offset(),
                   std::as_bytes(std::span(put.piece())));
}

Result<grpc::ByteBuffer> get_lattice_piece(const BodyShelf& shelf, const grpc::ByteBuffer& asked) {
  WEFT_TRY(const pb::LatticePiece get, parse_piece(asked));
  WEFT_TRY(const BodyPiece found, shelf.get(digest_of(get), get.offset()));
  pb::LatticePiece piece;
  piece.set_total_bytes(found.total_bytes);
  piece.set_piece(found.bytes.data(), found.bytes.size());
  return to_buffer(piece.SerializeAsString());
}

}  // namespace weft::transport
