// SPDX-License-Identifier: MIT
// Keys of a cluster file: one table. The parser, its messages and docs/cluster-file.md come from it. Options of the
// machine (aplib/options.hpp) are keys too, in the section that their own table names.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/cluster/cluster.hpp"
#include "launch/cluster/document.hpp"

namespace aplib::launch::cluster {

enum class SectionKind : std::uint8_t { machine, host, site, file, comm };

/// One row of the table, for people.
struct KeyInfo {
  SectionKind section = SectionKind::machine;
  std::string_view name;
  std::string_view values;         ///< Form of a value: "NXxNY|N|auto".
  std::string_view default_value;  ///< As a user would write it; empty: none.
  std::string_view range;          ///< Empty where `values` lists all.
  std::string_view help;           ///< A sentence.
  /// SectionKind::host: also allowed in [machine], for all hosts that do not set it.
  bool for_all_hosts = false;
  bool option = false;  ///< A row of the option table.
};

/// Every key, options included, by section. Keys come before options.
[[nodiscard]] const std::vector<KeyInfo>& cluster_keys();

/// Where a key of [machine] or [comm] is stored. Keys of [[file]] are stored in a ClusterFile, of [[site]] in a
/// ClusterSite, keys of hosts in a
/// ClusterHost; in [machine], in the one from which the others are copied.
struct KeyTarget {
  Cluster* cluster = nullptr;
  ClusterHost* host = nullptr;
  ClusterFile* file = nullptr;
  ClusterSite* site = nullptr;
};

/// Applies a value. Returns what is wrong with it and what to do, as the end of a message, or an empty text. `key` is
/// an element of cluster_keys().
[[nodiscard]] std::string apply_key(const KeyInfo& key, const KeyTarget& target, const Value& value);

/// "[machine]", "[[host]]", "[[site]]", "[[file]]", "[comm]".
[[nodiscard]] std::string_view section_text(SectionKind section);

}  // namespace aplib::launch::cluster
