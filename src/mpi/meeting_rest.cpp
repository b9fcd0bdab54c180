// SPDX-License-Identifier: MIT
#include "mpi/meeting_rest.hpp"

namespace aplib::mpi {

void Meeting::close(int ended) const noexcept {
  board_.close(api::processor(api::task(collective_.name())), ended, episode_);
}

void Meeting::resume(Wake how, Awaited& awaited) {
  if (collective_.is_pending()) self_ = running_task();
  switch (how) {
    case Wake::done:
      return;
    case Wake::ended:
      close(awaited.ended());
      fail_ended(awaited.ended());
    case Wake::stopping:
      fail(MPI_ERR_OTHER, "the machine stops");
  }
}

}  // namespace aplib::mpi
