// SPDX-License-Identifier: MIT
// EndedError: a call waits for a cell that has ended. A task that fails by it fails the run with that cell's status,
// because the cell failed first.
#pragma once

#include <string>

#include "aplib/error.hpp"
#include "cell/cell.hpp"

namespace aplib {

class EndedError : public Error {
 public:
  EndedError(const CellEnd& end, const std::string& text) : Error(Errc::ended, text), status_(end.status) {}
  /// With which that cell has ended.
  [[nodiscard]] int status() const noexcept { return status_; }

 private:
  int status_;
};

/// As refuse() (domain.hpp), because the call waits for a cell that has ended like this.
[[noreturn, gnu::cold]] void refuse_ended(const TaskControl& self, const CellEnd& end, const char* call,
                                          const std::string& text);

}  // namespace aplib
