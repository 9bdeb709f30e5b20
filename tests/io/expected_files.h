#pragma once

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

namespace cohort {

/// The path of a file that TensorFlow or NumPy wrote: see tools/make_test_data.py.
inline std::string input_path(const std::string& name) {
  return std::string(COHORT_TEST_DATA) + "/input/" + name;
}

inline std::string input_bytes(const std::string& name) {
  std::ifstream file(input_path(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What is in these files, by their names.
inline const nlohmann::json& expected_content() {
  static const auto content = nlohmann::json::parse(std::ifstream(input_path("expected.json")));
  return content;
}

inline std::string to_hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[c & 15];
  }
  return hex;
}

}  // namespace cohort
