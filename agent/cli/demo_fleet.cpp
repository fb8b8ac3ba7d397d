// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/demo_fleet.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <utility>

#include "transport/control/control_client.hpp"

extern char** environ;

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
constexpr auto kPoll = std::chrono::milliseconds(50);
constexpr auto kStateTimeout = std::chrono::seconds(60);
constexpr auto kEndTimeout = std::chrono::seconds(10);

Error io_error(const std::string& what, int number) {
  return failure(ErrorCode::kIoFailed, Stage::kOpen, what, number);
}

// A port that was free a moment ago; the coordinator says so if somebody was quicker.
Result<std::uint16_t> free_port() {
  const int socket_fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_fd < 0) return io_error("socket", errno);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const bool bound =
      ::bind(socket_fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      ::getsockname(socket_fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  const int number = errno;
  ::close(socket_fd);
  if (!bound) return io_error("no free port on loopback", number);
  return ntohs(address.sin_port);
}

Status write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (!file) return io_error(path + ": cannot be written", errno);
  return ok();
}

Status copy_tree(const std::string& source, const std::string& target) {
  std::error_code error;
  fs::create_directories(target, error);
  if (!error) fs::copy(source, target, fs::copy_options::recursive, error);
  if (error) return io_error(source + " to " + target + ": " + error.message(), error.value());
  return ok();
}

void end_child(pid_t process) {
  const auto deadline = std::chrono::steady_clock::now() + kEndTimeout;
  ::kill(process, SIGTERM);
  while (::waitpid(process, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ::kill(process, SIGKILL);
      ::waitpid(process, nullptr, 0);
      return;
    }
    ::poll(nullptr, 0, static_cast<int>(kPoll.count()));
  }
}

}  // namespace

DemoFleet::DemoFleet(DemoFleetOptions options, StopToken& stop)
    : options_(std::move(options)), stop_(stop), agents_(options_.agent_count) {}

DemoFleet::~DemoFleet() {
  for (const Child& agent : agents_) {
    if (agent.process > 0) ::kill(agent.process, SIGTERM);
  }
  for (const Child& agent : agents_) {
    if (agent.process > 0) end_child(agent.process);
  }
  if (coordinator_child_.process > 0) end_child(coordinator_child_.process);
}

std::string DemoFleet::weights_dir(std::uint32_t index) const {
  return options_.work_dir + "/" + agent_name(index) + "/weights";
}

Status DemoFleet::start() {
  WEFT_TRY_STATUS(start_coordinator());
  for (std::uint32_t i = 0; i < options_.agent_count; ++i) {
    WEFT_TRY_STATUS(copy_tree(options_.base_dir, weights_dir(i)));
    WEFT_TRY_STATUS(start_agent(i));
  }
  return wait_until("every agent has joined", [this](const transport::FleetStatus& status) {
    const auto joined = std::count_if(status.members.begin(), status.members.end(),
                                      [](const transport::MemberStatus& member) {
                                        return member.state == wire::MemberState::kUnversioned ||
                                               member.state == wire::MemberState::kClean;
                                      });
    return joined == static_cast<std::ptrdiff_t>(options_.agent_count);
  });
}

Status DemoFleet::start_coordinator() {
  WEFT_TRY(const std::uint16_t port, free_port());
  coordinator_ = {"127.0.0.1", port};
  const std::string directory = options_.work_dir + "/coordinator";
  std::error_code error;
  fs::create_directories(directory, error);
  const std::string config = directory + "/coordinator.toml";
  WEFT_TRY_STATUS(write_text(config, "fleet.listen = \"" + to_string(coordinator_) +
                                         "\"\nstate.dir = \"" + directory +
                                         "/state\"\ntree.shape = \"" + options_.shape + "\"\n"));
  coordinator_child_.name = "coordinator";
  WEFT_TRY_STATUS(spawn(coordinator_child_, "coordinator", config));
  return wait_until("the coordinator answers", [](const transport::FleetStatus&) { return true; });
}

Status DemoFleet::start_agent(std::uint32_t index) {
  const std::string name = agent_name(index);
  const std::string directory = options_.work_dir + "/" + name;
  const std::string config = directory + "/agent.toml";
  WEFT_TRY_STATUS(write_text(config, "fleet.coordinator = \"" + to_string(coordinator_) +
                                         "\"\nagent.id = \"" + name + "\"\nweights.dir = \"" +
                                         weights_dir(index) + "\"\nstate.dir = \"" + directory +
                                         "/state\"\nfabric.address = \"127.0.0.1\"\n"));
  agents_[index].name = name;
  return spawn(agents_[index], "agent", config);
}

Status DemoFleet::spawn(Child& child, const std::string& role, const std::string& config) {
  const std::string log = options_.work_dir + "/" + child.name + ".log";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  // A group of its own: Ctrl-C reaches this program only, which then ends its children in order.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  std::string arguments[] = {"weft", role, "--config", config};
  char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                  arguments[3].data(), nullptr};
  const int error =
      ::posix_spawn(&child.process, "/proc/self/exe", &actions, &attributes, argv, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    child.process = -1;
    return io_error("cannot start " + child.name, error);
  }
  return ok();
}

void DemoFleet::kill_agent(std::uint32_t index) {
  Child& agent = agents_[index];
  if (agent.process <= 0) return;
  ::kill(agent.process, SIGKILL);
  ::waitpid(agent.process, nullptr, 0);
  agent.process = -1;
}

Status DemoFleet::restart_agent(std::uint32_t index) { return start_agent(index); }

Result<transport::FleetStatus> DemoFleet::status() const {
  transport::ControlCallOptions call;
  call.coordinator = coordinator_;
  call.timeout = std::chrono::seconds(5);
  return transport::fetch_status(call);
}

Status DemoFleet::wait_clean(const std::vector<std::uint32_t>& indices, Version version) {
  return wait_until("the agents are clean at version " + std::to_string(version.value),
                    [&](const transport::FleetStatus& status) {
                      return std::all_of(indices.begin(), indices.end(), [&](std::uint32_t index) {
                        const auto found = std::find_if(
                            status.members.begin(), status.members.end(),
                            [&](const auto& member) { return member.id == agent_name(index); });
                        return found != status.members.end() &&
                               found->state == wire::MemberState::kClean &&
                               found->content.version == version;
                      });
                    });
}

Status DemoFleet::wait_until(const std::string& what,
                             const std::function<bool(const transport::FleetStatus&)>& reached) {
  const auto deadline = std::chrono::steady_clock::now() + kStateTimeout;
  while (true) {
    if (stop_.requested()) return failure(ErrorCode::kBusy, Stage::kControl, "stopped");
    const auto now = status();
    if (now && reached(*now)) return ok();
    if (std::chrono::steady_clock::now() > deadline) {
      return failure(ErrorCode::kTimeout, Stage::kControl,
                     what + ": not within 60 s; the logs are " + options_.work_dir + "/*.log" +
                         (now ? "" : " (" + now.error().message() + ")"));
    }
    stop_.wait_for(kPoll);
  }
}

}  // namespace weft::cli
