// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace weft::transport {

// Mutual TLS from PEM files: both sides show a certificate of the same authority. The files are
// read again when they change (server: every few seconds; client: at every connect).
// All three paths empty: plaintext, which is accepted on loopback only, or with `insecure`.
struct TlsOptions {
  std::string certificate_file;
  std::string key_file;
  std::string authority_file;
  std::string server_name;  // client: the name in the server's certificate, if not the host's
  bool insecure = false;    // plaintext beyond loopback, asked for by name

  bool enabled() const {
    return !certificate_file.empty() || !key_file.empty() || !authority_file.empty();
  }
};

}  // namespace weft::transport
