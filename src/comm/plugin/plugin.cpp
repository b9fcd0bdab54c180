// SPDX-License-Identifier: MIT
#include "comm/plugin/plugin.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>

#include "aplib/version.hpp"

namespace aplib::comm::plugin {
namespace {

/// The size of a plug-in of interface 1.0. It never grows, because old plug-ins have no more.
constexpr std::size_t bytes_of_1_0 = offsetof(aplib_comm_plugin, let_go);

std::string versions(const aplib_comm_head& head) {
  return fmt::format("it was built for plug-in interface {}.{}, this APlib ({}) has {}.{}", head.major, head.minor,
                     aplib::version, APLIB_COMM_MAJOR, APLIB_COMM_MINOR);
}

bool is_name(const char* name) {
  constexpr std::size_t name_max = 32;
  if (name == nullptr) return false;
  const std::string_view text(name, ::strnlen(name, name_max + 1));
  return !text.empty() && text.size() <= name_max && text != "auto" &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") == text.npos;
}

/// The first missing function of those that every module has, or that come together with functions that are there.
const char* missing(const aplib_comm_plugin& known) {
  struct Named {
    const char* name;
    bool there;
  };
#define APLIB_NAMED(function)            \
  Named {                                \
#function, known.function != nullptr \
  }
  for (const Named& each :
       {APLIB_NAMED(usable), APLIB_NAMED(open), APLIB_NAMED(endpoint), APLIB_NAMED(joins), APLIB_NAMED(join),
        APLIB_NAMED(close_port), APLIB_NAMED(start), APLIB_NAMED(send), APLIB_NAMED(queued), APLIB_NAMED(flush),
        APLIB_NAMED(poll), APLIB_NAMED(wait), APLIB_NAMED(wake), APLIB_NAMED(close), APLIB_NAMED(destroy),
        APLIB_NAMED(traffic), APLIB_NAMED(describe)})
    if (!each.there) return each.name;
  const auto incomplete = [](std::initializer_list<Named> group, bool wanted) -> const char* {
    if (!wanted && std::ranges::none_of(group, &Named::there)) return nullptr;
    const auto* const first = std::ranges::find(group, false, &Named::there);
    return first != group.end() ? first->name : nullptr;
  };
  if (const char* name = incomplete({APLIB_NAMED(descriptor), APLIB_NAMED(arm), APLIB_NAMED(disarm)}, false))
    return name;
  return incomplete(
      {APLIB_NAMED(reaches_memory), APLIB_NAMED(expose), APLIB_NAMED(conceal), APLIB_NAMED(write), APLIB_NAMED(read)},
      (known.can & APLIB_COMM_REMOTE_MEMORY) != 0);
#undef APLIB_NAMED
}

}  // namespace

std::optional<std::string> Plugin::refusal(const aplib_comm_plugin& exported, std::size_t readable) {
  aplib_comm_head head{};
  if (readable < sizeof head) {
    return fmt::format(
        "its aplib_comm_plugin_entry has {} bytes and cannot be one: declare it as "
        "<aplib/comm_module.h> says",
        readable);
  }
  std::memcpy(&head, &exported, sizeof head);
  if (std::memcmp(head.magic, "APLIBCM", sizeof head.magic) != 0)
    return "its aplib_comm_plugin_entry does not begin with APLIB_COMM_HEAD: initialise .head with that";
  if (head.major != APLIB_COMM_MAJOR)
    return fmt::format("{}: compile it again with the headers of this APlib", versions(head));
  if (head.required_minor > APLIB_COMM_MINOR) {
    return fmt::format("{}, and it requires {}.{}: install a newer APlib, or compile it with the headers of this one",
                       versions(head), head.major, head.required_minor);
  }
  if (head.bytes > readable || head.bytes < bytes_of_1_0) {
    return fmt::format(
        "it says that its aplib_comm_plugin has {} bytes; {} were expected, and {} are there: compile "
        "all of it with one <aplib/comm_module.h>",
        head.bytes, sizeof(aplib_comm_plugin), readable);
  }
  const Plugin plugin(exported);
  if (!is_name(plugin->name))
    return "its name is none: use lower-case letters, digits, '-' and '_', at most 32, and not auto";
  if (plugin->version == nullptr || plugin->description == nullptr) return "it has no version or no description";
  if (const char* function = missing(*plugin.operator->()))
    return fmt::format("function {} is missing: <aplib/comm_module.h> says which can be left out", function);
  return std::nullopt;
}

Plugin::Plugin(const aplib_comm_plugin& exported) noexcept : exported_(&exported) {
  std::memcpy(&known_, &exported, std::min<std::size_t>(sizeof known_, exported.head.bytes));
}

OpenedPlugin exported_plugin(void* file) {
  void* const symbol = ::dlsym(file, "aplib_comm_plugin_entry");
  if (symbol == nullptr) {
    return {
        .refusal =
            "it exports no aplib_comm_plugin_entry: it is not a module of APlib's, or APLIB_COMM_EXPORT is missing"};
  }
  const std::optional<std::size_t> bytes = bytes_of_variable(symbol);
  if (!bytes)
    return {.refusal = "its aplib_comm_plugin_entry is no variable: declare it as <aplib/comm_module.h> says"};
  const auto* const exported = static_cast<const aplib_comm_plugin*>(symbol);
  if (std::optional<std::string> why = Plugin::refusal(*exported, *bytes)) return {.refusal = *std::move(why)};
  return {.exported = exported};
}

std::optional<std::size_t> bytes_of_variable(void* symbol) {
  Dl_info info{};
  ElfW(Sym)* entry = nullptr;
  if (::dladdr1(symbol, &info, reinterpret_cast<void**>(&entry), RTLD_DL_SYMENT) == 0 || entry == nullptr ||
      ELF64_ST_TYPE(entry->st_info) != STT_OBJECT)
    return std::nullopt;
  return entry->st_size;
}

}  // namespace aplib::comm::plugin
