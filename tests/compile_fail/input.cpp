// Datasets of a wrong type are refused in one line that says what to give.

#include <ATen/ATen.h>

#include "cohort/compat/input.h"

namespace data = cohort::data;
using cohort::InputContext;
using cohort::Strategy;

struct Unbatchable {
  int number = 0;
  std::mutex* lock = nullptr;
};

void right(const Strategy& strategy) {
  strategy.distribute_dataset(data::range(8).batch(4));
  strategy.distribute_datasets_from_function([](const InputContext&) { return data::range(8); });
  cohort::compat::make_input_fn_iterator(strategy,
                                         [](const InputContext&) { return data::range(8); });
}

// case: the function must return a dataset
// error: must return a data::Dataset
#if CASE == 1
void f(const Strategy& strategy) {
  strategy.distribute_datasets_from_function([](const InputContext&) { return 1; });
}
#endif

// case: the function of TensorFlow 1 must return a dataset or a function
// error: fn must return a data::Dataset, or a function that returns elements
#if CASE == 2
void f(const Strategy& strategy) {
  cohort::compat::make_input_fn_iterator(strategy, [](const InputContext&) {
    return std::array{1, 2};
  });
}
#endif

// case: elements that have no batch need a collate function
// error: batch(n, collate)
#if CASE == 3
void f(const data::Dataset<Unbatchable>& dataset) { dataset.batch(4); }
#endif

// case: the function of map must take an element
// error: fn can't be called with the dataset's elements
#if CASE == 4
void f() {
  data::range(4).map([](const std::string& text) { return text; });
}
#endif
