// SPDX-License-Identifier: MIT
#include "mpi/tell_all.hpp"

#include <array>

namespace aplib::mpi {

void fail_together(const Call& call, Comm& comm, CollectiveKind kind, const std::vector<int>& codes,
                   const std::optional<Failure>& own) {
  const auto first = std::find_if(codes.begin(), codes.end(), [](int code) { return code != MPI_SUCCESS; });
  if (first == codes.end()) return;
  std::array<char, MPI_MAX_ERROR_STRING> words{};
  if (own) own->text.copy(words.data(), words.size() - 1);
  const auto all = tell_all(Collective(call, comm, kind), words);
  if (own) throw Failure(*own);
  fail(*first, all[static_cast<std::size_t>(first - codes.begin())].data());
}

void agree(const Call& call, Comm& comm, CollectiveKind kind, const std::optional<Failure>& own) {
  fail_together(call, comm, kind, tell_all(Collective(call, comm, kind), own ? own->code : MPI_SUCCESS), own);
}

}  // namespace aplib::mpi
