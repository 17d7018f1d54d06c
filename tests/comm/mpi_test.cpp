// Run by mpirun: the collectives over MPI. Fails on a single rank.
#include <cstdio>
#include <exception>

#include "megalith/comm/mpi_communicator.h"
#include "tests/comm/collectives.h"

int main() {
  const megalith::MpiSession session;
  const auto world = megalith::MpiSession::world();
  try {
    megalith::check_collectives(*world);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", world->rank(), error.what());
    megalith::MpiSession::abort(1);
  }
  return 0;
}
