#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One hop of a plain copy: what arrives on a socket goes into a file and on to the next hop.

plain_relay.py receive ADDRESS PORT BYTES FILE [NEXT_ADDRESS]   listens, prints "listening", ends after BYTES
plain_relay.py send ADDRESS PORT FILE...                        the first hop: sendfile(2) of whole files

What `chain.py` measures weft against: the full checkpoint as anyone would copy it, without checks, digests or syncs.
"""

import socket
import sys

PIECE_BYTES = 1 << 20
TIMEOUT_SECONDS = 1800


def receive(address, port, total, path, following=None):
    with socket.create_server((address, port)) as server:
        server.settimeout(TIMEOUT_SECONDS)
        onward = socket.create_connection((following, port), TIMEOUT_SECONDS) if following else None
        print("listening", flush=True)
        link, _ = server.accept()
        link.settimeout(TIMEOUT_SECONDS)
        piece = memoryview(bytearray(PIECE_BYTES))
        with link, open(path, "wb", buffering=0) as file:
            while total > 0:
                count = link.recv_into(piece, min(total, PIECE_BYTES))
                if count == 0:
                    raise SystemExit(f"the link ended {total} bytes early")
                if onward:
                    onward.sendall(piece[:count])
                file.write(piece[:count])
                total -= count
        if onward:
            onward.close()


def send(address, port, paths):
    with socket.create_connection((address, port), TIMEOUT_SECONDS) as link:
        for path in paths:
            with open(path, "rb") as file:
                link.sendfile(file)
        link.shutdown(socket.SHUT_WR)
        link.recv(1)  # its end says that the first hop has everything


def main(verb, address, port, *rest):
    if verb == "receive":
        receive(address, int(port), int(rest[0]), *rest[1:])
    else:
        send(address, int(port), rest)


if __name__ == "__main__":
    main(*sys.argv[1:])
