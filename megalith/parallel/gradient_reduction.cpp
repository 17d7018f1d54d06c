#include <algorithm>
#include <utility>

#include "megalith/parallel/data_parallel.h"

namespace megalith {

void reduce_to_owners(Communicator& group, const ParameterBuffers& parameters, int64_t first,
                      TensorView data) {
  const PartRange all{first, first + data.elements()};
  for (int owner = 0; owner < group.size(); ++owner) {
    const PartRange part = intersection(all, parameters.part(owner));
    if (part.size() > 0) group.reduce(data.slice(part.begin - first, part.end - first), owner);
  }
}

GradientReduction::GradientReduction(const ExecContext& exec, const TensorParallel& tensor,
                                     ParameterBuffers& parameters, const std::vector<UnitRange>& units,
                                     Options options, CommunicationQueue* queue)
    : exec_(exec), tensor_(tensor), parameters_(parameters), options_(std::move(options)), queue_(queue) {
  for (int64_t unit = static_cast<int64_t>(units.size()); unit-- > 0;) {
    const auto& [first_slot, end_slot, elements] = units[static_cast<size_t>(unit)];
    const bool deferred = options_.deferred[static_cast<size_t>(unit)];
    if (!buckets_.empty() && buckets_.back().deferred == deferred &&
        buckets_.back().elements.size() < options_.bucket_elements) {
      buckets_.back().elements.begin = elements.begin;
      buckets_.back().first_slot = first_slot;
      buckets_.back().after_unit = unit;
    } else {
      buckets_.push_back({elements, first_slot, end_slot, unit, deferred});
    }
  }
  // All ranks keep one order, so what waits for finish() comes last.
  std::stable_partition(buckets_.begin(), buckets_.end(),
                        [](const Bucket& bucket) { return !bucket.deferred; });
}

void GradientReduction::begin_step() {
  next_ = 0;
  last_ = false;
}

void GradientReduction::after_backward(int64_t unit) {
  if (last_) submit_until(unit, false);
}

void GradientReduction::submit_until(int64_t unit, bool deferred_too) {
  for (; next_ < buckets_.size(); ++next_) {
    const Bucket& bucket = buckets_[next_];
    if (bucket.after_unit < unit || (bucket.deferred && !deferred_too)) return;
    parameters_.sum_partial_gradients(exec_, tensor_, bucket.first_slot, bucket.end_slot);
    if (queue_ == nullptr) continue;
    const PartRange elements = bucket.elements;
    queue_->submit("reduce gradients", [this, elements](Communicator& group) {
      const TensorView data = parameters_.gradients(elements.begin, elements.end);
      if (options_.to_owners) {
        reduce_to_owners(group, parameters_, elements.begin, data);
      } else {
        group.all_reduce(data);
      }
    });
  }
}

void GradientReduction::finish() {
  submit_until(0, true);
  const ProfileScope waiting(exec_, "communication");
  if (queue_ != nullptr) queue_->wait_all();
}

}  // namespace megalith
