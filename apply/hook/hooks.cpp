// SPDX-License-Identifier: Apache-2.0
// The only file that knows libcurl.
#include "apply/hook/hooks.hpp"

#include <curl/curl.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace weft::apply {

namespace {

constexpr std::size_t kAnswerBytesMax = 512;  // of an answer, for the error's text

std::size_t keep_answer(char* bytes, std::size_t size, std::size_t count, void* into) {
  auto& answer = *static_cast<std::string*>(into);
  const std::size_t room = kAnswerBytesMax - std::min(answer.size(), kAnswerBytesMax);
  answer.append(bytes, std::min(size * count, room));
  return size * count;
}

std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, ' ');
  return text;
}

// Owns:    a curl handle and its header list.
// Threads: one at a time.
class Request {
 public:
  Request(const HookCall& call, const std::string& body, Duration timeout) : call_(call) {
    static std::once_flag once;
    std::call_once(once, [] { ::curl_global_init(CURL_GLOBAL_DEFAULT); });
    handle_ = ::curl_easy_init();
    if (handle_ == nullptr) return;
    const auto milliseconds = static_cast<long>(std::max<std::int64_t>(
        1, std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count()));
    ::curl_easy_setopt(handle_, CURLOPT_URL, call.url.c_str());
    ::curl_easy_setopt(handle_, CURLOPT_PROTOCOLS_STR, "http,https");
    ::curl_easy_setopt(handle_, CURLOPT_NOSIGNAL, 1L);
    ::curl_easy_setopt(handle_, CURLOPT_TIMEOUT_MS, milliseconds);
    ::curl_easy_setopt(handle_, CURLOPT_PROXY, "");  // a runtime of this node is not behind one
    ::curl_easy_setopt(handle_, CURLOPT_WRITEFUNCTION, &keep_answer);
    ::curl_easy_setopt(handle_, CURLOPT_WRITEDATA, &answer_);
    ::curl_easy_setopt(handle_, CURLOPT_CUSTOMREQUEST, call.method.c_str());
    if (call.method == "GET") return;
    ::curl_easy_setopt(handle_, CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
    ::curl_easy_setopt(handle_, CURLOPT_COPYPOSTFIELDS, body.c_str());
    headers_ = ::curl_slist_append(nullptr, "Content-Type: application/json");
    ::curl_easy_setopt(handle_, CURLOPT_HTTPHEADER, headers_);
  }
  ~Request() {
    ::curl_easy_cleanup(handle_);
    ::curl_slist_free_all(headers_);
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  Status perform() {
    if (handle_ == nullptr) {
      return failure(ErrorCode::kResourceLimit, Stage::kApply, "libcurl gives no handle");
    }
    const std::string what = call_.method + " " + call_.url;
    const CURLcode outcome = ::curl_easy_perform(handle_);
    if (outcome == CURLE_OPERATION_TIMEDOUT) {
      return failure(ErrorCode::kTimeout, Stage::kApply, what + ": no answer within hook.timeout");
    }
    if (outcome != CURLE_OK) {
      return failure(ErrorCode::kBusy, Stage::kApply, what + ": " + ::curl_easy_strerror(outcome),
                     static_cast<std::int32_t>(outcome));
    }
    long status = 0;
    ::curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 200 && status < 300) return ok();
    return failure(ErrorCode::kBusy, Stage::kApply,
                   what + ": status " + std::to_string(status) + " " + printable(answer_));
  }

 private:
  const HookCall& call_;
  std::string answer_;
  CURL* handle_ = nullptr;
  curl_slist* headers_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Hooks>> Hooks::open(HookOptions options) {
  std::unique_ptr<Hooks> hooks(new Hooks(std::move(options)));
  const auto is_command = [](const HookCall& call) { return call.is_command(); };
  const auto& [before, after, timeout] = hooks->options_;
  if (std::any_of(before.begin(), before.end(), is_command) ||
      std::any_of(after.begin(), after.end(), is_command)) {
    WEFT_TRY(hooks->commands_, CommandRunner::start());
  }
  return hooks;
}

Status Hooks::before_apply(const HookFacts& facts) const {
  return run(options_.before_apply, facts, "before_apply");
}

Status Hooks::after_apply(const HookFacts& facts) const {
  return run(options_.after_apply, facts, "after_apply");
}

Status Hooks::run(const std::vector<HookCall>& calls, const HookFacts& facts,
                  std::string_view event) const {
  for (const HookCall& call : calls) {
    Status done = ok();
    if (call.is_command()) {
      std::vector<std::string> arguments;
      for (const std::string& each : call.arguments) {
        arguments.push_back(fill_in(each, facts, false));
      }
      done = commands_->run(arguments, hook_environment(facts, event), options_.timeout);
    } else {
      done = Request(call, fill_in(call.body, facts, true), options_.timeout).perform();
    }
    if (!done) {
      Error error = std::move(done).error();
      error.detail = std::string(event) + ": " + error.detail;
      return error;
    }
  }
  return ok();
}

}  // namespace weft::apply
