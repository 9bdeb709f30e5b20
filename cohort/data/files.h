#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/data/node.h"
#include "cohort/io/csv.h"
#include "cohort/io/fixed_length.h"
#include "cohort/io/text.h"
#include "cohort/io/tfrecord.h"

/// Stages that read files: the input gives their names, one after the other.
namespace cohort::data {

using io::Compression;

/// How one kind of file is read. `Element` is what a file consists of. Each reader gives the next
/// element, and two numbers for its place in the file, which `seek` takes up again.
/// `goes_on_after_error` is false where an error leaves nothing of the file to be read.
struct TFRecordFormat {
  using Element = std::string;
  static constexpr const char* kName = "tf_records";
  Compression compression = Compression::AUTO;

  struct Reader {
    Reader(const std::string& path, const TFRecordFormat& format)
        : records(path, format.compression) {}
    bool next(std::string& element);
    /// Straight from the blocks that the file is read into.
    std::int64_t next_batch(std::int64_t count, Strings& batch);
    std::pair<std::int64_t, std::int64_t> place() const {
      return {records.offset(), records.record()};
    }
    void seek(std::int64_t offset, std::int64_t record) { records.seek(offset, record); }
    bool goes_on_after_error() const { return records.can_go_on(); }
    io::TFRecordReader records;
  };
};

struct TextLineFormat {
  using Element = std::string;
  static constexpr const char* kName = "text_lines";
  Compression compression = Compression::AUTO;

  struct Reader {
    Reader(const std::string& path, const TextLineFormat& format)
        : lines(path, format.compression) {}
    bool next(std::string& element);
    std::pair<std::int64_t, std::int64_t> place() const { return {lines.offset(), lines.line()}; }
    void seek(std::int64_t offset, std::int64_t line) { lines.seek(offset, line); }
    bool goes_on_after_error() const { return false; }
    io::LineReader lines;
  };
};

struct FixedLengthFormat {
  using Element = std::string;
  static constexpr const char* kName = "fixed_length_records";
  io::FixedLengthOptions options;

  struct Reader {
    Reader(const std::string& path, const FixedLengthFormat& format)
        : records(path, format.options) {}
    bool next(std::string& element);
    std::pair<std::int64_t, std::int64_t> place() const { return {records.record(), 0}; }
    void seek(std::int64_t record, std::int64_t) { records.seek(record); }
    bool goes_on_after_error() const { return false; }
    io::FixedLengthReader records;
  };
};

struct CsvFormat {
  using Element = std::vector<std::string>;
  static constexpr const char* kName = "csv";
  io::CsvOptions options;
  bool header = false;  ///< The first row of each file is names, and no element.

  struct Reader {
    Reader(const std::string& path, const CsvFormat& format)
        : rows(path, format.options), has_header(format.header), is_at_header(format.header) {}
    bool next(std::vector<std::string>& element);
    std::pair<std::int64_t, std::int64_t> place() const { return {rows.offset(), rows.line()}; }
    void seek(std::int64_t offset, std::int64_t line);
    bool goes_on_after_error() const { return rows.can_go_on(); }
    io::CsvReader rows;
    bool has_header, is_at_header;
  };
};

namespace detail {
void warn_of_file_left(const char* format, const std::string& path);
}

/// The elements of each file, file after file.
template <class Format>
class ReadFiles : public UnaryNode<typename Format::Element, std::string> {
 public:
  using T = typename Format::Element;
  using Reader = typename Format::Reader;

  ReadFiles(TypedPtr<std::string> names, Format format)
      : UnaryNode<T, std::string>(std::move(names)), format_(std::move(format)) {}

  std::string name() const override { return Format::kName; }
  Node::Role role() const override { return Node::Role::READER; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<ReadFiles>(typed<std::string>(inputs[0]), format_);
  }
  std::int64_t cardinality() const override { return kUnknownCardinality; }
  ElementSpec spec() const override {
    if constexpr (std::is_same_v<T, std::string>) return spec_of(std::string());
    return {};
  }
  IteratorPtr<T> iterate(const Iteration& iteration) const override {
    return std::make_unique<Running>(this->input_->iterate(iteration), format_);
  }

 private:
  class Running : public Iterator<T> {
   public:
    Running(IteratorPtr<std::string> names, Format format)
        : names_(std::move(names)), format_(std::move(format)) {}

    bool next(T& element) override {
      while (open()) {
        if (reading([&] { return reader_->next(element); })) return true;
        reader_.reset();
      }
      return false;
    }
    Passed gather(std::int64_t count, Gathered<T>& batch) override {
      if constexpr (requires(Part& part) { reader_->next_batch(count, part); }) {
        return gather_parts(count, batch);
      } else {
        return Iterator<T>::gather(count, batch);
      }
    }
    void save(PositionWriter& position) const override {
      position.put(std::int64_t{reader_.has_value()});
      const auto [a, b] = reader_ ? reader_->place() : std::pair<std::int64_t, std::int64_t>();
      position.put(a);
      position.put(b);
      position.put(reader_ ? before_.get() : names_->position());
    }
    void restore(PositionReader& position) override {
      const bool is_open = position.get() != 0;
      const std::int64_t a = position.get(), b = position.get();
      names_->go_to(position.get_position());
      if (is_open && open()) reader_->seek(a, b);
    }

   private:
    using Part = typename Gathered<T>::Batch;

    /// Makes sure that a file is open; false if there are no more.
    bool open() {
      if (reader_) return true;
      before_ = keeper_.of(*names_);
      if (!names_->next(path_)) return false;
      reader_.emplace(path_, format_);
      return true;
    }
    /// A file that can't be read on is left.
    template <class Read>
    auto reading(Read&& read) {
      try {
        return read();
      } catch (...) {
        if (!reader_->goes_on_after_error()) leave_file();
        throw;
      }
    }
    void leave_file() {
      detail::warn_of_file_left(Format::kName, path_);
      reader_.reset();
    }
    Passed gather_parts(std::int64_t count, Gathered<T>& batch) {
      Passed passed;
      try {
        while (passed.count < count && open()) gather_part(count, batch, passed);
      } catch (...) {
        ++passed.count;
        passed.error = std::current_exception();
      }
      return passed;
    }
    void gather_part(std::int64_t count, Gathered<T>& batch, Passed& passed) {
      Part part;
      const std::int64_t left = count - passed.count;
      const std::int64_t some = reading([&] { return reader_->next_batch(left, part); });
      if (some == 0) return reader_.reset();
      passed.count += some;
      batch.add(std::move(part), some);
    }

    const IteratorPtr<std::string> names_;
    const Format format_;
    std::string path_;  // of the open file
    std::optional<Reader> reader_;
    PositionKeeper keeper_;
    KeptPosition before_;  // its name
  };

  const Format format_;
};

struct ListFilesOptions {
  /// Another order in each pass, by seed; false: sorted by name.
  bool shuffle = false;
  std::optional<std::uint64_t> seed = {};
};

/// The files that a pattern such as `data/train-*.tfrecord` means, sorted. Throws NotFound where
/// there is none.
std::vector<std::string> match_files(const std::vector<std::string>& patterns);

}  // namespace cohort::data
