// SPDX-License-Identifier: Apache-2.0
// The only file that knows the HTTP server.
#include "agent/cli/http_pages.hpp"

#include <httplib.h>

#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "agent/cli/status_page.hpp"

namespace weft::cli {
namespace {

constexpr std::size_t kThreads = 4;
constexpr std::time_t kSilenceSeconds = 5;
constexpr std::chrono::seconds kStartPatience{10};

}  // namespace

// Owns:    the server, its accepting thread and workers.
// Threads: any.
class HttpPages::Impl {
 public:
  Impl(const transport::HostPort& listen, PageSource source)
      : address_(listen), source_(std::move(source)) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_.set_keep_alive_max_count(100);
    server_.set_keep_alive_timeout(kSilenceSeconds);
    server_.set_read_timeout(kSilenceSeconds);
    server_.set_write_timeout(kSilenceSeconds);
    server_.set_payload_max_length(0);
    // Without SO_REUSEPORT, which the library would set: a taken port must be an error.
    server_.set_socket_options([](socket_t socket) {
      const int on = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    });
    add_pages();
  }
  ~Impl() {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }

  Status start() {
    const int port = address_.port == 0 ? server_.bind_to_any_port(address_.host)
                     : server_.bind_to_port(address_.host, address_.port)
                         ? static_cast<int>(address_.port)
                         : -1;
    if (port <= 0) {
      return failure(ErrorCode::kConfig, Stage::kConfig,
                     "http.listen: cannot listen on " + to_string(address_) +
                         " (who has it: ss -ltnp 'sport = :" + std::to_string(address_.port) +
                         "')");
    }
    address_.port = static_cast<std::uint16_t>(port);
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    // stop() has no effect on a server that does not run yet.
    const auto deadline = std::chrono::steady_clock::now() + kStartPatience;
    while (!server_.is_running() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return ok();
  }

  const transport::HostPort& address() const { return address_; }

 private:
  void add_pages() {
    server_.Get("/metrics", [this](const httplib::Request&, httplib::Response& answer) {
      answer.set_content(source_.metrics() +
                             "# TYPE weft_http_listening gauge\n"
                             "weft_http_listening 1\n",
                         "text/plain; version=0.0.4");
    });
    server_.Get("/healthz", [](const httplib::Request&, httplib::Response& answer) {
      answer.set_content("ok\n", "text/plain");
    });
    server_.Get("/readyz", [this](const httplib::Request&, httplib::Response& answer) {
      const bool ready = source_.ready();
      answer.status = ready ? 200 : 503;
      answer.set_content(ready ? "ready\n" : "not ready\n", "text/plain");
    });
    server_.Get("/status.json", [this](const httplib::Request&, httplib::Response& answer) {
      answer.set_content(source_.status_json(), "application/json");
    });
    server_.Get("/status.txt", [this](const httplib::Request&, httplib::Response& answer) {
      answer.set_content(source_.status_text(), "text/plain; charset=utf-8");
    });
    server_.Get("/", [](const httplib::Request&, httplib::Response& answer) {
      answer.set_header("Content-Security-Policy",
                        "default-src 'none'; script-src 'unsafe-inline'; style-src "
                        "'unsafe-inline'; connect-src 'self'");
      answer.set_content(kStatusPage, "text/html; charset=utf-8");
    });
  }

  transport::HostPort address_;
  const PageSource source_;
  httplib::Server server_;
  std::thread thread_;
};

HttpPages::HttpPages(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpPages::~HttpPages() = default;

Result<std::unique_ptr<HttpPages>> HttpPages::open(const transport::HostPort& listen,
                                                   PageSource source, EventSink& events) {
  auto impl = std::make_unique<Impl>(listen, std::move(source));
  if (Status started = impl->start(); !started) {
    const std::array fields = {EventField{"cause", "config"},
                               EventField{"detail", started.error().detail}};
    events.report(Severity::kError, "http_not_listening", fields);
    return std::move(started).error();
  }
  const std::array fields = {EventField{"address", to_string(impl->address())}};
  events.report(Severity::kInfo, "http_listens", fields);
  return std::unique_ptr<HttpPages>(new HttpPages(std::move(impl)));
}

Result<std::string> fetch_page(const transport::HostPort& address, const std::string& path,
                               std::chrono::milliseconds timeout) {
  httplib::Client client(address.host, address.port);
  client.set_connection_timeout(timeout);
  client.set_read_timeout(timeout);
  client.set_write_timeout(timeout);
  const httplib::Result answer = client.Get(path);
  const std::string page = "http://" + to_string(address) + path;
  if (!answer) {
    const bool late = answer.error() == httplib::Error::Read;
    return failure(
        late ? ErrorCode::kTimeout : ErrorCode::kPeerLost, Stage::kControl,
        page + ": " + httplib::to_string(answer.error()) + " (is http.listen set there?)");
  }
  if (answer->status != 200) {
    return failure(ErrorCode::kProtocol, Stage::kControl,
                   page + " answers " + std::to_string(answer->status));
  }
  return answer->body;
}

const transport::HostPort& HttpPages::address() const { return impl_->address(); }

}  // namespace weft::cli
