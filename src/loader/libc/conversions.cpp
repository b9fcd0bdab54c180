// SPDX-License-Identifier: MIT
// Multibyte conversions: a function that is given no state keeps one itself. Here it is the instance's.
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cuchar>
#include <cwchar>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/static_buffers.hpp"

// glibc's checked forms, which programs built with _FORTIFY_SOURCE call; the headers declare them only for those.
extern "C" {
std::size_t __wcrtomb_chk(char*, wchar_t, std::mbstate_t*, std::size_t);
std::size_t __mbsrtowcs_chk(wchar_t*, const char**, std::size_t, std::mbstate_t*, std::size_t);
std::size_t __wcsrtombs_chk(char*, const wchar_t**, std::size_t, std::mbstate_t*, std::size_t);
std::size_t __mbsnrtowcs_chk(wchar_t*, const char**, std::size_t, std::size_t, std::mbstate_t*, std::size_t);
std::size_t __wcsnrtombs_chk(char*, const wchar_t**, std::size_t, std::size_t, std::mbstate_t*, std::size_t);
}

namespace aplib::loader::libc {

struct Conversions {
  std::mbstate_t multibyte{};  ///< mblen, mbtowc, wctomb
  std::mbstate_t mbrlen{}, mbrtowc{}, wcrtomb{}, mbsrtowcs{}, wcsrtombs{}, mbsnrtowcs{}, wcsnrtombs{};
  std::mbstate_t mbrtoc16{}, c16rtomb{}, mbrtoc32{}, c32rtomb{};
};

namespace {

// The caller's state, or the instance's for this function. Null, libc's own: no instance.
std::mbstate_t* state_for(std::mbstate_t* given, const void* caller, std::mbstate_t Conversions::*own) {
  if (given != nullptr) return given;
  LibcState* state = state_of(caller);
  if (state == nullptr) return nullptr;
  return &(shared_part(shared_part(state->buffers).conversions).*own);
}

// No locale of glibc has a conversion state that outlives a character, so forgetting the state is all that a null
// string asks for.
int forget(std::mbstate_t* state) {
  if (state != nullptr) *state = {};
  return 0;
}

int own_mblen(const char* text, std::size_t bytes) {
  std::mbstate_t* state = state_for(nullptr, __builtin_return_address(0), &Conversions::multibyte);
  if (text == nullptr) return forget(state);
  std::mbstate_t fresh{};  // each call stands for itself, as in libc
  const auto result = static_cast<std::ptrdiff_t>(::mbrtowc(nullptr, text, bytes, &fresh));
  return result < 0 ? -1 : static_cast<int>(result);
}

int own_mbtowc(wchar_t* character, const char* text, std::size_t bytes) {
  std::mbstate_t* state = state_for(nullptr, __builtin_return_address(0), &Conversions::multibyte);
  if (text == nullptr) return forget(state);
  const auto result = static_cast<std::ptrdiff_t>(::mbrtowc(character, text, bytes, state));
  if (result < 0) forget(state);
  return result < 0 ? -1 : static_cast<int>(result);
}

int own_wctomb(char* text, wchar_t character) {
  std::mbstate_t* state = state_for(nullptr, __builtin_return_address(0), &Conversions::multibyte);
  if (text == nullptr) return forget(state);
  return static_cast<int>(::wcrtomb(text, character, state));
}

int own_wctomb_chk(char* text, wchar_t character, std::size_t bytes) {
  std::mbstate_t* state = state_for(nullptr, __builtin_return_address(0), &Conversions::multibyte);
  if (text == nullptr) return forget(state);
  return static_cast<int>(__wcrtomb_chk(text, character, state, bytes));
}

std::size_t own_mbrlen(const char* text, std::size_t bytes, std::mbstate_t* state) {
  return ::mbrtowc(nullptr, text, bytes, state_for(state, __builtin_return_address(0), &Conversions::mbrlen));
}

std::size_t own_mbrtowc(wchar_t* character, const char* text, std::size_t bytes, std::mbstate_t* state) {
  return ::mbrtowc(character, text, bytes, state_for(state, __builtin_return_address(0), &Conversions::mbrtowc));
}

std::size_t own_wcrtomb(char* text, wchar_t character, std::mbstate_t* state) {
  return ::wcrtomb(text, character, state_for(state, __builtin_return_address(0), &Conversions::wcrtomb));
}

std::size_t own_wcrtomb_chk(char* text, wchar_t character, std::mbstate_t* state, std::size_t bytes) {
  return __wcrtomb_chk(text, character, state_for(state, __builtin_return_address(0), &Conversions::wcrtomb), bytes);
}

std::size_t own_mbsrtowcs(wchar_t* to, const char** from, std::size_t length, std::mbstate_t* state) {
  return ::mbsrtowcs(to, from, length, state_for(state, __builtin_return_address(0), &Conversions::mbsrtowcs));
}

std::size_t own_mbsrtowcs_chk(wchar_t* to, const char** from, std::size_t length, std::mbstate_t* state,
                              std::size_t room) {
  return __mbsrtowcs_chk(to, from, length, state_for(state, __builtin_return_address(0), &Conversions::mbsrtowcs),
                         room);
}

std::size_t own_wcsrtombs(char* to, const wchar_t** from, std::size_t bytes, std::mbstate_t* state) {
  return ::wcsrtombs(to, from, bytes, state_for(state, __builtin_return_address(0), &Conversions::wcsrtombs));
}

std::size_t own_wcsrtombs_chk(char* to, const wchar_t** from, std::size_t bytes, std::mbstate_t* state,
                              std::size_t room) {
  return __wcsrtombs_chk(to, from, bytes, state_for(state, __builtin_return_address(0), &Conversions::wcsrtombs), room);
}

std::size_t own_mbsnrtowcs(wchar_t* to, const char** from, std::size_t bytes, std::size_t length,
                           std::mbstate_t* state) {
  return ::mbsnrtowcs(to, from, bytes, length, state_for(state, __builtin_return_address(0), &Conversions::mbsnrtowcs));
}

std::size_t own_mbsnrtowcs_chk(wchar_t* to, const char** from, std::size_t bytes, std::size_t length,
                               std::mbstate_t* state, std::size_t room) {
  return __mbsnrtowcs_chk(to, from, bytes, length,
                          state_for(state, __builtin_return_address(0), &Conversions::mbsnrtowcs), room);
}

std::size_t own_wcsnrtombs(char* to, const wchar_t** from, std::size_t length, std::size_t bytes,
                           std::mbstate_t* state) {
  return ::wcsnrtombs(to, from, length, bytes, state_for(state, __builtin_return_address(0), &Conversions::wcsnrtombs));
}

std::size_t own_wcsnrtombs_chk(char* to, const wchar_t** from, std::size_t length, std::size_t bytes,
                               std::mbstate_t* state, std::size_t room) {
  return __wcsnrtombs_chk(to, from, length, bytes,
                          state_for(state, __builtin_return_address(0), &Conversions::wcsnrtombs), room);
}

std::size_t own_mbrtoc16(char16_t* character, const char* text, std::size_t bytes, std::mbstate_t* state) {
  return ::mbrtoc16(character, text, bytes, state_for(state, __builtin_return_address(0), &Conversions::mbrtoc16));
}

std::size_t own_c16rtomb(char* text, char16_t character, std::mbstate_t* state) {
  return ::c16rtomb(text, character, state_for(state, __builtin_return_address(0), &Conversions::c16rtomb));
}

std::size_t own_mbrtoc32(char32_t* character, const char* text, std::size_t bytes, std::mbstate_t* state) {
  return ::mbrtoc32(character, text, bytes, state_for(state, __builtin_return_address(0), &Conversions::mbrtoc32));
}

std::size_t own_c32rtomb(char* text, char32_t character, std::mbstate_t* state) {
  return ::c32rtomb(text, character, state_for(state, __builtin_return_address(0), &Conversions::c32rtomb));
}

}  // namespace

std::span<const Binding> conversions_bindings() {
  static const std::array table{
      Binding::of("mblen", &own_mblen),
      Binding::of("mbtowc", &own_mbtowc),
      Binding::of("wctomb", &own_wctomb),
      Binding::of("__wctomb_chk", &own_wctomb_chk),
      Binding::of("mbrlen", &own_mbrlen),
      Binding::of("__mbrlen", &own_mbrlen),
      Binding::of("mbrtowc", &own_mbrtowc),
      Binding::of("wcrtomb", &own_wcrtomb),
      Binding::of("__wcrtomb_chk", &own_wcrtomb_chk),
      Binding::of("mbsrtowcs", &own_mbsrtowcs),
      Binding::of("__mbsrtowcs_chk", &own_mbsrtowcs_chk),
      Binding::of("wcsrtombs", &own_wcsrtombs),
      Binding::of("__wcsrtombs_chk", &own_wcsrtombs_chk),
      Binding::of("mbsnrtowcs", &own_mbsnrtowcs),
      Binding::of("__mbsnrtowcs_chk", &own_mbsnrtowcs_chk),
      Binding::of("wcsnrtombs", &own_wcsnrtombs),
      Binding::of("__wcsnrtombs_chk", &own_wcsnrtombs_chk),
      Binding::of("mbrtoc16", &own_mbrtoc16),
      Binding::of("c16rtomb", &own_c16rtomb),
      Binding::of("mbrtoc32", &own_mbrtoc32),
      Binding::of("c32rtomb", &own_c32rtomb),
  };
  return table;
}

}  // namespace aplib::loader::libc
