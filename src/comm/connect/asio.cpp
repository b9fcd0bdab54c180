// SPDX-License-Identifier: MIT
// Boost.Asio's functions, compiled once for all files that use it (BOOST_ASIO_SEPARATE_COMPILATION).
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
