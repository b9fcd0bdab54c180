// SPDX-License-Identifier: MIT
// APlib, the whole C++ interface.
#pragma once

#include "aplib/collective.hpp"
#include "aplib/error.hpp"
#include "aplib/ids.hpp"
#include "aplib/machine.hpp"
#include "aplib/message.hpp"
#include "aplib/one_sided.hpp"
#include "aplib/options.hpp"
#include "aplib/request.hpp"
#include "aplib/symmetric.hpp"
#include "aplib/task.hpp"
#include "aplib/version.hpp"
