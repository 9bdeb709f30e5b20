#include "cohort/spmd/trace.h"

#include <algorithm>
#include <fstream>
#include <iomanip>
#include <ostream>

#include "cohort/base/error.h"
#include "cohort/base/mutex.h"

namespace cohort::spmd {

struct Trace::Recorder {
  struct Event {
    const char* name;
    std::string mesh;
    int device;
    std::int64_t start_ns, end_ns;
  };

  Mutex mutex;
  std::map<std::string, Row> rows COHORT_GUARDED_BY(mutex);
  std::vector<Event> events COHORT_GUARDED_BY(mutex);
};

namespace {

Mutex active_mutex;
std::atomic<Trace::Recorder*> active{nullptr};  // written under the mutex
std::atomic<int> strict{0};
thread_local Operation* running = nullptr;

}  // namespace

Trace::Trace(std::unique_ptr<Recorder> recorder) : recorder_(std::move(recorder)) {}
Trace::Trace(Trace&&) noexcept = default;

Trace::~Trace() {
  if (!recorder_) return;  // moved from
  const MutexLock lock(active_mutex);
  active = nullptr;
}

Trace trace() {
  const MutexLock lock(active_mutex);
  if (active) throw RuntimeError("spmd::trace", "another trace records: end that first");
  auto recorder = std::make_unique<Trace::Recorder>();
  active = recorder.get();
  return Trace(std::move(recorder));
}

std::map<std::string, Trace::Row> Trace::rows() const {
  const MutexLock lock(recorder_->mutex);
  return recorder_->rows;
}

std::int64_t Trace::gathered() const {
  std::int64_t count = 0;
  for (const auto& [name, row] : rows()) count += row.gathered;
  return count;
}

std::ostream& operator<<(std::ostream& out, const Trace& trace) {
  out << std::left << std::setw(44) << "operation" << std::right << std::setw(12) << "partitioned"
      << std::setw(10) << "gathered" << std::setw(14) << "bytes moved"
      << "  tasks of each device\n";
  for (const auto& [name, row] : trace.rows()) {
    out << std::left << std::setw(44) << name << std::right << std::setw(12) << row.partitioned
        << std::setw(10) << row.gathered << std::setw(14) << row.bytes_moved << ' ';
    for (const std::int64_t tasks : row.tasks) out << ' ' << tasks;
    out << (row.reason.empty() ? "" : "  (" + row.reason + ")") << '\n';
  }
  return out;
}

void Trace::write_chrome(const std::string& path) const {
  std::ofstream file(path);
  file << "[\n";
  {
    const MutexLock lock(recorder_->mutex);
    const char* separator = "";
    for (const Recorder::Event& event : recorder_->events) {
      file << separator << R"({"ph":"X","name":")" << event.name << R"(","pid":")" << event.mesh
           << R"(","tid":)" << event.device << R"(,"ts":)" << std::fixed << std::setprecision(3)
           << static_cast<double>(event.start_ns) / 1e3 << R"(,"dur":)"
           << static_cast<double>(event.end_ns - event.start_ns) / 1e3 << '}';
      separator = ",\n";
    }
  }
  file << "\n]\n";
  file.close();
  if (!file) throw Unavailable("spmd::Trace.write_chrome", cat("can't write ", path));
}

Strict::Strict() { ++strict; }
Strict::~Strict() { --strict; }

Operation::Operation(const char* name) : name_(name), outer_(running) {
  if (!outer_) running = this;
}

Operation::~Operation() {
  if (outer_) return;
  running = nullptr;
  if (!is_recording()) return;
  const MutexLock lock(active_mutex);
  Trace::Recorder* recorder = active;
  if (!recorder) return;
  const MutexLock rows_lock(recorder->mutex);
  Trace::Row& row = recorder->rows[name_];
  ++(gathers_ ? row.gathered : row.partitioned);
  row.bytes_moved += bytes_;
  if (row.reason.empty()) row.reason = reason_;
}

Operation* Operation::current() { return running; }
bool Operation::is_recording() { return active.load(std::memory_order_relaxed) != nullptr; }

void Operation::gathers(const std::string& reason, const std::string& layouts) {
  Operation& outermost = outer_ ? *outer_ : *this;
  if (strict > 0) {
    throw RuntimeError(outermost.name_,
                       cat("this operation would gather its tensors, and strict mode is on: ",
                           reason, "; got ", layouts,
                           "; call replicate_to_logical_devices() on them first, or split another "
                           "dimension with split_to_logical_devices()"));
  }
  outermost.gathers_ = true;
  if (outermost.reason_.empty()) outermost.reason_ = reason;
}

void Operation::moved(std::size_t bytes) {
  if (running) {
    running->bytes_.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  }
}

void Operation::ran(int device, std::int64_t tasks, std::int64_t start_ns, std::int64_t end_ns,
                    const std::string& mesh) {
  const MutexLock lock(active_mutex);
  Trace::Recorder* recorder = active;
  if (!recorder) return;
  const MutexLock rows_lock(recorder->mutex);
  auto& counts = recorder->rows[name_].tasks;
  counts.resize(std::max<std::size_t>(counts.size(), device + 1));
  counts[device] += tasks;
  recorder->events.push_back({name_, mesh, device, start_ns, end_ns});
}

OperationScope::OperationScope(Operation* operation) : before_(std::exchange(running, operation)) {}
OperationScope::~OperationScope() { running = before_; }

}  // namespace cohort::spmd
