// SPDX-License-Identifier: MIT
// Instance: images that come and go while the program runs.
#include <cstdlib>
#include <utility>

#include "loader/find_object.hpp"
#include "loader/instance.hpp"

namespace aplib::loader {

Surroundings Instance::surroundings() const {
  Surroundings around;
  for (const Image& image : program_->images()) around.files.push_back(image.file);
  for (const Plugged& place : plugged_) {
    const auto index = around.files.size();
    around.files.push_back(place.plugin != nullptr ? place.plugin->images()[index].file : nullptr);
  }
  return around;
}

const Program& Instance::origin_of(std::uint32_t index) const noexcept {
  const std::size_t own = program_->images().size();
  return index < own ? *program_ : *plugged_[index - own].plugin;
}

void Instance::add_plugin(const std::shared_ptr<const Program>& plugin) {
  const std::size_t own = program_->images().size();
  const std::vector<std::uint32_t>& fresh = plugin->initialization_order();
  try {
    for (const std::uint32_t index : fresh) {
      const Image& image = plugin->images()[index];
      image.file->check_unchanged();
      if (images_.size() <= index) images_.resize(index + 1);
      if (plugged_.size() <= index - own) plugged_.resize(index - own + 1);
      plugged_[index - own] = {plugin,
                               ReservedRange(image.file->span(), image.file->alignment(), home_.low, home_.bytes)};
      images_[index] = {image.file.get(), &image.plan, plugged_[index - own].range.base(), image.module, 0};
    }
    for (const std::uint32_t index : fresh) map_image(images_[index]);
    for (const std::uint32_t index : fresh) relocate_image(images_[index]);
    for (const std::uint32_t index : fresh) finish_image(images_[index]);
  } catch (...) {
    for (const std::uint32_t index : fresh) {
      if (index < images_.size() && images_[index].file != nullptr) drop_image(index);
    }
    throw;
  }
  debugger_.tell();
}

void Instance::drop_image(std::uint32_t index) noexcept {
  LoadedImage& image = images_[index];
  for_each_context([&image](TaskContext& context) {
    if (image.module >= context.tls_blocks.size()) return;
    std::free(std::exchange(context.tls_blocks[image.module], nullptr));
  });
  debugger_.remove(image.base);
  debugger_.tell();
  remove_image(image.base);
  image = {};
  plugged_[index - program_->images().size()] = {};
}

}  // namespace aplib::loader
