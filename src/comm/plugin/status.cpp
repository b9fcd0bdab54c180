// SPDX-License-Identifier: MIT
#include "comm/plugin/status.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "aplib/error.hpp"

namespace aplib::comm::plugin {
namespace {

std::int32_t status_of(Errc code) noexcept {
  switch (code) {
    case Errc::bad_argument:
      return APLIB_COMM_BAD_ARGUMENT;
    case Errc::bad_option:
      return APLIB_COMM_BAD_OPTION;
    case Errc::exhausted:
      return APLIB_COMM_EXHAUSTED;
    default:
      return APLIB_COMM_FAILED;
  }
}

Errc code_of(std::int32_t status) noexcept {
  switch (status) {
    case APLIB_COMM_BAD_ARGUMENT:
      return Errc::bad_argument;
    case APLIB_COMM_BAD_OPTION:
      return Errc::bad_option;
    case APLIB_COMM_EXHAUSTED:
      return Errc::exhausted;
    default:
      return Errc::failed;
  }
}

void put(const char* text, std::size_t length, char* into, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  length = std::min(length, bytes - 1);
  std::memcpy(into, text, length);
  into[length] = '\0';
}

}  // namespace

std::int32_t status_of_exception(aplib_comm_error* error) noexcept {
  std::int32_t status = APLIB_COMM_FAILED;
  const auto say = [error](const char* text) { put(text, std::strlen(text), error->text, sizeof error->text); };
  try {
    throw;
  } catch (const Error& thrown) {
    say(thrown.what());
    status = status_of(thrown.code());
  } catch (const std::bad_alloc&) {
    say("no memory");
    status = APLIB_COMM_EXHAUSTED;
  } catch (const std::exception& thrown) {
    say(thrown.what());
  } catch (...) {
    say("an exception that is no std::exception");
  }
  return status;
}

void throw_status(std::int32_t status, const aplib_comm_error& error, const char* subject) {
  const std::size_t length = ::strnlen(error.text, sizeof error.text);
  if (length != 0) throw Error(code_of(status), std::string(error.text, length));
  throw Error(code_of(status), fmt::format("{}: failed with status {} and does not say why", subject, status));
}

void put_text(const std::string& text, char* into, std::size_t bytes) noexcept {
  put(text.data(), text.size(), into, bytes);
}

}  // namespace aplib::comm::plugin
