#pragma once

/// Everything of Cohort, for programs. Libraries include what they use.

#include <torch/torch.h>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/collectives/cross_device_ops.h"
#include "cohort/device/configuration.h"
#include "cohort/device/device.h"
#include "cohort/device/logical_devices.h"
#include "cohort/device/machine.h"
#include "cohort/distribute/context.h"
#include "cohort/distribute/default_strategy.h"
#include "cohort/distribute/replica_random.h"
#include "cohort/distribute/strategy.h"
#include "cohort/io/idx.h"
#include "cohort/metrics/metric.h"
#include "cohort/optim/fingerprint.h"
#include "cohort/optim/losses.h"
#include "cohort/optim/model.h"
#include "cohort/optim/optimizer.h"
#include "cohort/optim/sync_batch_norm.h"
#include "cohort/strategies/central_storage_strategy.h"
#include "cohort/strategies/mirrored_strategy.h"
#include "cohort/strategies/one_device_strategy.h"
#include "cohort/variables/creation.h"
#include "cohort/variables/moving_average.h"
#include "cohort/variables/reading.h"
#include "cohort/variables/update.h"
#include "cohort/variables/variable.h"
