// SPDX-License-Identifier: Apache-2.0
// The coordinator's side of PutLattice and GetLattice: bytes in and out of the shelf.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "transport/control/body_shelf.hpp"
#include "weft/base/result.hpp"

namespace weft::transport {

// Errors: kProtocol (not a piece, or beyond a bound), those of BodyShelf.
Status put_lattice_piece(BodyShelf& shelf, const grpc::ByteBuffer& asked);
Result<grpc::ByteBuffer> get_lattice_piece(const BodyShelf& shelf, const grpc::ByteBuffer& asked);

}  // namespace weft::transport
