// SPDX-License-Identifier: Apache-2.0
#include "transport/control/tls_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace weft::transport {
namespace {

constexpr std::size_t kPemBytesMax = 1024 * 1024;

Result<std::string> read_pem(const char* key, const std::string& path, const char* marker) {
  const auto wrong = [&](const std::string& why, int native = 0) {
    return failure(ErrorCode::kConfig, Stage::kConfig,
                   std::string(key) + " = '" + path + "': " + why, native);
  };
  if (path.empty()) return wrong("must be set: tls.cert, tls.key and tls.ca belong together");
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return wrong(std::strerror(errno), errno);
  std::string text(kPemBytesMax + 1, '\0');
  std::size_t filled = 0;
  ssize_t got = 0;
  while (filled < text.size() &&
         (got = ::read(fd, text.data() + filled, text.size() - filled)) > 0) {
    filled += static_cast<std::size_t>(got);
  }
  const int error = got < 0 ? errno : 0;
  close(fd);
  if (error != 0) return wrong(std::strerror(error), error);
  if (filled > kPemBytesMax) return wrong("larger than 1 MiB");
  text.resize(filled);
  if (text.find(marker) == std::string::npos) {
    return wrong("holds no PEM block '" + std::string(marker) + "'");
  }
  return text;
}

}  // namespace

Result<TlsFiles> read_tls_files(const TlsOptions& options) {
  TlsFiles files;
  WEFT_TRY(files.certificate,
           read_pem("tls.cert", options.certificate_file, "-----BEGIN CERTIFICATE-----"));
  WEFT_TRY(files.key, read_pem("tls.key", options.key_file, "PRIVATE KEY-----"));
  WEFT_TRY(files.authority,
           read_pem("tls.ca", options.authority_file, "-----BEGIN CERTIFICATE-----"));
  return files;
}

Status check_plaintext(const TlsOptions& options, const HostPort& address) {
  if (options.insecure || address.is_loopback()) return ok();
  return failure(ErrorCode::kConfig, Stage::kConfig,
                 to_string(address) +
                     " is not loopback: set tls.cert, tls.key and tls.ca, or tls.insecure = true "
                     "to accept anyone who can reach it");
}

}  // namespace weft::transport
