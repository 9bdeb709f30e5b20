#include "tests/oracle/compare.h"

#include <array>
#include <cmath>
#include <set>

#include "cohort/base/error.h"

namespace cohort::oracle {
namespace {

/// What TensorFlow's own tests look for in messages, as far as the semantics quote it.
constexpr std::array kFragments = {
    "Mixing different",
    "Need to be inside",
    "Method requires being in cross-replica context",
    "Mismatching ReplicaContext",
    "Mismatching tf.distribute.Strategy objects",
    "Device scope nesting error",
    "Variable creator scope nesting error",
    "Variable scope nesting error",
    "Must not be called inside",
    "Must not nest",
    "mismatching name",
    "different number of replica_context().merge_call() calls",
    "`NONE` variable synchronization mode is not supported",
    "Invalid variable synchronization mode",
    "Invalid variable aggregation mode",
    "aggregation=MEAN and a non-floating dtype",
    "You must specify an aggregation method",
    "cannot be reduced with the given reduce op",
    "Could not convert from",
    "SyncOnReadVariable does not support",
    "all_gather does not support IndexedSlices",
    "must be either all on the host or all on the compute devices",
    "It must be a Variable",
    "must only be passed a variable created in this",
    "Expected value to be mirrored across replicas",
    "not inside a replica context",
    "is not found",
};

bool is_kind(const Json& value, const char* kind) {
  return value.is_object() && value.contains("kind") && value["kind"] == kind;
}

bool is_error(const Json& value) { return value.is_object() && value.contains("error"); }

bool is_tensor(const Json& value) { return value.is_object() && value.contains("dtype"); }

/// The items of a list or a tuple; null for anything else.
const Json* items_of(const Json& value) {
  if (value.is_array()) return &value;
  return is_kind(value, "tuple") ? &value["items"] : nullptr;
}

bool is_exact(double value) { return std::abs(value) < 1e6 && std::trunc(value * 8) == value * 8; }

class Comparison {
 public:
  explicit Comparison(const Tolerance& tolerance) : tolerance_(tolerance) {}

  /// Compares, and keeps the first difference.
  bool same(const Json& expected, const Json& got, const std::string& path) {
    if (is_error(expected) || is_error(got)) return same_error(expected, got, path);
    if (expected.is_number() && got.is_number()) return same_number(expected, got, path);
    if (is_tensor(got) && !is_tensor(expected)) return same_value(expected, got, path);
    if (unwraps(expected, got)) return same_components(expected, got, path);
    if (is_kind(expected, "IndexedSlices") && is_kind(got, "IndexedSlices")) {
      return same_slices(expected, got, path);
    }
    const Json *items = items_of(expected), *got_items = items_of(got);
    if (items && got_items) return same_list(*items, *got_items, path);
    if (expected.is_object() && got.is_object()) return same_object(expected, got, path);
    return expected == got || differ(expected, got, path);
  }

  const std::string& text() const { return text_; }

 private:
  bool differ(const Json& expected, const Json& got, const std::string& path) {
    text_ = cat(path, ": expected ", expected.dump(), ", got ", got.dump());
    return false;
  }

  bool same_number(const Json& expected, const Json& got, const std::string& path) {
    const double a = expected.get<double>(), b = got.get<double>();
    const double allowed = tolerance_.absolute > 0 ? tolerance_.absolute
                           : is_exact(a)           ? 0
                                                   : tolerance_.relative * std::abs(a);
    return std::abs(a - b) <= allowed || differ(expected, got, path);
  }

  /// A host number, or a variable's component, where Cohort has a tensor.
  bool same_value(const Json& expected, const Json& got, const std::string& path) {
    if (is_kind(expected, "Variable")) return same(expected["value"], got, path);
    if (expected.is_primitive() || expected.is_array()) return same(expected, got["value"], path);
    return differ(expected, got, path);
  }

  static bool unwraps(const Json& expected, const Json& got) {
    const bool wrapped = is_kind(got, "PerReplica") || is_kind(got, "Mirrored");
    return wrapped && !is_kind(expected, "PerReplica") && !is_kind(expected, "Mirrored");
  }

  bool same_components(const Json& expected, const Json& got, const std::string& path) {
    for (const Json& component : got["values"]) {
      if (!same(expected, component, path)) return false;
    }
    return true;
  }

  /// TensorFlow's indices may be of any integer type, LibTorch's are int64.
  bool same_slices(const Json& expected, const Json& got, const std::string& path) {
    return same(expected["values"], got["values"], path) &&
           same(expected["indices"]["value"], got["indices"]["value"], path) &&
           same(expected["dense_shape"]["value"], got["dense_shape"]["value"], path);
  }

  bool same_list(const Json& expected, const Json& got, const std::string& path) {
    if (expected.size() != got.size()) return differ(expected, got, path);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (!same(expected[i], got[i], cat(path, '[', i, ']'))) return false;
    }
    return true;
  }

  bool same_object(const Json& expected, const Json& got, const std::string& path) {
    if (expected.size() != got.size()) return differ(expected, got, path);
    for (const auto& [key, value] : expected.items()) {
      if (!got.contains(key)) return differ(expected, got, path);
      if (!same(value, got[key], cat(path, '.', key))) return false;
    }
    return true;
  }

  bool same_error(const Json& expected, const Json& got, const std::string& path) {
    if (!is_error(expected) || !is_error(got)) return differ(expected, got, path);
    const Json &wanted = expected["error"], &error = got["error"];
    if (expected.value("accidental", false)) {
      return error["type"] != kForeignError || differ(expected, got, path);
    }
    const auto text = error["message"].get<std::string>();
    bool fits = is_kind_of(wanted["type"].get<std::string>(), error["type"].get<std::string>());
    if (wanted.contains("contains")) {
      fits &= text.find(wanted["contains"].get<std::string>()) != std::string::npos;
    } else {
      for (const char* fragment : kFragments) {
        const bool quoted =
            wanted["message"].get<std::string>().find(fragment) != std::string::npos;
        fits &= !quoted || text.find(fragment) != std::string::npos;
      }
    }
    return fits || differ(expected, got, path);
  }

  const Tolerance tolerance_;
  std::string text_;
};

}  // namespace

bool is_kind_of(std::string_view python_type, std::string_view kind) {
  static const auto* const accidents =
      new std::set<std::string, std::less<>>{"AssertionError", "AttributeError", "IndexError"};
  if (accidents->contains(python_type)) return kind == "ValueError" || kind == "InvalidArgument";
  return python_type == kind || python_type == std::string(kind) + "Error";
}

std::optional<std::string> difference(const Json& tensorflow, const Json& cohort,
                                      const Tolerance& tolerance) {
  Comparison comparison(tolerance);
  if (comparison.same(tensorflow, cohort, "result")) return std::nullopt;
  return comparison.text();
}

}  // namespace cohort::oracle
