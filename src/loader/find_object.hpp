// SPDX-License-Identifier: MIT
// From an address to the image of an instance it lies in: for the unwinder (a throw asks once per frame), for bound
// functions called from unknown threads, for dladdr.
#pragma once

#include <cstdint>

namespace aplib::loader {

class Instance;
struct LoadedImage;

/// What is known of an address.
struct FoundImage {
  Instance* instance = nullptr;
  const char* low = nullptr;
  const char* high = nullptr;             ///< Exclusive.
  const char* eh_frame_header = nullptr;  ///< null: none
};

/// Call from: any thread, at any time, also inside a throw. Takes no lock and allocates nothing. False: not in an
/// instance.
bool find_image(const void* address, FoundImage& found) noexcept;

/// Makes an image known / unknown. `image` stays where it is in between. Call from: any thread. remove_image: when
/// no code of the image runs any more.
void add_image(Instance& instance, const LoadedImage& image);
void remove_image(const char* base) noexcept;

}  // namespace aplib::loader
