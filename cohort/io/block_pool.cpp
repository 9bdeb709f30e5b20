#include "cohort/io/block_pool.h"

#include <new>
#include <utility>
#include <vector>

#include "cohort/base/mutex.h"

namespace cohort::io {
namespace {

struct AlignedDelete {
  void operator()(char* block) const {
    ::operator delete[](block, std::align_val_t{BlockPool::kAlignment});
  }
};
using AlignedBlock = std::unique_ptr<char[], AlignedDelete>;

AlignedBlock aligned_block(std::size_t bytes) {
  return AlignedBlock(new (std::align_val_t{BlockPool::kAlignment}) char[bytes]);
}

}  // namespace

struct BlockPool::FreeList {
  static constexpr std::size_t kMost = 8;  // what a reader ahead of a slow user leaves behind

  Mutex mutex;
  std::vector<AlignedBlock> blocks COHORT_GUARDED_BY(mutex);

  AlignedBlock pop() {
    MutexLock lock(mutex);
    if (blocks.empty()) return nullptr;
    AlignedBlock block = std::move(blocks.back());
    blocks.pop_back();
    return block;
  }

  void push(AlignedBlock block) {
    MutexLock lock(mutex);
    if (blocks.size() < kMost) blocks.push_back(std::move(block));
  }
};

std::shared_ptr<BlockPool::FreeList> BlockPool::make_free_list() {
  return std::make_shared<FreeList>();
}

std::shared_ptr<char[]> BlockPool::take() {
  AlignedBlock block = free_->pop();
  if (!block) block = aligned_block(kBlockBytes);
  const auto give_back = [list = std::weak_ptr(free_)](char* bytes) {
    AlignedBlock returned(bytes);
    if (const auto alive = list.lock()) alive->push(std::move(returned));
  };
  return {block.release(), give_back};
}

std::shared_ptr<char[]> BlockPool::allocate(std::size_t bytes) { return aligned_block(bytes); }

}  // namespace cohort::io
