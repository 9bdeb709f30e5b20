#include "cohort/io/block_pool.h"

#include <new>
#include <utility>
#include <vector>

#include "cohort/base/mutex.h"

namespace cohort::io {

struct BlockPool::FreeList {
  struct AlignedDelete {
    void operator()(char* block) const { ::operator delete[](block, std::align_val_t{kAlignment}); }
  };
  using Block = std::unique_ptr<char[], AlignedDelete>;

  static Block allocate(std::size_t bytes) {
    return Block(new (std::align_val_t{kAlignment}) char[bytes]);
  }

  static constexpr std::size_t kMost = 8;  // what a reader ahead of a slow user leaves behind

  Mutex mutex;
  std::vector<Block> blocks COHORT_GUARDED_BY(mutex);

  Block pop() {
    MutexLock lock(mutex);
    if (blocks.empty()) return nullptr;
    Block block = std::move(blocks.back());
    blocks.pop_back();
    return block;
  }

  void push(Block block) {
    MutexLock lock(mutex);
    if (blocks.size() < kMost) blocks.push_back(std::move(block));
  }
};

BlockPool& BlockPool::of_process() {
  static BlockPool pool;
  return pool;
}

std::shared_ptr<BlockPool::FreeList> BlockPool::make_free_list() {
  return std::make_shared<FreeList>();
}

std::shared_ptr<char[]> BlockPool::take() {
  FreeList::Block block = free_->pop();
  if (!block) block = FreeList::allocate(kBlockBytes);
  const auto give_back = [list = std::weak_ptr(free_)](char* bytes) {
    FreeList::Block returned(bytes);
    if (const auto alive = list.lock()) alive->push(std::move(returned));
  };
  return {block.release(), give_back};
}

std::shared_ptr<char[]> BlockPool::allocate(std::size_t bytes) { return FreeList::allocate(bytes); }

}  // namespace cohort::io
