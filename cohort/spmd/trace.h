#pragma once

#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace cohort::spmd {

/// What became of the operations on sharded tensors, of all replicas, while it lives.
///
///     auto trace = spmd::trace();
///     model(images).sum().backward();
///     std::cout << trace;                    // a table
///     trace.write_chrome("trace.json");      // for chrome://tracing and Perfetto
///
/// One at a time. Costs nothing when there is none.
class Trace {
 public:
  /// The calls of one operation.
  struct Row {
    std::int64_t partitioned = 0;     ///< Calls that the devices shared.
    std::int64_t gathered = 0;        ///< Calls that one thread ran on whole tensors.
    std::int64_t bytes_moved = 0;     ///< What devices read of other devices' tiles.
    std::vector<std::int64_t> tasks;  ///< Of each logical device, over all replicas.
    std::string reason;               ///< Why the first one was gathered.
  };

  ~Trace();
  Trace(Trace&&) noexcept;
  Trace& operator=(Trace&&) = delete;

  /// By the names of the operations, such as "aten::convolution".
  std::map<std::string, Row> rows() const;

  /// The calls that were gathered, of all operations.
  std::int64_t gathered() const;

  /// Writes when which device ran what. Throws Unavailable if the file can't be written.
  void write_chrome(const std::string& path) const;

  friend std::ostream& operator<<(std::ostream& out, const Trace& trace);

  struct Recorder;

 private:
  friend Trace trace();
  explicit Trace(std::unique_ptr<Recorder> recorder);

  std::unique_ptr<Recorder> recorder_;
};

/// Begins to record. Throws RuntimeError while another trace lives.
Trace trace();

/// While one lives, an operation that would be gathered throws RuntimeError instead, naming the
/// operation, the layouts, and what would keep it partitioned. For all threads.
class Strict {
 public:
  Strict();
  ~Strict();
  Strict(const Strict&) = delete;
  Strict& operator=(const Strict&) = delete;
};

/// One operation on sharded tensors, while it runs in a replica's thread. An operation that another
/// one is made of counts as part of that.
class Operation {
 public:
  explicit Operation(const char* name);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// The operation is run on whole tensors. Throws RuntimeError in strict mode. `layouts` describes
  /// its arguments.
  void gathers(const std::string& reason, const std::string& layouts);

  /// The one that this thread runs, or runs a task of; null for none.
  static Operation* current();

  /// A task on a device of the mesh has run. Ignored when nobody records.
  void ran(int device, std::int64_t tasks, std::int64_t start_ns, std::int64_t end_ns,
           const std::string& mesh);
  /// Somebody records.
  static bool is_recording();

  /// Bytes that a task has read of another device's tiles.
  static void moved(std::size_t bytes);

 private:
  const char* const name_;
  Operation* const outer_;
  std::atomic<std::int64_t> bytes_{0};
  std::string reason_;
  bool gathers_ = false;
};

/// Makes an operation current in the thread of one of its tasks.
class OperationScope {
 public:
  explicit OperationScope(Operation* operation);
  ~OperationScope();
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

 private:
  Operation* const before_;
};

}  // namespace cohort::spmd
