#pragma once

/// The spellings of older tf.distribute pages that newer ones replaced, as free functions, so that
/// programs can be moved over line by line:
///
///     strategy.experimental_run_v2(fn, args=(x,))           # Python, TensorFlow 2.0
///     compat::experimental_run_v2(strategy, fn, x);         // this folder
///     strategy.run(fn, x);                                  // Cohort
///
/// Each says once in the log what to write instead. Not part of `cohort/cohort.h`.
namespace cohort::compat {

/// Warns, once in the process for each `name`, that it is deprecated; `advice` says what to do.
void warn_deprecated(const char* name, const char* advice);

}  // namespace cohort::compat
