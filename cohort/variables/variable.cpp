#include "cohort/variables/variable.h"

#include <ATen/ATen.h>

#include "cohort/base/error.h"
#include "cohort/variables/logical_device.h"
#include "cohort/variables/reading.h"
#include "cohort/variables/variable_state.h"

namespace cohort {
namespace {

void print_value(std::ostream& out, const at::Tensor& tensor) {
  const at::Tensor value = tensor.detach();
  if (value.numel() != 1) {
    out << '\n' << value;
  } else if (value.is_floating_point()) {
    out << value.item<double>();
  } else {
    out << value.item();
  }
}

void print_component(std::ostream& out, const Variable& variable, std::size_t i) {
  const at::Tensor& component = variable.components()[i];
  out << "<cohort::Variable '" << variable.component_name(i) << "' shape=" << component.sizes()
      << " dtype=" << c10::toString(component.scalar_type()) << ", value=";
  print_value(out, component);
  out << '>';
}

}  // namespace

at::Tensor Variable::value() const {
  return detail::on_logical_devices(*state_, detail::read(*state_, detail::Reader::VALUE));
}
at::Tensor Variable::read_value() const {
  return detail::on_logical_devices(*state_,
                                    detail::read(*state_, detail::Reader::READ_VALUE).clone());
}
Variable::operator at::Tensor() const {
  return detail::on_logical_devices(*state_, detail::read(*state_, detail::Reader::CONVERSION));
}

Variable::operator bool() const { return at::Tensor(*this).item<bool>(); }
Variable::operator float() const { return at::Tensor(*this).item<float>(); }
Variable::operator double() const { return at::Tensor(*this).item<double>(); }
Variable::operator std::int64_t() const { return at::Tensor(*this).item<std::int64_t>(); }

const at::Tensor Variable::operator[](std::int64_t index) const {  // NOLINT(readability-const-*)
  return at::Tensor(*this)[index];
}
const at::Tensor Variable::operator[](const at::Tensor& index) const {  // NOLINT(readability-*)
  return at::Tensor(*this)[index];
}

const std::string& Variable::name() const& { return state_->options.name; }
c10::ScalarType Variable::dtype() const { return state_->dtype(); }
at::IntArrayRef Variable::sizes() const& { return state_->copies[0].sizes(); }
bool Variable::trainable() const { return state_->trainable(); }
Synchronization Variable::synchronization() const { return state_->options.synchronization; }
Aggregation Variable::aggregation() const { return state_->options.aggregation; }
const std::function<at::Tensor(const at::Tensor&)>& Variable::constraint() const& {
  return state_->options.constraint;
}
const char* Variable::kind_name() const { return state_->kind_name(); }

at::Tensor Variable::handle() const {
  return state_->components[detail::read_access(*state_, "variable.handle").component];
}
const std::vector<at::Tensor>& Variable::components() const& { return state_->components; }

std::string Variable::component_name(std::size_t i) const {
  return i == 0 ? name() : cat(name(), "/replica_", i);
}

Device Variable::device() const {
  const int component = detail::read_access(*state_, "variable.device").component;
  return state_->placement.copies[state_->placement.copy_of[component]];
}
const DeviceList& Variable::devices() const& { return state_->placement.devices; }
StrategyExtended* Variable::owner() const { return state_->owner.get(); }

Reducible Variable::reducible() const {
  using Kind = detail::VariableState::Kind;
  if (state_->kind != Kind::MIRRORED) return {Reducible::SINGLE, {primary()}, nullptr};
  return {state_->on_read() ? Reducible::PER_REPLICA : Reducible::MIRRORED, components(),
          devices()};
}

std::ostream& operator<<(std::ostream& out, const Variable& variable) {
  if (variable.state_->kind == detail::VariableState::Kind::PLAIN) {
    print_component(out, variable, 0);
    return out;
  }
  out << variable.kind_name() << ":{";
  const std::size_t shown = variable.devices()->size();  // a variable that is stored once, once
  for (std::size_t i = 0; i < shown; ++i) {
    out << "\n  " << i << ": ";
    print_component(out, variable, i);
  }
  return out << "\n}";
}

}  // namespace cohort
