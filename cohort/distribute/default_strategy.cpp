#include "cohort/distribute/default_strategy.h"

#include "cohort/base/error.h"

namespace cohort {
namespace {

class DefaultExtended : public StrategyExtended {
 public:
  DefaultExtended()
      : StrategyExtended({.name = "DefaultStrategy", .layout = ReplicaLayout({Device()})}),
        standing_(*this, 0) {}

  std::vector<Device> worker_devices() const override { throw no_devices("worker_devices"); }
  std::vector<Device> parameter_devices() const override { throw no_devices("parameter_devices"); }
  bool between_graph() const override { throw unsupported("between_graph"); }
  bool should_init() const override { throw unsupported("should_init"); }

  Mirrored<at::Tensor> broadcast_tensor(const at::Tensor&, const Destinations&) const override {
    throw NotImplementedError("extended.broadcast_to",
                              "the default strategy has no devices to broadcast to");
  }

  ReplicaContext* standing_context() override { return &standing_; }

 private:
  static RuntimeError no_devices(const char* what) {
    return {cat("extended.", what),
            "the default strategy has no devices of its own; enter another strategy's scope"};
  }
  static NotImplementedError unsupported(const char* what) {
    return {cat("extended.", what), "not defined for the default strategy"};
  }

  ReplicaContext standing_;
};

}  // namespace

const Strategy& default_strategy() {
  static const auto* const strategy = new Strategy(std::make_shared<DefaultExtended>());
  return *strategy;
}

}  // namespace cohort
