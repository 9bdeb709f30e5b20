#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/distribute/context.h"
#include "cohort/distribute/crew.h"
#include "cohort/distribute/strategy.h"
#include "cohort/variables/creation.h"

namespace cohort {
namespace detail {

std::string canonical_name(const std::string& name) {
  if (name.empty()) return "Variable";
  std::string result;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string segment = name.substr(begin, end - begin);
    const std::size_t cut = segment.find_last_not_of("0123456789");
    const bool numbered =
        cut != std::string::npos && segment[cut] == '_' && cut + 1 < segment.size();
    result += (begin > 0 ? "/" : "") + (numbered ? segment.substr(0, cut) : segment);
    begin = end + 1;
  }
  return result;
}

// Replica 0's variables of a run are lists, one for each canonical name, that only grow. Another
// replica keeps count of how many of each name it has taken, and waits where replica 0 is not as
// far yet. It waits in vain once replica 0 has ended or waits itself, for this very replica.

Variable share_in_run(ReplicaContext& replica, const std::string& name,
                      FunctionRef<Variable()> make) {
  SharedInRun& shared = *thread_context().shared_in_run;
  collectives::Meeting& meeting = replica.crew().meeting();
  const std::string key = canonical_name(name);
  const int me = replica.local_id();
  if (me == 0) {
    Variable made = make();
    {
      const MutexLock lock(shared.mutex);
      shared.variables[key].push_back(made.state());
    }
    meeting.tell_followers();
    return made;
  }
  std::shared_ptr<VariableState> found;
  std::size_t& taken = thread_context().taken_in_run[key];
  const bool there = meeting.follow_leader(me, cat("Variable ", name), [&] {
    const MutexLock lock(shared.mutex);
    const auto& made = shared.variables[key];
    if (taken < made.size()) found = made[taken];
    return found != nullptr;
  });
  if (!there) {
    throw RuntimeError("Variable",
                       cat("Tried to create variable ", name, " with mismatching name on replica ",
                           replica.replica_id_in_sync_group(), ": replica ",
                           replica.replica_id_in_sync_group() - me,
                           " has not made as many of this name; make the "
                           "same variables on every replica"));
  }
  ++taken;
  return Variable(std::move(found));
}

void close_guard_or_log(const void* tag, const char* where) {
  try {
    close_guard(tag, where);
  } catch (const Error& error) {
    log::error(error.what(), "; it was ended all the same");
    std::erase_if(thread_context().guards,
                  [&](const OpenGuard& guard) { return guard.tag == tag; });
  }
}

}  // namespace detail

VariableCreatorScope::VariableCreatorScope(VariableCreator creator) {
  auto& context = detail::thread_context();
  const StrategyExtended* strategy = has_strategy() ? &detail::current_strategy() : nullptr;
  const bool in_replica = strategy && replica_context_or_null();
  installed_ = std::make_shared<const detail::InstalledCreator>(
      detail::InstalledCreator{std::move(creator), strategy, in_replica});
  context.creators.push_back(installed_);
  context.guards.push_back({installed_.get(), "Variable creator"});
}

VariableCreatorScope::~VariableCreatorScope() {
  detail::close_guard_or_log(installed_.get(), "VariableCreatorScope");
  std::erase(detail::thread_context().creators, installed_);
}

}  // namespace cohort
