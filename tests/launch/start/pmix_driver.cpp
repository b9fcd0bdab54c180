// SPDX-License-Identifier: MIT
// A process of a job that another launcher started. It prints what PMIx tells it, in one line, written at once.
//
//   pmix_driver          puts a text, fences, reads everyone's, and prints them
//   pmix_driver abort    rank 1 aborts the job with status 7, the others wait for ever
#include <unistd.h>

#include <iostream>
#include <string>
#include <string_view>

#include "aplib/error.hpp"
#include "launch/start/pmix.hpp"

int main(int argc, char** argv) {
  using aplib::launch::start::Pmix;
  if (!Pmix::launched_us()) {
    std::cout << "not started by PMIx\n";
    return 0;
  }
  try {
    Pmix pmix;
    const bool aborts = argc > 1 && std::string_view(argv[1]) == "abort";
    for (int round = 0; round < 2; ++round) {
      pmix.put("aplib.text" + std::to_string(round), "of " + std::to_string(pmix.rank() + 10 * round));
      pmix.fence();
    }
    std::string line = "rank " + std::to_string(pmix.rank()) + " of " + std::to_string(pmix.size());
    for (int round = 0; round < 2; ++round) {
      for (unsigned rank = 0; rank < pmix.size(); ++rank) {
        line += ", " + pmix.get(rank, "aplib.text" + std::to_string(round)).value_or("nothing");
      }
    }
    line += pmix.get(0, "aplib.none") ? ", and what nobody has put" : "";
    line += pmix.host(0).empty() ? ", no host" : "";
    std::cout << line + "\n" << std::flush;
    if (aborts) {
      if (pmix.rank() == 1) pmix.abort(7, "rank 1 gives up");
      for (;;) ::pause();
    }
  } catch (const aplib::Error& error) {
    std::cout << error.what() << "\n";
    return 1;
  }
}
