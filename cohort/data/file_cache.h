#pragma once

#include <c10/util/Type.h>

#include "cohort/data/element_bytes.h"
#include "cohort/data/node.h"
#include "cohort/io/tfrecord.h"

namespace cohort::data {
namespace detail {

/// What the first record of a cache file says: the type of the elements and the stages that made
/// them.
std::string cache_header(const std::string& type, const Node& input);

/// Opens a cache file behind its header; null where there is none. Throws InvalidArgument if the
/// header is another.
std::unique_ptr<io::TFRecordReader> open_cache(const std::string& path, const std::string& header);

/// A file that gets its name when it is complete. Dropped before, it is deleted.
class CacheWriter {
 public:
  CacheWriter(std::string path, const std::string& header);
  ~CacheWriter();
  CacheWriter(const CacheWriter&) = delete;
  CacheWriter& operator=(const CacheWriter&) = delete;

  void write(std::string_view element) { writer_.write(element); }
  void finish();

 private:
  const std::string path_, unfinished_path_;
  io::TFRecordWriter writer_;
};

/// The file for the same cache on another input: beside the first.
std::string cache_path_for(const std::string& path, const std::string& header);

void warn_of_cache_left(const std::string& path);

}  // namespace detail

/// Keeps the elements of the first full pass without an error in a file, and gives them in all
/// later ones, of later processes too. The file is the user's: where it is there, the input is not
/// read, even if it changed.
template <class T>
class FileCache : public UnaryNode<T> {
 public:
  FileCache(TypedPtr<T> input, std::string path)
      : UnaryNode<T>(input),
        path_(std::move(path)),
        header_(detail::cache_header(c10::demangle_type<T>(), *input)) {}

  std::string name() const override { return cat("cache(\"", path_, "\")"); }
  Node::Role role() const override { return Node::Role::KEEPS; }
  /// Other inputs (a worker's own files, say) have other elements, which need a file of their own.
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    auto input = typed<T>(inputs[0]);
    const std::string header = detail::cache_header(c10::demangle_type<T>(), *input);
    std::string path = header == header_ ? path_ : detail::cache_path_for(path_, header);
    return std::make_shared<FileCache>(std::move(input), std::move(path));
  }
  ElementSpec spec() const override { return this->input_->spec(); }
  IteratorPtr<T> iterate(const Iteration& iteration) const override {
    if (auto reader = detail::open_cache(path_, header_)) {
      return std::make_unique<Reading>(std::move(reader));
    }
    return std::make_unique<Writing>(this->input_->iterate(iteration),
                                     std::make_unique<detail::CacheWriter>(path_, header_));
  }

 private:
  /// A position is the number of elements given, where in the file the next one starts, and how
  /// many of the elements were errors. One that was saved by a pass that wrote has no such place,
  /// nor can one that writes go there.
  static constexpr std::int64_t kNoOffset = -1;

  class Reading : public Iterator<T> {
   public:
    explicit Reading(std::unique_ptr<io::TFRecordReader> reader) : reader_(std::move(reader)) {}
    bool next(T& element) override {
      std::string_view record;
      if (!next_record(record)) return false;
      ElementReader bytes(record);
      transfer(bytes, element);
      bytes.expect_end();
      return true;
    }
    void save(PositionWriter& position) const override {
      position.put(reader_->record() - 1);  // without the header
      position.put(reader_->offset());
      position.put(std::int64_t{0});
    }
    void restore(PositionReader& position) override {
      const std::int64_t given = position.get();
      const std::int64_t offset = position.get();
      position.get();  // errors, which a pass that made a whole file did not meet
      if (offset != kNoOffset) return reader_->seek(offset, given + 1);
      std::string_view record;
      for (std::int64_t i = 0; i < given; ++i) reader_->next(record);
    }

   private:
    bool next_record(std::string_view& record) {
      if (!reader_->can_go_on()) return false;
      try {
        return reader_->next(record);
      } catch (...) {
        if (!reader_->can_go_on()) detail::warn_of_cache_left(reader_->path());
        throw;
      }
    }

    const std::unique_ptr<io::TFRecordReader> reader_;
  };

  class Writing : public Iterator<T> {
   public:
    Writing(IteratorPtr<T> input, std::unique_ptr<detail::CacheWriter> writer)
        : input_(std::move(input)), writer_(std::move(writer)) {}
    bool next(T& element) override {
      try {
        const bool more = next_counted(*input_, element, given_);
        if (writer_) more ? keep(element) : finish();
        return more;
      } catch (...) {
        ++errors_;
        writer_ = nullptr;  // an element is missing
        throw;
      }
    }
    void save(PositionWriter& position) const override {
      position.put(given_);
      position.put(kNoOffset);
      position.put(errors_);
    }
    void restore(PositionReader& position) override {
      const std::int64_t given = position.get();
      position.get();
      this->retrace(given, position.get());
    }

   private:
    void keep(const T& element) {
      transfer(bytes_, element);
      writer_->write(bytes_.take());
    }
    void finish() {
      writer_->finish();
      writer_ = nullptr;
    }

    const IteratorPtr<T> input_;
    std::unique_ptr<detail::CacheWriter> writer_;  // null: finished, or nothing is kept
    ElementWriter bytes_;
    std::int64_t given_ = 0;   // elements, with those that could not be made or kept
    std::int64_t errors_ = 0;  // of these
  };

  const std::string path_;
  const std::string header_;
};

}  // namespace cohort::data
