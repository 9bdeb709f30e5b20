#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/values/fields.h"
#include "cohort/values/mirrored.h"
#include "cohort/values/per_replica.h"

/// Nests: tuples, pairs, arrays, vectors, maps, optionals and plain structs of leaves, to any
/// depth. A leaf is everything else: tensors, numbers, strings, variables, distributed values.
///
/// There are two traversals, and everything else is made of them:
///
///     zip(f, items)      walks n nests of one type side by side; f turns the n leaves at each
///                        place into one result, which may have another type
///     visit(f, nest)     calls f on each leaf in order; leaves may be changed in place
///
/// A struct can't be rebuilt with fields of other types, so for `zip` it is a leaf.
namespace cohort::nest {
namespace detail {

template <class T, template <class...> class Template>
inline constexpr bool kIs = false;
template <class... Args, template <class...> class Template>
inline constexpr bool kIs<Template<Args...>, Template> = true;

template <class T>
inline constexpr bool kIsArray = false;
template <class T, std::size_t N>
inline constexpr bool kIsArray<std::array<T, N>> = true;

}  // namespace detail

template <class T>
concept Tuple = detail::kIs<T, std::tuple> || detail::kIs<T, std::pair>;
template <class T>
concept Array = detail::kIsArray<T>;
/// Not vector<bool>, which has no bools in it: that is a leaf.
template <class T>
concept List = detail::kIs<T, std::vector> && !std::is_same_v<T, std::vector<bool>>;
template <class T>
concept Map = detail::kIs<T, std::map> || detail::kIs<T, std::unordered_map>;
template <class T>
concept Optional = detail::kIs<T, std::optional>;

/// A value with one component for each replica: PerReplica or Mirrored.
template <class T>
concept Distributed = detail::kIs<T, PerReplica> || detail::kIs<T, Mirrored>;

/// A type whose objects are handles to one thing that all replicas share, such as a variable: when
/// every replica returns the same one, the merged result is that one. Specialised by such types.
template <class T>
inline constexpr bool kSharedHandle = false;

template <class T>
concept Leaf = !Tuple<T> && !Array<T> && !List<T> && !Map<T> && !Optional<T> && !Struct<T>;

template <class F, class T>
auto zip(F&& f, std::span<const T* const> items);

namespace detail {

template <class T, class Get>
auto each(std::span<const T* const> items, Get&& get) {
  using Part = std::remove_reference_t<decltype(get(*items[0]))>;
  std::vector<Part*> parts;
  parts.reserve(items.size());
  for (const T* item : items) parts.push_back(&get(*item));
  return parts;
}

template <class F, class T, class Get>
auto zip_part(F& f, std::span<const T* const> items, Get&& get) {
  const auto parts = each(items, get);
  return zip(f, std::span(std::as_const(parts)));
}

[[noreturn]] void throw_mismatch(const char* what, std::size_t replica, std::size_t expected,
                                 std::size_t got);
[[noreturn]] void throw_keys_differ(std::size_t replica);
[[noreturn]] void throw_presence_differs(std::size_t replica);
[[noreturn]] void throw_handles_differ(std::size_t replica);

template <std::size_t I>
inline constexpr auto kPart = [](const auto& t) -> auto& { return std::get<I>(t); };

// The types of results are spelled out, since std::tuple{a_tuple} would only copy that.

template <class F, class T>
auto zip_tuple(F& f, std::span<const T* const> items) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    // Braces fix the order of evaluation: leaves are met from left to right.
    if constexpr (kIs<T, std::pair>) {
      auto first = zip_part(f, items, [](const T& t) -> auto& { return t.first; });
      auto second = zip_part(f, items, [](const T& t) -> auto& { return t.second; });
      return std::pair(std::move(first), std::move(second));
    } else {
      using Result = std::tuple<decltype(zip_part(f, items, kPart<I>))...>;
      return Result{zip_part(f, items, kPart<I>)...};
    }
  }(std::make_index_sequence<std::tuple_size_v<T>>());
}

