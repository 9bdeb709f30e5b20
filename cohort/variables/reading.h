#pragma once

#include <ATen/core/Tensor.h>

#include "cohort/variables/variable_state.h"

namespace cohort {

/// While it lives, reading an ON_READ variable in a replica gives the aggregate over all replicas:
/// every replica must read the same variables in the same order.
///
///     auto synchronized = cohort::variable_sync_on_read_context();
///     auto mean = total / count;
///
/// For conversions and operators; the variable's own `value()` throws NotImplementedError.
class [[nodiscard]] VariableSyncOnReadContext {
 public:
  VariableSyncOnReadContext();
  ~VariableSyncOnReadContext();
  VariableSyncOnReadContext(const VariableSyncOnReadContext&) = delete;
  VariableSyncOnReadContext& operator=(const VariableSyncOnReadContext&) = delete;

 private:
  bool before_;
};

inline VariableSyncOnReadContext variable_sync_on_read_context() { return {}; }

namespace detail {

/// Who reads, where that makes a difference.
enum class Reader {
  VALUE,       ///< value(), in error texts too.
  READ_VALUE,  ///< read_value(): heeds a DeviceScope also outside of any scope.
  CONVERSION,  ///< Conversions and operators: aggregate in a VariableSyncOnReadContext.
};

/// The variable in the current context; the component itself where that is what is read.
at::Tensor read(const VariableState& variable, Reader reader);

/// ON_READ: the aggregate over all replicas, in cross-replica context.
at::Tensor aggregate(const VariableState& variable);

}  // namespace detail
}  // namespace cohort
