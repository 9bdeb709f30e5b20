#include "cohort/data/readers.h"

#include <ATen/ATen.h>

#include "cohort/io/idx.h"
#include "cohort/io/npy.h"

namespace cohort::data {
namespace {

template <class Format>
Dataset<typename Format::Element> read_files(const FileNames& files, const Format& format,
                                             int parallel_reads = 1) {
  using T = typename Format::Element;
  if (parallel_reads < 1) {
    throw ValueError(Format::kName, cat("parallel_reads must be positive, got ", parallel_reads));
  }
  const auto& names = files.dataset();
  if (parallel_reads == 1) {
    return Dataset<T>(std::make_shared<ReadFiles<Format>>(names.node(), format), names.options());
  }
  return names.interleave(
      [format](const std::string& path) {
        return Dataset<T>(
            std::make_shared<ReadFiles<Format>>(FileNames(path).dataset().node(), format));
      },
      {.cycle_length = parallel_reads, .parallel = true, .reads_files = true});
}

class NpyDatasetRows : public Rows<at::Tensor> {
 public:
  explicit NpyDatasetRows(const std::string& path) : rows_(path) {}
  std::int64_t size() const override { return rows_.size(); }
  at::Tensor at(std::int64_t row) const override { return rows_.read(row, row + 1).select(0, 0); }
  /// Rows that follow each other are read at once.
  at::Tensor gather(std::span<const std::int64_t> rows) const override {
    std::vector<at::Tensor> runs;
    for (std::size_t i = 0; i < rows.size();) {
      std::size_t end = i + 1;
      while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
      runs.push_back(rows_.read(rows[i], rows[end - 1] + 1));
      i = end;
    }
    if (runs.empty()) return rows_.read(0, 0);
    return runs.size() == 1 ? runs[0] : at::cat(runs);
  }
  ElementSpec spec() const override {
    return spec_of(at::empty(rows_.sizes(), at::TensorOptions(rows_.dtype()).device(at::kMeta)))
        .unbatched();
  }

 private:
  const io::NpyRows rows_;
};

/// Images are kept as bytes, and become numbers when they are asked for.
class FashionRows : public Rows<Example> {
 public:
  FashionRows(at::Tensor images, at::Tensor labels)
      : images_(images.unsqueeze(1)), labels_(labels.to(at::kLong)) {}
  std::int64_t size() const override { return labels_.size(0); }
  Example at(std::int64_t row) const override {
    return {images_.select(0, row).to(at::kFloat).div_(255), labels_.select(0, row)};
  }
  Example gather(std::span<const std::int64_t> rows) const override {
    return {detail::gather_rows(images_, rows).to(at::kFloat).div_(255),
            detail::gather_rows(labels_, rows)};
  }
  ElementSpec spec() const override { return size() ? spec_of(at(0)) : ElementSpec(); }

 private:
  const at::Tensor images_, labels_;
};

template <class T>
Dataset<T> rows_dataset(const char* name, std::shared_ptr<const Rows<T>> rows) {
  return Dataset<T>(std::make_shared<RowsNode<T>>(name, std::move(rows)));
}

}  // namespace

Dataset<std::string> list_files(const std::vector<std::string>& patterns,
                                ListFilesOptions options) {
  auto files = match_files(patterns);
  const auto count = static_cast<std::int64_t>(files.size());
  const auto names = from_tensor_slices(std::move(files));
  return options.shuffle ? names.shuffle(count, {.seed = options.seed}) : names;
}

Dataset<std::string> list_files(const std::string& pattern, ListFilesOptions options) {
  return list_files(std::vector{pattern}, options);
}

Dataset<std::string> tf_records(const FileNames& files, TFRecordOptions options) {
  return read_files(files, TFRecordFormat{options.compression}, options.parallel_reads);
}

Dataset<std::string> text_lines(const FileNames& files, TextLineOptions options) {
  return read_files(files, TextLineFormat{options.compression}, options.parallel_reads);
}

Dataset<std::string> fixed_length_records(const FileNames& files, io::FixedLengthOptions options) {
  return read_files(files, FixedLengthFormat{options});
}

Dataset<std::vector<std::string>> csv(const FileNames& files, CsvDatasetOptions options) {
  return read_files(files,
                    CsvFormat{{.compression = options.compression, .delimiter = options.delimiter},
                              options.header});
}

Dataset<at::Tensor> npy(const std::string& path) {
  return rows_dataset<at::Tensor>("npy", std::make_shared<NpyDatasetRows>(path));
}

Dataset<Example> fashion_mnist(const std::string& set) {
  if (set != "train" && set != "test") {
    throw ValueError("data::fashion_mnist",
                     cat("unknown set: expected \"train\" or \"test\", got \"", set, '"'));
  }
  const std::string prefix =
      "/usr/share/datasets/fashion-mnist/" + std::string(set == "train" ? "train" : "t10k");
  return rows_dataset<Example>(
      "fashion_mnist",
      std::make_shared<FashionRows>(io::read_idx(prefix + "-images-idx3-ubyte.gz"),
                                    io::read_idx(prefix + "-labels-idx1-ubyte.gz")));
}

}  // namespace cohort::data
