#include "tests/oracle/encode.h"

#include <cmath>
#include <map>

#include "cohort/base/error.h"

namespace cohort::oracle {
namespace {

const std::map<std::string, at::ScalarType, std::less<>>& dtypes() {
  static const auto* const names = new std::map<std::string, at::ScalarType, std::less<>>{
      {"float32", at::kFloat},     {"float64", at::kDouble}, {"float16", at::kHalf},
      {"bfloat16", at::kBFloat16}, {"int8", at::kChar},      {"uint8", at::kByte},
      {"int16", at::kShort},       {"int32", at::kInt},      {"int64", at::kLong},
      {"bool", at::kBool},
  };
  return *names;
}

std::string name_of(at::ScalarType dtype) {
  for (const auto& [name, type] : dtypes()) {
    if (type == dtype) return name;
  }
  return c10::toString(dtype);
}

Json number(const at::Tensor& scalar) {
  const auto dtype = scalar.scalar_type();
  if (dtype == at::kBool) return scalar.item<bool>();
  if (c10::isIntegralType(dtype, false)) return scalar.item<std::int64_t>();
  const auto value = scalar.item<double>();
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json numbers(const at::Tensor& tensor) {
  if (tensor.dim() == 0) return number(tensor);
  Json list = Json::array();
  for (std::int64_t i = 0; i < tensor.size(0); ++i) list.push_back(numbers(tensor[i]));
  return list;
}

void collect(const Json& value, std::vector<double>& flat, std::vector<std::int64_t>& shape,
             std::size_t depth = 0) {
  if (!value.is_array()) {
    flat.push_back(value.is_boolean() ? value.get<bool>() : value.get<double>());
    return;
  }
  if (shape.size() == depth) shape.push_back(static_cast<std::int64_t>(value.size()));
  for (const Json& item : value) collect(item, flat, shape, depth + 1);
}

Json error(std::string_view type, std::string_view message) {
  return {{"error", {{"type", type}, {"message", message}}}};
}

}  // namespace

Json encode_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  if (tensor.is_sparse()) {
    return {{"kind", "IndexedSlices"},
            {"values", encode_tensor(tensor._values())},
            {"indices", encode_tensor(tensor._indices()[0])},
            {"dense_shape", encode_tensor(at::tensor(tensor.sizes()))}};
  }
  return {{"dtype", name_of(tensor.scalar_type())},
          {"shape", tensor.sizes().vec()},
          {"value", numbers(tensor.detach())}};
}

Json encode_components(const char* kind, std::vector<Json> components) {
  return {{"kind", kind}, {"values", std::move(components)}};
}

Json encode_current_error() {
  try {
    throw;
  } catch (const Error& e) {
    return error(e.kind(), e.what());
  } catch (const c10::Error& e) {
    return error(kForeignError, e.what_without_backtrace());
  } catch (const std::exception& e) {
    return error(kForeignError, e.what());
  } catch (...) {
    return error(kForeignError, "not even an exception");
  }
}

Json fails(std::string_view kind, std::string_view part) {
  return {{"error", {{"type", kind}, {"contains", part}}}};
}

at::ScalarType decode_dtype(std::string_view name) {
  const auto found = dtypes().find(name);
  if (found == dtypes().end()) throw TypeError("decode_dtype", cat("no dtype ", name));
  return found->second;
}

at::Tensor decode_tensor(const Json& value, at::ScalarType dtype) {
  std::vector<double> flat;
  std::vector<std::int64_t> shape;
  collect(value, flat, shape);
  return at::tensor(flat, at::kDouble).reshape(shape).to(dtype);
}

}  // namespace cohort::oracle
