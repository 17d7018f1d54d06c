// Ranks as threads of one process, so that parallel tests are ordinary unit tests.
#pragma once

#include <functional>

#include "megalith/comm/communicator.h"

namespace megalith {

/// Runs `work` on `ranks` threads, each with its communicator, and waits for all. When one throws, the
/// others' next operation throws too, and the first exception is thrown again here with the rank's number in
/// front.
void run_ranks(int ranks, const std::function<void(Communicator&)>& work);

}  // namespace megalith
