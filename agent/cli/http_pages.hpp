// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "transport/control/host_port.hpp"
#include "weft/base/event_sink.hpp"
#include "weft/base/result.hpp"

namespace weft::cli {

// What the pages show; called on the server's threads, one of them at a time each.
struct PageSource {
  std::function<std::string()> metrics;      // Prometheus text
  std::function<bool()> ready;               // /readyz
  std::function<std::string()> status_json;  // /status.json and the page that shows it
  std::function<std::string()> status_text;  // /status.txt
};

// A page of another process. Errors: kTimeout, kPeerLost (nobody there), kProtocol (no such page).
Result<std::string> fetch_page(const transport::HostPort& address, const std::string& path,
                               std::chrono::milliseconds timeout);

// /metrics, /healthz, /readyz, /status.json, /status.txt and a static status page, over HTTP/1.1.
// Read only; no request body is taken, and connections that stay silent are closed after seconds.
// Owns:    the listening socket and its threads.
// Threads: any.
class HttpPages {
 public:
  // Errors: kConfig (address taken). Not fatal for a program: it serves on without pages, says so,
  // and `weft_http_listening` would be 0.
  static Result<std::unique_ptr<HttpPages>> open(const transport::HostPort& listen,
                                                 PageSource source, EventSink& events);
  ~HttpPages();
  HttpPages(const HttpPages&) = delete;
  HttpPages& operator=(const HttpPages&) = delete;

  const transport::HostPort& address() const;

 private:
  class Impl;
  explicit HttpPages(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::cli
