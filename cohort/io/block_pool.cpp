#include "cohort/io/block_pool.h"

#include <utility>
#include <vector>

#include "cohort/base/mutex.h"

namespace cohort::io {

struct BlockPool::FreeList {
  static constexpr std::size_t kMost = 8;  // what a reader ahead of a slow user leaves behind

  Mutex mutex;
  std::vector<std::unique_ptr<char[]>> blocks COHORT_GUARDED_BY(mutex);

  std::unique_ptr<char[]> pop() {
    MutexLock lock(mutex);
    if (blocks.empty()) return nullptr;
    std::unique_ptr<char[]> block = std::move(blocks.back());
    blocks.pop_back();
    return block;
  }

  void push(std::unique_ptr<char[]> block) {
    MutexLock lock(mutex);
    if (blocks.size() < kMost) blocks.push_back(std::move(block));
  }
};

std::shared_ptr<BlockPool::FreeList> BlockPool::make_free_list() {
  return std::make_shared<FreeList>();
}

std::shared_ptr<char[]> BlockPool::take() {
  std::unique_ptr<char[]> block = free_->pop();
  if (!block) block = std::make_unique_for_overwrite<char[]>(kBlockBytes);
  const auto give_back = [list = std::weak_ptr(free_)](char* bytes) {
    std::unique_ptr<char[]> returned(bytes);
    if (const auto alive = list.lock()) alive->push(std::move(returned));
  };
  return {block.release(), give_back};
}

}  // namespace cohort::io
