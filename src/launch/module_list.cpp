// SPDX-License-Identifier: MIT
#include "launch/module_list.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

namespace aplib::launch {
namespace {

constexpr std::size_t columns = 7;
using Row = std::array<std::string, columns>;

std::string secure_text(const comm::ModuleKind& kind) {
  std::vector<std::string_view> kept;
  for (const comm::Secure secure : {comm::Secure::off, comm::Secure::auth, comm::Secure::tls})
    if (kind.keeps(secure)) kept.push_back(to_string(secure));
  return fmt::format("{}", fmt::join(kept, ", "));
}

Row row(const comm::FoundModule& each, bool usable) {
  const comm::ModuleKind& kind = *each.kind;
  return {kind.name(),
          kind.version(),
          kind.one_host() ? "this host" : "any host",
          kind.has_remote_memory() ? "yes" : "no",
          secure_text(kind),
          usable ? "usable" : "not here",
          each.file};
}

}  // namespace

std::string module_table(std::span<const comm::FoundModule> found, const comm::PortSettings& settings) {
  std::vector<Row> rows{{"module", "version", "reaches", "remote memory", "secure", "state", "file"}};
  std::string notes;  // Long lines, behind the table.
  for (const comm::FoundModule& each : found) {
    if (each.kind) {
      const std::optional<std::string> why = each.kind->unusable(settings);
      rows.push_back(row(each, !why));
      notes += fmt::format("{}: {}{}\n", each.kind->name(), each.kind->description(),
                           why ? "; it cannot be used here: " + *why : std::string{});
    } else {
      notes += fmt::format("refused: {}: {}\n", each.file, each.refusal);
    }
  }
  std::array<std::size_t, columns> widths{};
  for (const Row& each : rows)
    for (std::size_t i = 0; i + 1 < columns; ++i) widths[i] = std::max(widths[i], each[i].size());
  std::string text;
  for (const Row& each : rows) {
    for (std::size_t i = 0; i + 1 < columns; ++i) text += fmt::format("{:<{}}  ", each[i], widths[i]);
    text += each[columns - 1] + '\n';
  }
  return text + notes;
}

}  // namespace aplib::launch
