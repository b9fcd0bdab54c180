// SPDX-License-Identifier: MIT
// What one of our plug-ins exports. Compiled once for each, with APLIB_KIND, the function that makes its kind (kinds.hpp).
#include "comm/kinds.hpp"
#include "comm/plugin/exporter.hpp"

// Made when the file is loaded, and there as long as the process.
const aplib_comm_plugin aplib_comm_plugin_entry = (new aplib::comm::Exporter(aplib::comm::APLIB_KIND()))->plugin();
