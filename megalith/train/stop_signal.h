// SIGINT, SIGTERM and SIGUSR1 ask a long command to stop cleanly; a second SIGINT ends it at once. SIGUSR1 is
// there because mpirun passes it on to its ranks and waits; the others make it kill them after a moment.
#pragma once

namespace megalith {

/// Catches the three while it lives. Ranks that are threads of one process may each have one; a
/// signal comes to all.
class StopSignal {
 public:
  StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal();

  /// The number of the signal that came, or 0.
  int received() const;
};

}  // namespace megalith
