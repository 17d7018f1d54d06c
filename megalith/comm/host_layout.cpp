#include "megalith/comm/host_layout.h"

#include <algorithm>

namespace megalith {

std::optional<HostLayout> HostLayout::of(const std::vector<int>& hosts, int rank) {
  HostLayout layout;
  std::vector<int> seen;
  for (size_t r = 0; r < hosts.size(); ++r) {
    if (r == 0 || hosts[r] != hosts[r - 1]) {
      if (std::find(seen.begin(), seen.end(), hosts[r]) != seen.end()) return std::nullopt;
      seen.push_back(hosts[r]);
      layout.first.push_back(static_cast<int>(r));
    }
  }
  layout.first.push_back(static_cast<int>(hosts.size()));
  layout.host = layout.host_of(rank);
  layout.local = rank - layout.first[static_cast<size_t>(layout.host)];
  return layout;
}

int HostLayout::carriers() const {
  int fewest = ranks_on(0);
  for (int which = 1; which < hosts(); ++which) fewest = std::min(fewest, ranks_on(which));
  return fewest;
}

int HostLayout::host_of(int rank) const {
  return static_cast<int>(std::upper_bound(first.begin(), first.end(), rank) - first.begin()) - 1;
}

}  // namespace megalith
