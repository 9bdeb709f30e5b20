// Makes the files that programs/input.cpp reads, in the folder that is named.
#include <cohort/cohort.h>

#include <iostream>

void write_records(const std::string& path, std::int64_t first_label) {
  cohort::io::TFRecordWriter writer(path);
  for (std::int64_t label = first_label; label < first_label + 100; ++label) {
    const std::string image(784, static_cast<char>(label));
    writer.write(
        cohort::io::ExampleBuilder().bytes("image", image).int64("label", label).serialize());
  }
  writer.close();
}

int main(int, char** argv) {
  try {
    throw cohort::ValueError("consumer", "the installed library links and throws");
  } catch (const cohort::Error& error) {
    std::cout << error.kind() << ": " << error.what() << '\n';
  }
  const std::string folder = argv[1];
  for (const int file : {0, 1}) {
    write_records(cohort::cat(folder, "/train-", file, ".tfrecord"), 100 * file);
  }
  cohort::io::write_npy(folder + "/features.npy", torch::rand({100, 8}));
}
