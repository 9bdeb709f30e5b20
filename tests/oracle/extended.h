#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/oracle/oracle.h"
#include "tests/oracle/strategies.h"

/// What the files of the theme `extended` have in common.
namespace cohort::oracle {

/// TensorFlow's word for a value that is not mirrored; Cohort's is a Mirrored of one.
template <class T>
const char* class_of(const Mirrored<T>& value) {
  return value.size() == 1 ? "EagerTensor" : "Mirrored";
}

inline const VariableOptions kOnReadSum{.synchronization = Synchronization::ON_READ,
                                        .aggregation = Aggregation::SUM};

using Batch = std::vector<std::pair<PerReplica<Tensor>, Destinations>>;

/// The same number on both of two replicas.
inline Json mirrored_json(double value, at::ScalarType dtype = at::kFloat) {
  return encode(Mirrored<Tensor>({scalar(value, dtype), scalar(value, dtype)}));
}

/// 1 + 2, on both devices.
inline Mirrored<Tensor> mirrored_sum(const Strategy& strategy) {
  const auto p = per(strategy, {1, 2});
  return strategy.extended().reduce_to("SUM", p, p);
}

/// The values of a table's row, one for each replica.
inline PerReplica<Tensor> values_of(const Strategy& s, const Json& row, at::ScalarType dtype) {
  std::vector<Tensor> values;
  for (const Json& value : row) values.push_back(decode_tensor(value, dtype));
  return per(s, values);
}

inline at::ScalarType dtype_at(const Json& input, std::size_t at) {
  return input.size() > at ? decode_dtype(input[at].get<std::string>()) : at::kFloat;
}

/// [[r + 1]] at row r of 3x1.
inline PerReplica<Tensor> slices_of(const Strategy& s) {
  return s.run([] {
    return at::sparse_coo_tensor(rid(at::kLong).reshape({1, 1}), (rid() + 1).reshape({1, 1}),
                                 {3, 1});
  });
}

inline Json batch_reduce(const Strategy& s, const std::string& op, const Json& rows,
                         at::ScalarType dtype) {
  Batch batch;
  for (const Json& row : rows) {
    const auto p = values_of(s, row, dtype);
    batch.emplace_back(p, p);
  }
  return encode(s.extended().batch_reduce_to(op, batch));
}

}  // namespace cohort::oracle
