// One text on several threads: it is cut into works, whose ids are put together in order while others are
// still encoded.
#include <algorithm>
#include <exception>
#include <mutex>

#include "megalith/text/tokenizer_implementation.h"

namespace megalith {

namespace {

// A piece of the text: an added token, or bytes to encode when `id` is -1.
struct Work {
  size_t begin;
  size_t end;
  int32_t id;
  PartPlace place;
};

// Small enough that the ids stay in a cache until they are appended, and that threads end together.
constexpr size_t kWorkBytes = 4 * kStretchBytes;

// Appends the ids of works in the order of their numbers, whatever the order in which they come.
class OrderedIds {
 public:
  OrderedIds(const std::vector<Work>& works, std::vector<int32_t>& ids)
      : works_(works), waiting_(works.size()), ready_(works.size()), ids_(ids), begin_(ids.size()) {}

  /// Memory for the ids of a work.
  std::vector<int32_t> take_buffer() {
    const std::lock_guard lock(mutex_);
    if (buffers_.empty()) return {};
    std::vector<int32_t> buffer = std::move(buffers_.back());
    buffers_.pop_back();
    buffer.clear();
    return buffer;
  }

  /// The thread that brings the next ids appends them and all that wait behind them; the others go on at
  /// once.
  void put(size_t work, std::vector<int32_t> ids) {
    std::unique_lock lock(mutex_);
    waiting_[work] = std::move(ids);
    ready_[work] = true;
    if (appending_) return;
    appending_ = true;
    while (next_ < ready_.size() && ready_[next_]) {
      std::vector<int32_t> here = std::move(waiting_[next_]);
      const size_t text_end = works_[next_].end;
      ++next_;
      lock.unlock();
      append(here, text_end);
      lock.lock();
      buffers_.push_back(std::move(here));
    }
    appending_ = false;
  }

 private:
  void append(const std::vector<int32_t>& here, size_t text_end) {
    if (ids_.size() + here.size() > ids_.capacity()) {
      // As many for the rest of the text as for this part of it, and some.
      const size_t so_far = ids_.size() - begin_ + here.size();
      const auto all =
          static_cast<size_t>(1.05 * static_cast<double>(so_far) * static_cast<double>(works_.back().end) /
                              static_cast<double>(text_end));
      ids_.reserve(begin_ + std::max(all, so_far + so_far / 2));
    }
    ids_.insert(ids_.end(), here.begin(), here.end());
  }

  const std::vector<Work>& works_;
  std::mutex mutex_;
  std::vector<std::vector<int32_t>> waiting_;
  std::vector<bool> ready_;
  std::vector<std::vector<int32_t>> buffers_;
  size_t next_ = 0;
  bool appending_ = false;
  std::vector<int32_t>& ids_;
  const size_t begin_;
};

}  // namespace

std::vector<int32_t> Tokenizer::encode_parallel(std::string_view text, int threads,
                                                const EncodeOptions& options) const {
  const Implementation& parts = *implementation_;
  std::vector<Work> works;
  std::vector<AddedTokenFinder::Part> found;
  parts.split_added(text, options.parse_special, found);
  const bool finds_normalized =
      !parts.normalizer.empty() && parts.added_token_finder.any_normalized(options.parse_special);
  for (const auto& part : found) {
    if (part.id >= 0) {
      works.push_back({part.begin, part.end, part.id, {}});
      continue;
    }
    for (size_t at = part.begin; at < part.end;) {
      const size_t length =
          stretch(text.substr(at, part.end - at), finds_normalized ? Cuts::none : parts.cuts, kWorkBytes);
      works.push_back({at, at + length, -1, {at == part.begin, at + length == part.end, at == 0}});
      at += length;
    }
  }
  std::vector<int32_t> ids;
  if (options.add_special) ids = parts.prefix_ids;
  const size_t text_begin = ids.size();
  OrderedIds ordered(works, ids);
  std::exception_ptr failure;
#pragma omp parallel num_threads(std::max(1, threads))
  {
    std::optional<BorrowedScratch> scratch;
#pragma omp for schedule(dynamic)
    for (size_t i = 0; i < works.size(); ++i) {
      const Work& work = works[i];
      try {
        std::vector<int32_t> work_ids = ordered.take_buffer();
        if (work.id >= 0) {
          work_ids.push_back(work.id);
        } else {
          if (!scratch) scratch.emplace(parts.scratch_pool);
          parts.encode_ids(text.substr(work.begin, work.end - work.begin), work.place, options.parse_special,
                           **scratch, work_ids);
        }
        ordered.put(i, std::move(work_ids));
      } catch (...) {
#pragma omp critical(megalith_encode_parallel)
        failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
  parts.finish_ids(options, 0, text_begin, ids);
  return ids;
}

}  // namespace megalith
