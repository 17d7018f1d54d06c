// HostLayout: how the ranks of a group lie on hosts. Arithmetic alone.
#pragma once

#include <optional>
#include <vector>

namespace megalith {

struct HostLayout {
  /// The first rank of each host, in the order of ranks, and the size of the group at the end.
  std::vector<int> first;
  /// Of this rank.
  int host = 0, local = 0;

  /// `hosts` says for each rank of the group which host it is on. Nothing when the ranks of a host are not
  /// neighbours in the group.
  static std::optional<HostLayout> of(const std::vector<int>& hosts, int rank);

  int hosts() const { return static_cast<int>(first.size()) - 1; }
  int ranks_on(int which) const {
    return first[static_cast<size_t>(which) + 1] - first[static_cast<size_t>(which)];
  }
  /// As many ranks of every host, the first ones, exchange with the other hosts, each a slice of the data: as
  /// many as the host with the fewest ranks has.
  int carriers() const;
  /// The host of a rank of the group.
  int host_of(int rank) const;
};

}  // namespace megalith
