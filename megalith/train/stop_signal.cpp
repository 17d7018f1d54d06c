#include "megalith/train/stop_signal.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>

namespace megalith {

namespace {

std::atomic<int> received_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may use it");

// How many objects live, and what their first one found.
std::mutex mutex;
int alive = 0;
constexpr std::array kSignals{SIGINT, SIGTERM, SIGUSR1};
std::array<struct sigaction, kSignals.size()> previous;

void on_signal(int number) {
  constexpr int kInterruptedStatus = 128 + SIGINT;
  if (number == SIGINT && received_signal != 0) _exit(kInterruptedStatus);
  received_signal = number;
}

}  // namespace

StopSignal::StopSignal() {
  const std::lock_guard lock(mutex);
  if (alive++ > 0) return;
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &previous[i]);
}

StopSignal::~StopSignal() {
  const std::lock_guard lock(mutex);
  if (--alive > 0) return;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &previous[i], nullptr);
}

int StopSignal::received() const {
  return received_signal;
}

}  // namespace megalith
