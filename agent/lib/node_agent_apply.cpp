// SPDX-License-Identifier: Apache-2.0
// From COMMIT to APPLIED: the journal goes into the weight files.
#include <algorithm>
#include <thread>
#include <utility>

#include "agent/lib/fault_point.hpp"
#include "agent/lib/node_agent_body.hpp"
#include "apply/patch/patcher.hpp"
#include "apply/read/writer_turn.hpp"
#include "apply/store/thread_priority.hpp"

namespace weft::agent {

void NodeAgent::Body::act(apply::agent::ApplyJournal& action) {
  ++applies_begun_;
  ++applying_;
  jobs_.start([this, action, retained = state_->retained()] {
    const auto begun = std::chrono::steady_clock::now();
    ApplyOutcome outcome;
    const Status applied = state_->has_sets() ? apply_to_standby(action, retained, outcome)
                                              : apply_in_place(action, outcome);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    if (applied) {
      snapshot_.with([&](NodeSnapshot& shown) {
        ++shown.times.applies;
        shown.times.apply_seconds = seconds;
        shown.times.pause_seconds = outcome.pause_seconds;
      });
    }
    mailbox_.post([this, refit = action.refit, applied, outcome] {
      half_applied_.store(!applied && (half_applied_.load() || !outcome.untouched));
      --applying_;
      if (applied) {
        step(apply::agent::Applied{refit, state_->boot(), state_->stamps()});
      } else {
        step(apply::agent::ApplyFailed{refit, applied.error(), outcome.untouched, outcome.by_hook});
      }
    });
  });
}

apply::PatchOptions NodeAgent::Body::patch_options() const {
  apply::PatchOptions options;
  options.block_bytes = config_.apply_block_bytes;
  const std::uint32_t cores = std::max(1U, std::thread::hardware_concurrency());
  // Readers of another set lose nothing while this one is built, but they want the processors.
  const std::uint32_t wanted = state_->has_sets() ? std::max(1U, cores / 2) : cores;
  options.threads = config_.apply_threads != 0 ? config_.apply_threads : wanted;
  options.on_progress = [](std::uint64_t, std::uint64_t) { kill_point("agent.applying"); };
  return options;
}

apply::HookFacts NodeAgent::Body::hook_facts(const RefitId& refit, const Content& content) const {
  return {state_->weights_path(), content, refit};
}

// A runtime that is not ready for it postpones the apply; it is asked again with back-off.
Status NodeAgent::Body::before_apply(const apply::agent::ApplyJournal& action,
                                     bool& by_hook) const {
  if (!hooks_->has_before_apply()) return ok();
  Status told = hooks_->before_apply(hook_facts(action.refit, action.target));
  by_hook = !told;
  return told;
}

void NodeAgent::Body::act(apply::agent::CallAfterApply& action) {
  jobs_.start([this, action] {
    const Status told = hooks_->after_apply(hook_facts(action.refit, action.content));
    if (told) kill_point("agent.before_hooked");
    post(apply::agent::HookDone{action.refit, told});
  });
}

Status NodeAgent::Body::apply_in_place(const apply::agent::ApplyJournal& action,
                                       ApplyOutcome& outcome) {
  const auto checkpoint = state_->checkpoint();
  WEFT_TRY(auto journal,
           apply::JournalReader::open(state_->journals(), action.refit, state_->schema()));
  WEFT_TRY(auto table, journal->table(state_->lattice()));
  WEFT_TRY_STATUS(checkpoint->open_for_writing());
  WEFT_TRY_STATUS(before_apply(action, outcome.by_hook));
  WEFT_TRY(auto turn, apply::WriterTurn::acquire(checkpoint->store(), state_->page(),
                                                 config_.apply_lock_timeout));
  const auto paused = std::chrono::steady_clock::now();
  WEFT_TRY_STATUS(turn->begin());
  outcome.untouched = false;
  const apply::PatchOptions options = patch_options();
  WEFT_TRY(const apply::PatchStats stats, apply::apply_journal(*journal, *checkpoint, options));
  WEFT_TRY_STATUS(checkpoint->refresh_identity());
  if (action.check_written) {
    WEFT_TRY(auto now, state_->compute_table(state_->lattice(), options.threads));
    if (now->root(state_->lattice()) != action.target.root) {
      return failure(ErrorCode::kNeedsReseed, Stage::kRecover,
                     "after the journal the files are " + to_hex(now->root(state_->lattice())) +
                         ", not " + to_hex(action.target.root) + ": bytes outside it were lost");
    }
  }
  WEFT_TRY_STATUS(state_->adopt_table(
      state_->lattice(), std::make_shared<const codec::DigestTable>(std::move(table))));
  WEFT_TRY_STATUS(turn->finish(action.target));
  outcome.pause_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - paused).count();
  events_.count("written_bytes", stats.written_bytes);
  kill_point("agent.before_data_sync");
  return checkpoint->sync();
}

// The current set stays as it is whatever happens here, so readers stay on the base.
Status NodeAgent::Body::apply_to_standby(const apply::agent::ApplyJournal& action,
                                         const std::vector<RefitId>& retained,
                                         ApplyOutcome& outcome) {
  apply::give_way_to_readers(config_.apply_nice);
  NodeState::StandbyWork work;
  work.refit = action.refit;
  work.target = action.target;
  work.retained = retained;
  work.check = action.check_written || action.restarted;
  work.patch = patch_options();
  work.before_flip = [&] { return before_apply(action, outcome.by_hook); };
  work.on_step = [](std::string_view point) { kill_point("standby." + std::string(point)); };
  WEFT_TRY(const apply::StandbyReport report, state_->switch_sets(work));
  events_.count("written_bytes", report.written_bytes);
  events_.report(Severity::kInfo, "sets_switched",
                 std::vector<EventField>{{"refit", to_string(action.refit)},
                                         {"journals", std::to_string(report.journals)},
                                         {"copied", report.copied ? "yes" : "no"}});
  return ok();
}

}  // namespace weft::agent
