// SPDX-License-Identifier: MIT
// What one of our plug-ins exports. Compiled once for each, with APLIB_KIND, the function that makes its kind (kind.hpp).
#include "comm/kind.hpp"
#include "comm/plugin/exporter.hpp"

// Made when the file is loaded, and there as long as the process.
const aplib_comm_plugin aplib_comm_plugin_entry =
    (new aplib::comm::plugin::Exporter(aplib::comm::APLIB_KIND()))->plugin();
