#include <cohort/cohort.h>

#include <iostream>

int main() {
  try {
    throw cohort::ValueError("consumer", "the installed library links and throws");
  } catch (const cohort::Error& error) {
    std::cout << error.kind() << ": " << error.what() << '\n';
  }
}
