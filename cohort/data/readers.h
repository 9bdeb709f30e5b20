#pragma once

#include <string>
#include <vector>

#include "cohort/data/dataset.h"
#include "cohort/data/files.h"

/// Datasets of files.
namespace cohort::data {

/// The names of the files that match a pattern such as `data/train-*.tfrecord`, or one of several.
/// Throws NotFound where a pattern has no match.
Dataset<std::string> list_files(const std::string& pattern, ListFilesOptions options = {});
Dataset<std::string> list_files(const std::vector<std::string>& patterns,
                                ListFilesOptions options = {});

/// The names of files: one, several, or a dataset of them.
class FileNames {
 public:
  FileNames(const char* path) : FileNames(std::string(path)) {}  // NOLINT(google-explicit-*)
  FileNames(std::string path)                                    // NOLINT
      : FileNames(std::vector<std::string>{std::move(path)}) {}
  FileNames(std::vector<std::string> paths)  // NOLINT
      : names_(from_tensor_slices(std::move(paths))) {}
  FileNames(Dataset<std::string> names) : names_(std::move(names)) {}  // NOLINT

  const Dataset<std::string>& dataset() const { return names_; }

 private:
  Dataset<std::string> names_;
};

struct TFRecordOptions {
  Compression compression = Compression::AUTO;
  /// How many files are read at the same time, their records taken in turn.
  int parallel_reads = 1;
};
/// The records of TFRecord files; their checksums are checked. Behind a record whose data is
/// damaged the next one is read; behind one whose length is, the next file, with a warning.
Dataset<std::string> tf_records(const FileNames& files, TFRecordOptions options = {});

struct TextLineOptions {
  Compression compression = Compression::AUTO;
  int parallel_reads = 1;
};
/// The lines of text files, without their ends.
Dataset<std::string> text_lines(const FileNames& files, TextLineOptions options = {});

/// Records of one length.
Dataset<std::string> fixed_length_records(const FileNames& files, io::FixedLengthOptions options);

struct CsvDatasetOptions {
  char delimiter = ',';
  /// The first row of each file is names, and no element.
  bool header = false;
  Compression compression = Compression::AUTO;
};
/// The rows of CSV files, a string for each field.
Dataset<std::vector<std::string>> csv(const FileNames& files, CsvDatasetOptions options = {});

/// The rows of an array that NumPy wrote. They are read when they are asked for.
Dataset<at::Tensor> npy(const std::string& path);

/// An image, or a batch of them, and its label.
struct Example {
  at::Tensor images;
  at::Tensor labels;
};
/// Debian's Fashion-MNIST (package dataset-fashion-mnist), "train" or "test": images float32
/// [1, 28, 28] from 0 to 1, labels int64.
Dataset<Example> fashion_mnist(const std::string& set);

}  // namespace cohort::data
