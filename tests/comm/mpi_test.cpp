// Run by mpirun: the collectives through shared memory, through MPI, and over several hosts, for which parts
// of this one pass. Fails on a single rank.
#include <cstdio>
#include <exception>

#include "megalith/comm/mpi_communicator.h"
#include "tests/comm/collectives.h"

namespace {

using namespace megalith;

// What an all-reduce carries between hosts: the data once from host to host and once back. Where nobody knows
// of hosts, every rank exchanges a part with every other.
void check_bytes_between_hosts(Communicator& world, const MpiTransport& transport) {
  const int per_host = transport.ranks_per_host > 0 ? transport.ranks_per_host : world.size();
  const int hosts = (world.size() + per_host - 1) / per_host;
  const int64_t count = int64_t{30030} * world.size();
  std::vector<float> data(static_cast<size_t>(count), 1.0f);
  const uint64_t before = world.counters().bytes_between_hosts;
  world.all_reduce(TensorView(data.data(), DType::f32, {count}));
  double sent[1] = {static_cast<double>(world.counters().bytes_between_hosts - before)};
  world.sum(sent);
  double crossings = 2.0 * (hosts - 1);
  if (!transport.shared_memory || per_host == 1) {
    crossings = 0;
    for (int r = 0; r < world.size(); ++r) {
      const int first = r / per_host * per_host;
      crossings += 2.0 * (world.size() - (std::min(first + per_host, world.size()) - first)) / world.size();
    }
  }
  const double expected = crossings * static_cast<double>(count) * 4;
  check(std::abs(sent[0] - expected) <= 1e-9 * expected,
        "{} ranks, {} a host: {} bytes between hosts, expected {}", world.size(), per_host, sent[0],
        expected);
}

}  // namespace

int main() {
  const megalith::MpiSession session;
  for (const megalith::MpiTransport& transport :
       {MpiTransport{}, MpiTransport{.shared_memory = false}, MpiTransport{.ranks_per_host = 1},
        MpiTransport{.ranks_per_host = 2}, MpiTransport{.ranks_per_host = 4},
        MpiTransport{.shared_memory = false, .ranks_per_host = 2}}) {
    const auto world = megalith::MpiSession::world(transport);
    try {
      megalith::check_collectives(*world);
      check_bytes_between_hosts(*world, transport);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d, %s, %d ranks a host: %s\n", world->rank(),
                   transport.shared_memory ? "shared memory" : "MPI", transport.ranks_per_host, error.what());
      megalith::MpiSession::abort(1);
    }
  }
  return 0;
}
