#pragma once

#include <cstddef>
#include <memory>

namespace cohort::io {

/// Blocks of one size that are used again when nobody holds them any more: the pages of a fresh
/// block cost more than to read a file into it. Any thread may take and drop blocks; a block may
/// outlive the pool.
///
///     std::shared_ptr<char[]> block = BlockPool::of_process().take();
///     // given back when its last holder drops it
class BlockPool {
 public:
  /// The pool of all readers: one that starts on a file goes on with the blocks of one that ended.
  static BlockPool& of_process();

  static constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

  /// Where blocks start, and where reads into them should. A read to a few bytes after the start of
  /// a page, as malloc gives, takes twice as long: x86 takes the copy's loads for its own stores.
  static constexpr std::size_t kAlignment = 4096;

  /// A block of kBlockBytes, with any content.
  std::shared_ptr<char[]> take();

  /// A block of another size, which is not used again.
  static std::shared_ptr<char[]> allocate(std::size_t bytes);

 private:
  struct FreeList;
  static std::shared_ptr<FreeList> make_free_list();

  std::shared_ptr<FreeList> free_ = make_free_list();
};

}  // namespace cohort::io
