// SPDX-License-Identifier: Apache-2.0
// weft::Agent for Python.
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "python/bindings.hpp"
#include "python/event_log.hpp"
#include "python/failure.hpp"
#include "python/long_call.hpp"
#include "weft/agent.hpp"

namespace py = pybind11;
using namespace py::literals;  // NOLINT(google-build-using-namespace)

namespace weft::python {

namespace {

constexpr Duration kForEver = std::chrono::hours(24);

// AgentHandle is an Agent and its events.
// Owns:    the Agent; gone when it is closed.
// Threads: with the interpreter's lock.
class AgentHandle {
 public:
  static std::shared_ptr<AgentHandle> open(const py::object& config, const std::string& text) {
    AgentOptions options;
    if (!config.is_none()) {
      options.config_file =
          py::cast<std::string>(py::module_::import("os").attr("fsdecode")(config));
    }
    options.config_text = text;
    std::shared_ptr<AgentHandle> handle(new AgentHandle());
    std::optional<Result<std::unique_ptr<Agent>>> opened;
    {
      LongCall call([&] { opened.emplace(Agent::open(options, handle->events_)); });
      wait_with_signals(
          call, [] {}, kForEver);
    }
    handle->events_.flush();
    handle->agent_ = must(*std::move(opened));
    return handle;
  }

  ~AgentHandle() {
    const py::gil_scoped_release unlocked;
    agent_.reset();
  }

  AgentStatus status() {
    events_.flush();
    return opened().status();
  }

  bool wait_ended(std::optional<double> timeout) {
    Agent& agent = opened();
    const std::shared_ptr<Agent> kept = agent_;
    const auto deadline = std::chrono::steady_clock::now() +
                          std::chrono::duration_cast<Duration>(
                              std::chrono::duration<double>(std::min(timeout.value_or(1e9), 1e9)));
    bool ended = false;
    do {
      {
        const py::gil_scoped_release unlocked;
        const Duration left = deadline - std::chrono::steady_clock::now();
        ended = agent.wait_ended(std::clamp(left, Duration::zero(), kSignalPeriod));
      }
      check_signals();
    } while (!ended && std::chrono::steady_clock::now() < deadline);
    events_.flush();
    return ended;
  }

  void stop() {
    const std::shared_ptr<Agent> kept = agent_;
    if (kept == nullptr) return;
    std::optional<Status> stopped;
    {
      LongCall call([&] { stopped = kept->stop(); });
      wait_with_signals(
          call, [] {}, kForEver);
    }
    events_.flush();
    must(*std::move(stopped));
  }

  void close() {
    auto agent = std::move(agent_);
    {
      const py::gil_scoped_release unlocked;
      agent.reset();
    }
    events_.flush();
  }

 private:
  AgentHandle() = default;
  Agent& opened() {
    if (agent_ == nullptr) throw misuse("the agent is closed");
    return *agent_;
  }

  EventLog events_;
  std::shared_ptr<Agent> agent_;
};

void define_status(py::module_& module) {
  py::class_<AgentStatus>(module, "AgentStatus", "What a node is now.")
      .def_readonly("agent_id", &AgentStatus::agent_id)
      .def_readonly("state", &AgentStatus::state)
      .def_readonly("content", &AgentStatus::content)
      .def_readonly("committed", &AgentStatus::committed)
      .def_readonly("weights_path", &AgentStatus::weights_path)
      .def_readonly("ready", &AgentStatus::ready)
      .def_readonly("connected", &AgentStatus::connected)
      .def_readonly("serving", &AgentStatus::serving)
      .def_property_readonly("version",
                             [](const AgentStatus& status) { return status.content.version.value; })
      .def_property_readonly("cause",
                             [](const AgentStatus& status) -> std::optional<std::string> {
                               if (!status.cause) return std::nullopt;
                               return status.cause->message();
                             })
      .def("__repr__", [](const AgentStatus& status) {
        return "<weft.AgentStatus " + status.agent_id + " " + status.state + " version " +
               std::to_string(status.content.version.value) + ">";
      });
}

}  // namespace

void define_agent(py::module_& module) {
  define_status(module);
  py::class_<AgentHandle, std::shared_ptr<AgentHandle>>(
      module, "Agent",
      "A node agent inside this process, as `weft agent --config` runs it, on threads of its "
      "own.\n\n"
      "config is that file, or text its text. It joins the fleet by itself and serves until "
      "stop(), "
      "close() or\nthe end of a `with` block. Readers use weft.WeightView as ever.")
      .def(py::init(&AgentHandle::open), "config"_a = py::none(), py::kw_only(), "text"_a = "")
      .def_property_readonly("status", &AgentHandle::status, "An AgentStatus.")
      .def("wait_ended", &AgentHandle::wait_ended, "timeout"_a = py::none(),
           "Whether it serves no more, at most `timeout` seconds later; None: for ever.\n\n"
           "An agent ends by itself with an error only: stop() raises it.")
      .def("stop", &AgentHandle::stop,
           "Finishes an apply that is under way and leaves the fleet.\n\n"
           "Raises the error that had ended the agent before, if any.")
      .def("close", &AgentHandle::close, "Stops it and gives its directories free.")
      .def("__enter__", [](const std::shared_ptr<AgentHandle>& handle) { return handle; })
      .def("__exit__", [](AgentHandle& handle, const py::object&, const py::object&,
                          const py::object&) { handle.close(); });
}

}  // namespace weft::python
