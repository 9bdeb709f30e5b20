#pragma once

#include "cohort/device/configuration.h"

namespace cohort {

/// Makes the settings of the whole process that several replicas in it need, once:
///
/// - OpenBLAS computes each product on one thread. It cannot be told for one replica alone, and
///   its idle threads spin: two replicas train at half the speed of one otherwise.
/// - glibc's malloc keeps blocks up to 32 MiB for reuse (M_MMAP_THRESHOLD 32 MiB, M_TRIM_THRESHOLD
///   2000 MiB and M_TOP_PAD 64 MiB) and does not fetch them anew from the kernel at every step,
///   which is a third of the time of a small convolutional network. The process gives back less
///   memory. M_MXFAST 0 keeps small blocks from filling up what was kept.
///
/// Strategies with several slots call it. The first call that changes something says what in the
/// log (INFO); later calls do nothing. Where a library is not in the process, its setting is left
/// out. A host application refuses with `configure({.process_settings =
/// ProcessSettings::LEAVE_ALONE})` or `COHORT_PROCESS_SETTINGS=leave`, before the first strategy.
///
/// Returns whether the settings are in force: false if they were refused and not made before.
/// Throws ValueError if `COHORT_PROCESS_SETTINGS` is neither `apply` nor `leave`.
/// May be called from any thread.
bool apply_process_settings();

}  // namespace cohort
