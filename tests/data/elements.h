#pragma once

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "cohort/data/dataset.h"
#include "tests/base/failing.h"

/// What the tests of pipelines have in common: elements as text, so that any type can be compared.
namespace cohort::data {

inline std::string text_of(const at::Tensor& tensor) {
  std::string text = cat(tensor.sizes(), '{');
  const at::Tensor flat = tensor.reshape({-1}).to(at::kDouble);
  for (std::int64_t i = 0; i < flat.numel(); ++i) text += cat(i ? " " : "", flat[i].item<double>());
  return text + '}';
}
inline std::string text_of(const Strings& strings) {
  std::string text = cat(strings.sizes(), '{');
  for (const std::string_view each : strings) text += cat(text.back() == '{' ? "" : " ", each);
  return text + '}';
}
inline std::string text_of(const std::string& string) { return string; }
template <class T>
  requires std::is_arithmetic_v<T>
std::string text_of(T number) {
  return cat(number);
}

template <class T>
std::string element_text(const T& element) {
  std::string text;
  nest::visit([&](const auto& leaf) { text += (text.empty() ? "" : " ") + text_of(leaf); },
              element);
  return text;
}

/// What an iterator has left.
template <class T>
std::vector<std::string> rest_of(DatasetIterator<T>& iterator) {
  std::vector<std::string> all;
  while (const auto element = iterator.next()) all.push_back(element_text(*element));
  return all;
}

/// A pass over the dataset.
template <class T>
std::vector<std::string> elements_of(const Dataset<T>& dataset) {
  auto iterator = dataset.iterator();
  return rest_of(iterator);
}

using Texts = std::vector<std::string>;

/// Stops behind every element, and compares what comes then with what came without a stop.
template <class T>
void expect_resumes(const Dataset<T>& dataset, const char* name) {
  SCOPED_TRACE(name);
  auto whole = dataset.iterator();
  const Position start = whole.position();
  const Texts all = rest_of(whole);
  ASSERT_GT(all.size(), 2u);
  for (std::size_t stop = 0; stop <= all.size(); ++stop) {
    auto first = dataset.iterator();
    first.restore(start);
    for (std::size_t i = 0; i < stop; ++i) first.next();
    const std::string saved = first.position().bytes();
    EXPECT_LT(saved.size(), 4096u);
    auto second = dataset.iterator();
    second.restore(Position::from_bytes(saved));
    EXPECT_EQ(rest_of(second), Texts(all.begin() + stop, all.end())) << "stopped at " << stop;
  }
}
#define EXPECT_RESUMES(dataset) expect_resumes(dataset, #dataset)

}  // namespace cohort::data
