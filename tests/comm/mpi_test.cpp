// Run by mpirun: the collectives through shared memory and through MPI. Fails on a single rank.
#include <cstdio>
#include <exception>

#include "megalith/comm/mpi_communicator.h"
#include "tests/comm/collectives.h"

int main() {
  const megalith::MpiSession session;
  for (const bool shared_memory : {true, false}) {
    const auto world = megalith::MpiSession::world(shared_memory);
    try {
      megalith::check_collectives(*world);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d, %s: %s\n", world->rank(), shared_memory ? "shared memory" : "MPI",
                   error.what());
      megalith::MpiSession::abort(1);
    }
  }
  return 0;
}
