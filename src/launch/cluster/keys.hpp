// SPDX-License-Identifier: MIT
// Keys of a cluster file: one table. The parser, its messages and docs/cluster-file.md come from it. Options of the
// machine (aplib/options.hpp) are keys too, of the section that their own table names; they are not written twice.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/cluster/cluster.hpp"
#include "launch/cluster/document.hpp"

namespace aplib::launch::cluster {

enum class SectionKind : std::uint8_t { machine, host, comm };

/// For people: one row of the table.
struct KeyInfo {
  SectionKind section = SectionKind::machine;
  std::string_view name;
  std::string_view values;         ///< Form of a value: "NXxNY|N|auto".
  std::string_view default_value;  ///< As it would be written; empty: none.
  std::string_view range;          ///< Empty where `values` lists all.
  std::string_view help;           ///< A sentence.
  /// SectionKind::host: may stand in [machine] too, for all hosts that do not say otherwise.
  bool for_all_hosts = false;
  bool option = false;  ///< A row of the option table.
};

/// Every key, options included, by section; own keys before options.
[[nodiscard]] const std::vector<KeyInfo>& cluster_keys();

/// What a key of [machine] or [comm] writes to. Keys of hosts write to a ClusterHost; in [machine] to the one that
/// others are copied from.
struct KeyTarget {
  Cluster* cluster = nullptr;
  ClusterHost* host = nullptr;
};

/// Applies a value. Returns what is wrong with it, and what to do, as the end of a message; empty: nothing. `key`
/// is an element of cluster_keys().
[[nodiscard]] std::string apply_key(const KeyInfo& key, const KeyTarget& target, const Value& value);

/// "[machine]", "[[host]]", "[comm]".
[[nodiscard]] std::string_view section_text(SectionKind section);

}  // namespace aplib::launch::cluster
