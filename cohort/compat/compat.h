#pragma once

/// Every deprecated spelling, for programs that are being moved over from TensorFlow.

#include "cohort/compat/communication.h"
#include "cohort/compat/config_proto.h"
#include "cohort/compat/context.h"
#include "cohort/compat/input.h"
#include "cohort/compat/strategy.h"
#include "cohort/compat/strategy_extended.h"
#include "cohort/compat/tpu.h"
