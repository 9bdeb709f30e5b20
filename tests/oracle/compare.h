#pragma once

#include <optional>
#include <string>

#include "tests/oracle/encode.h"

namespace cohort::oracle {

/// How far numbers may be apart. Small integers and simple fractions are exact all the same.
struct Tolerance {
  double relative = 1e-6;
  double absolute = 0;
};

/// Nothing if Cohort's outcome is TensorFlow's; else what differs, and where.
///
/// C++ has static kinds, so some differences of form are none (rule 0.2 of the semantics):
///   - a PerReplica or a Mirrored, where TensorFlow unwraps to one value: all components are it;
///   - a tensor, where TensorFlow hands a host number or a variable's component through;
///   - a list for a tuple and the other way round: C++ has lists of one type and tuples of many.
/// Errors agree when their kinds do (`kind_of`) and when each fragment of TensorFlow's message that
/// its own tests look for is in Cohort's text too.
std::optional<std::string> difference(const Json& tensorflow, const Json& cohort,
                                      const Tolerance& tolerance = {});

/// True if errors of TensorFlow's Python type become errors of this kind in Cohort. What Python
/// happened to raise (AttributeError, IndexError, AssertionError) is a ValueError, or an
/// InvalidArgument where shapes are at fault.
bool is_kind_of(std::string_view python_type, std::string_view kind);

}  // namespace cohort::oracle