template <class F, class T>
auto zip_array(F& f, std::span<const T* const> items) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    using Result = std::array<decltype(zip_part(f, items, kPart<0>)), sizeof...(I)>;
    return Result{zip_part(f, items, kPart<I>)...};
  }(std::make_index_sequence<std::tuple_size_v<T>>());
}

template <class F, class T>
auto zip_list(F& f, std::span<const T* const> items) {
  const std::size_t length = items[0]->size();
  for (std::size_t r = 1; r < items.size(); ++r) {
    if (items[r]->size() != length) throw_mismatch("length", r, length, items[r]->size());
  }
  using Part = decltype(zip_part(f, items, [](const T& t) -> auto& { return t[0]; }));
  std::vector<Part> result;
  result.reserve(length);
  for (std::size_t i = 0; i < length; ++i) {
    result.push_back(zip_part(f, items, [i](const T& t) -> auto& { return t[i]; }));
  }
  return result;
}

template <class M, class Value>
struct WithMapped;
template <class K, class V, class C, class A, class Value>
struct WithMapped<std::map<K, V, C, A>, Value> {
  using type = std::map<K, Value, C>;
};
template <class K, class V, class H, class E, class A, class Value>
struct WithMapped<std::unordered_map<K, V, H, E, A>, Value> {
  using type = std::unordered_map<K, Value, H, E>;
};

template <class F, class T>
auto zip_map(F& f, std::span<const T* const> items) {
  for (std::size_t r = 1; r < items.size(); ++r) {
    if (items[r]->size() != items[0]->size()) throw_keys_differ(r);
    for (const auto& [key, value] : *items[0]) {
      if (!items[r]->contains(key)) throw_keys_differ(r);
    }
  }
  using Key = typename T::key_type;
  auto at = [](const Key& key) { return [&key](const T& t) -> auto& { return t.at(key); }; };
  using Part = decltype(zip_part(f, items, at(std::declval<const Key&>())));
  typename WithMapped<T, Part>::type result;
  for (const auto& [key, value] : *items[0]) result.emplace(key, zip_part(f, items, at(key)));
  return result;
}

template <class F, class T>
auto zip_optional(F& f, std::span<const T* const> items) {
  using Part = decltype(zip_part(f, items, [](const T& t) -> auto& { return *t; }));
  for (std::size_t r = 1; r < items.size(); ++r) {
    if (items[r]->has_value() != items[0]->has_value()) throw_presence_differs(r);
  }
  if (!items[0]->has_value()) return std::optional<Part>();
  return std::optional<Part>(zip_part(f, items, [](const T& t) -> auto& { return *t; }));
}

/// A function that wants optionals as leaves (because they may be empty on some of the items
/// only) says so with `using optional_is_leaf = void;`.
template <class F>
concept OptionalIsLeaf = requires { typename std::remove_cvref_t<F>::optional_is_leaf; };

}  // namespace detail

/// f(std::span<const Leaf* const>) at each place of nests that have the same structure; the nest
/// of the results. Throws ValueError where lengths, keys or presence differ, naming the item that
/// differs from the first.
template <class F, class T>
auto zip(F&& f, std::span<const T* const> items) {
  if constexpr (Tuple<T>) {
    return detail::zip_tuple(f, items);
  } else if constexpr (Array<T>) {
    return detail::zip_array(f, items);
  } else if constexpr (List<T>) {
    return detail::zip_list(f, items);
  } else if constexpr (Map<T>) {
    return detail::zip_map(f, items);
  } else if constexpr (Optional<T> && !detail::OptionalIsLeaf<F>) {
    return detail::zip_optional(f, items);
  } else {
    return f(items);
  }
}

/// The nest of f(leaf).
template <class F, class T>
auto map(F&& f, const T& value) {
  const T* const item[] = {&value};
  return zip([&f](auto leaves) { return f(*leaves[0]); }, std::span<const T* const>(item));
}

