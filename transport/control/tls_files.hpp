// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "transport/control/host_port.hpp"
#include "transport/control/tls_options.hpp"
#include "weft/base/result.hpp"

namespace weft::transport {

// The contents of the three PEM files. Never logged.
struct TlsFiles {
  std::string certificate;
  std::string key;
  std::string authority;
};

// Errors: kConfig: one of the three is not named, cannot be read, is larger than 1 MiB or holds no
// PEM block of its kind.
Result<TlsFiles> read_tls_files(const TlsOptions& options);

// Plaintext is for loopback, or asked for by name. Errors: kConfig.
Status check_plaintext(const TlsOptions& options, const HostPort& address);

}  // namespace weft::transport
