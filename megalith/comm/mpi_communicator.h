// Ranks as MPI processes (mpirun, Slurm).
#pragma once

#include <memory>

#include "megalith/comm/communicator.h"

namespace megalith {

/// Whether this process was started by mpirun or srun with PMI, by the variables that they set.
bool started_by_mpi();

struct MpiTransport {
  /// Off: everything goes through MPI.
  bool shared_memory = true;
  /// Not 0: every so many neighbouring ranks of a host pass for a host of their own, so that what happens
  /// between hosts can be tried on one.
  int ranks_per_host = 0;
};

/// Initialises MPI for the life of the object. At most one exists in a process.
class MpiSession {
 public:
  MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  /// Ends MPI; all ranks must come here.
  ~MpiSession();

  /// All ranks. Ranks of a group that are on one host reduce and gather through shared memory; what leaves
  /// the host, and groups in which the ranks of a host are not neighbours, go through MPI.
  static std::unique_ptr<Communicator> world(const MpiTransport& transport = {});
  /// MPI's own all-reduce of data [n] F32 over all ranks, to compare with.
  static void plain_all_reduce(TensorView data);
  /// Ends all ranks of the job at once with this exit status, without waiting for them.
  [[noreturn]] static void abort(int status);
};

}  // namespace megalith