namespace detail {

/// A function that wants to see the structure too has `open(bracket)`, `close(bracket)` and
/// `key(name)`.
template <class F>
concept SeesStructure = requires(F f) { f.open("("); };

template <class F, class Inside>
void bracketed(F& f, const char* left, const char* right, Inside&& inside) {
  if constexpr (SeesStructure<F>) f.open(left);
  inside();
  if constexpr (SeesStructure<F>) f.close(right);
}

}  // namespace detail

/// Calls f on a reference to each leaf, in order; also inside structs.
template <class F, class T>
void visit(F&& f, T& value) {
  using Plain = std::remove_const_t<T>;
  const auto each = [&f](auto&... parts) { (visit(f, parts), ...); };
  if constexpr (Tuple<Plain>) {
    detail::bracketed(f, "(", ")", [&] { std::apply(each, value); });
  } else if constexpr (Struct<Plain>) {
    detail::bracketed(f, "{", "}", [&] { std::apply(each, fields(value)); });
  } else if constexpr (Array<Plain> || List<Plain>) {
    detail::bracketed(f, "[", "]", [&] {
      for (auto& part : value) visit(f, part);
    });
  } else if constexpr (Map<Plain>) {
    detail::bracketed(f, "{", "}", [&] {
      for (auto& [name, part] : value) {
        if constexpr (detail::SeesStructure<std::remove_reference_t<F>>) f.key(name);
        visit(f, part);
      }
    });
  } else if constexpr (Optional<Plain>) {
    if (value) visit(f, *value);
  } else {
    f(value);
  }
}

namespace detail {

struct MergeLeaf {
  using optional_is_leaf = void;
  const DeviceList& devices;

  template <class T>
  auto operator()(std::span<const T* const> leaves) const {
    if constexpr (kSharedHandle<T>) {
      for (std::size_t r = 1; r < leaves.size(); ++r) {
        if (!(*leaves[r] == *leaves[0])) throw_handles_differ(r);
      }
      return *leaves[0];
    } else {
      return per_replica(leaves);
    }
  }

  template <class T>
  PerReplica<T> per_replica(std::span<const T* const> leaves) const {
    std::vector<T> values;
    values.reserve(leaves.size());
    for (const T* leaf : leaves) values.push_back(*leaf);
    return PerReplica<T>(std::move(values), devices);
  }
};

}  // namespace detail

/// The results of all replicas as one nest with PerReplica leaves.
template <class T>
auto merge(const std::vector<T>& results, const DeviceList& devices = nullptr) {
  if constexpr (std::is_same_v<T, bool>) {  // a vector<bool> has no bools to point to
    return PerReplica<bool>(results, devices);
  } else {
    std::vector<const T*> items;
    items.reserve(results.size());
    for (const T& result : results) items.push_back(&result);
    return zip(detail::MergeLeaf{devices}, std::span<const T* const>(items));
  }
}

/// Replica i's view of a value: distributed leaves become their component i, others stay.
/// Throws ValueError when a PerReplica does not have exactly `replicas` components; `where` is the
/// call that it names.
template <class T>
auto select(const T& value, std::size_t i, std::size_t replicas,
            const char* where = "strategy.run") {
  return map(
      [=]<class L>(const L& leaf) {
        if constexpr (cohort::nest::detail::kIs<L, PerReplica>) {
          if (leaf.size() != replicas) {
            throw ValueError(where, cat("a PerReplica has ", leaf.size(),
                                        " components: expected one for each of the ", replicas,
                                        " local replicas"));
          }
          return leaf.component(i);
        } else if constexpr (Distributed<L>) {
          return leaf.component(
              leaf.size() == 1 ? 0 : cohort::detail::checked_component(i, leaf.size(), where));
        } else {
          return leaf;
        }
      },
      value);
}

}  // namespace cohort::nest
