#pragma once

#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <type_traits>

#include "cohort/device/device.h"
#include "cohort/values/nest.h"

/// Values as JSON, in the form that tests/data/oracle/scripts/oracle.py prints them.
namespace cohort::oracle {

using Json = nlohmann::json;

/// {"dtype", "shape", "value"}; of a sparse tensor {"kind": "IndexedSlices", …}.
Json encode_tensor(const at::Tensor& tensor);

/// {"kind": kind, "values": components}.
Json encode_components(const char* kind, std::vector<Json> components);

template <class T>
Json encode(const T& value);

namespace detail {

template <class T>
std::vector<Json> encode_each(const T& range) {
  std::vector<Json> items;
  for (const auto& item : range) items.push_back(encode(item));
  return items;
}

/// A plain variable, or one that is stored once, has one value.
template <class V>
Json encode_variable(const V& variable) {
  const std::string kind = variable.kind_name();
  if (kind == "MirroredVariable" || kind == "SyncOnReadVariable") {
    return encode_components(kind.c_str(), encode_each(variable.components()));
  }
  return {{"kind", "Variable"}, {"value", encode(variable.components()[0])}};
}

template <class T>
Json encode_object(const T& value) {
  Json object = Json::object();
  for (const auto& [key, item] : value) object[key] = encode(item);
  return object;
}

template <class T>
Json encode_tuple(const T& value) {
  Json items = Json::array();
  std::apply([&](const auto&... parts) { (items.push_back(encode(parts)), ...); }, value);
  return {{"kind", "tuple"}, {"items", std::move(items)}};
}

}  // namespace detail

/// A nest, a distributed value, a variable, a device, a number or a string.
template <class T>
Json encode(const T& value) {
  if constexpr (nest::detail::kIs<T, PerReplica>) {
    return encode_components("PerReplica", detail::encode_each(value.values()));
  } else if constexpr (nest::detail::kIs<T, Mirrored>) {
    return encode_components("Mirrored", detail::encode_each(value.values()));
  } else if constexpr (std::is_same_v<T, Json> || std::is_arithmetic_v<T> ||
                       std::is_convertible_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, at::Tensor>) {
    return encode_tensor(value);
  } else if constexpr (std::is_same_v<T, Device>) {
    return value.name();
  } else if constexpr (nest::Optional<T>) {
    return value ? encode(*value) : Json();
  } else if constexpr (nest::Tuple<T>) {
    return detail::encode_tuple(value);
  } else if constexpr (nest::Map<T>) {
    return detail::encode_object(value);
  } else if constexpr (nest::Array<T> || nest::List<T>) {
    return detail::encode_each(value);
  } else if constexpr (requires { value.components(); }) {
    return detail::encode_variable(value);
  } else {
    static_assert(std::is_same_v<T, std::nullptr_t>, "no encoding for this type");
    return nullptr;
  }
}

/// The type of an error that is not Cohort's own: never what a case expects.
inline constexpr const char* kForeignError = "not an error of Cohort";

/// The parts of a tuple as an object: C++ has no maps of values of different types.
template <class T>
Json named(const std::vector<std::string>& names, const T& tuple) {
  const Json items = encode(tuple)["items"];
  Json object = Json::object();
  for (std::size_t i = 0; i < names.size(); ++i) object[names[i]] = items[i];
  return object;
}

/// {"error": {"type", "message"}} of the exception that is being handled.
Json encode_current_error();

/// What fn returns, encoded, or its error: for cases with several outcomes.
template <class F>
Json attempt(F&& fn) {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<F&>>) {
      fn();
      return nullptr;
    } else {
      return encode(fn());
    }
  } catch (...) {
    return encode_current_error();
  }
}

/// What stands for an error of this kind whose text contains `part`, in an expected result.
Json fails(std::string_view kind, std::string_view part = "");

/// A tensor from the numbers of a JSON list, as TensorFlow's tf.constant makes it.
at::Tensor decode_tensor(const Json& value, at::ScalarType dtype = at::kFloat);
at::ScalarType decode_dtype(std::string_view name);

}  // namespace cohort::oracle
