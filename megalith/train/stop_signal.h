// SIGINT and SIGTERM ask a long command to stop cleanly; a second SIGINT ends it at once.
#pragma once

namespace megalith {

/// Catches SIGINT and SIGTERM while it lives. Ranks that are threads of one process may each have one; a
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
