// Ranks as MPI processes (mpirun, Slurm).
#pragma once

#include <memory>

#include "megalith/comm/communicator.h"

namespace megalith {

/// Whether this process was started by mpirun or srun with PMI, by the variables that they set.
bool started_by_mpi();

/// Initialises MPI for the life of the object. At most one exists in a process.
class MpiSession {
 public:
  MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  /// Ends MPI; all ranks must come here.
  ~MpiSession();

  /// All ranks. Groups whose ranks are on one host reduce and gather through shared memory, unless
  /// `shared_memory` is off; everything else goes through MPI.
  static std::unique_ptr<Communicator> world(bool shared_memory = true);
  /// MPI's own all-reduce of data [n] F32 over all ranks, to compare with.
  static void plain_all_reduce(TensorView data);
  /// Ends all ranks of the job at once with this exit status, without waiting for them.
  [[noreturn]] static void abort(int status);
};

}  // namespace megalith
