// SPDX-License-Identifier: Apache-2.0
#include "apply/hook/command_runner.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "apply/store/native_error.hpp"

extern char** environ;

namespace weft::apply {

namespace {

constexpr std::size_t kRequestBytesMax = 64 * 1024;
constexpr std::size_t kStringsMax = 512;
constexpr int kNotStartedCode = 127;
// The child answers within the program's timeout; so much longer until it counts as gone.
constexpr Duration kAnswerPatience = std::chrono::seconds(10);

struct RequestHeader {
  std::int32_t timeout_ms = 0;
  std::uint32_t argument_count = 0;
  std::uint32_t environment_count = 0;  // added to the inherited ones
};
enum class Outcome : std::int32_t { kExited, kSignalled, kTimedOut, kNotStarted };
struct Answer {
  Outcome outcome = Outcome::kNotStarted;
  std::int32_t value = 0;
};

// --- in the child: only calls that are safe after a fork, no memory is allocated ---

[[noreturn]] void end_child(int code) { ::_exit(code); }

struct Program {
  std::array<char*, kStringsMax> arguments{};
  std::array<char*, kStringsMax> environment{};
};

// Places of the strings of a request; false when they don't add up.
bool lay_out(char* bytes, std::size_t count, Program& program, RequestHeader& header) {
  if (count < sizeof(header) || bytes[count - 1] != '\0') return false;
  std::memcpy(&header, bytes, sizeof(header));
  if (header.argument_count == 0 || header.argument_count >= kStringsMax ||
      header.environment_count >= kStringsMax / 2) {
    return false;
  }
  std::size_t at = sizeof(header);
  const auto next = [&]() -> char* {
    if (at >= count) return nullptr;
    char* const text = bytes + at;
    at += std::strlen(text) + 1;
    return text;
  };
  for (std::uint32_t i = 0; i < header.argument_count; ++i) program.arguments[i] = next();
  std::size_t place = 0;
  for (; place < header.environment_count; ++place) program.environment[place] = next();
  for (char** each = environ; *each != nullptr && place + 1 < kStringsMax; ++each) {
    program.environment[place++] = *each;
  }
  return at == count;
}

[[noreturn]] void become(const Program& program) {
  ::setpgid(0, 0);
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing >= 0) {
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  ::execve(program.arguments[0], program.arguments.data(), program.environment.data());
  end_child(kNotStartedCode);
}

Answer run_program(const Program& program, const RequestHeader& header) {
  const pid_t child = ::fork();
  if (child < 0) return {Outcome::kNotStarted, errno};
  if (child == 0) become(program);
  ::setpgid(child, child);
  const int descriptor = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
  pollfd ready{descriptor, POLLIN, 0};
  const int ended = descriptor < 0 ? -1 : ::poll(&ready, 1, header.timeout_ms);
  if (descriptor >= 0) ::close(descriptor);
  if (ended != 1) ::kill(-child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (ended != 1) return {Outcome::kTimedOut, 0};
  if (WIFSIGNALED(status)) return {Outcome::kSignalled, WTERMSIG(status)};
  const int code = WEXITSTATUS(status);
  return {code == kNotStartedCode ? Outcome::kNotStarted : Outcome::kExited, code};
}

[[noreturn]] void serve(int socket) {
  ::setpgid(0, 0);  // a terminal's interrupt is for the agent, which then closes the socket
  if (socket != 3) ::dup3(socket, 3, O_CLOEXEC);
  ::syscall(SYS_close_range, 4U, ~0U, 0U);
  static std::array<char, kRequestBytesMax> bytes;
  while (true) {
    const ssize_t count = ::recv(3, bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) end_child(0);
    Program program;
    RequestHeader header;
    Answer answer;
    if (lay_out(bytes.data(), static_cast<std::size_t>(count), program, header)) {
      answer = run_program(program, header);
    }
    if (::send(3, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer)) end_child(0);
  }
}

// --- in the parent ---

Result<std::vector<char>> encode(const std::vector<std::string>& arguments,
                                 const std::vector<std::string>& environment, Duration timeout) {
  RequestHeader header;
  header.timeout_ms = static_cast<std::int32_t>(std::clamp<std::int64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count(), 1, 86'400'000));
  header.argument_count = static_cast<std::uint32_t>(arguments.size());
  header.environment_count = static_cast<std::uint32_t>(environment.size());
  std::vector<char> bytes(sizeof(header));
  std::memcpy(bytes.data(), &header, sizeof(header));
  for (const auto* texts : {&arguments, &environment}) {
    for (const std::string& text : *texts)
      bytes.insert(bytes.end(), text.c_str(), text.c_str() + text.size() + 1);
  }
  if (arguments.size() + environment.size() >= kStringsMax || bytes.size() > kRequestBytesMax) {
    return failure(ErrorCode::kConfig, Stage::kApply, "a hook's command is longer than 64 KiB");
  }
  return bytes;
}

Status judge(const Answer& answer, const std::string& program) {
  const std::string value = std::to_string(answer.value);
  switch (answer.outcome) {
    case Outcome::kExited:
      if (answer.value == 0) return ok();
      return failure(ErrorCode::kBusy, Stage::kApply, program + " ended with exit code " + value);
    case Outcome::kSignalled:
      return failure(ErrorCode::kBusy, Stage::kApply, program + " was ended by signal " + value);
    case Outcome::kTimedOut:
      return failure(ErrorCode::kTimeout, Stage::kApply,
                     program + " did not end within hook.timeout and was killed");
    case Outcome::kNotStarted:
      break;
  }
  return failure(ErrorCode::kBusy, Stage::kApply, program + " cannot be started");
}

}  // namespace

Result<std::unique_ptr<CommandRunner>> CommandRunner::start() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return native_error(errno, Stage::kOpen, "make a socket pair for hook commands");
  }
  Descriptor ours(ends[0]);
  const Descriptor theirs(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) {
    return failure(ErrorCode::kResourceLimit, Stage::kOpen, "start the process for hook commands",
                   errno);
  }
  if (child == 0) serve(theirs.number());
  return std::unique_ptr<CommandRunner>(new CommandRunner(std::move(ours), child));
}

CommandRunner::~CommandRunner() {
  socket_.with([](Descriptor& socket) { socket = Descriptor(); });
  // Its group may still run a program that was never waited for: the agent ends now.
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Status CommandRunner::run(const std::vector<std::string>& arguments,
                          const std::vector<std::string>& environment, Duration timeout) {
  WEFT_TRY(const auto request, encode(arguments, environment, timeout));
  return socket_.with([&](Descriptor& socket) -> Status {
    const auto gone = [](const std::string& why) {
      return failure(ErrorCode::kBusy, Stage::kApply,
                     "the process that runs hook commands " + why + "; restart the agent");
    };
    if (!socket) return gone("has ended");
    const auto sent = ::send(socket.number(), request.data(), request.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(request.size())) return gone("has ended");
    const auto patience =
        std::chrono::duration_cast<std::chrono::milliseconds>(timeout + kAnswerPatience).count();
    pollfd ready{socket.number(), POLLIN, 0};
    Answer answer;
    if (::poll(&ready, 1, static_cast<int>(patience)) != 1 ||
        ::recv(socket.number(), &answer, sizeof(answer), 0) != sizeof(answer)) {
      socket = Descriptor();  // a late answer must not be taken for the next one
      return gone("gave no answer");
    }
    return judge(answer, arguments.front());
  });
}

}  // namespace weft::apply
