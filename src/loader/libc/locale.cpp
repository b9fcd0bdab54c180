// SPDX-License-Identifier: MIT
// Setlocale, per instance, by uselocale.
//
// What a program takes for the global locale is a locale object that its threads use while it runs (context.hpp).
// libc's conversions, localeconv and nl_langinfo follow by themselves. As long as a program keeps "C", nothing is
// exchanged.
//
// Uselocale() of a thread that the program has made is libc's, for the thread is the program's alone. Tasks share the
// threads that carry them, so theirs is kept here, for all tasks of the instance.
#include <libintl.h>
#include <locale.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "loader/context.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/state.hpp"

namespace aplib::loader::libc {
namespace {

struct Category {
  int number;
  const char* name;
};

// In the order of glibc's composite names.
constexpr std::array categories{
    Category{LC_CTYPE, "LC_CTYPE"},
    Category{LC_NUMERIC, "LC_NUMERIC"},
    Category{LC_TIME, "LC_TIME"},
    Category{LC_COLLATE, "LC_COLLATE"},
    Category{LC_MONETARY, "LC_MONETARY"},
    Category{LC_MESSAGES, "LC_MESSAGES"},
    Category{LC_PAPER, "LC_PAPER"},
    Category{LC_NAME, "LC_NAME"},
    Category{LC_ADDRESS, "LC_ADDRESS"},
    Category{LC_TELEPHONE, "LC_TELEPHONE"},
    Category{LC_MEASUREMENT, "LC_MEASUREMENT"},
    Category{LC_IDENTIFICATION, "LC_IDENTIFICATION"},
};

using Names = std::array<std::string, categories.size()>;

/// Where an instance has the messages of a domain. Never destroyed.
struct Catalogue {
  std::string folder;   ///< Empty: libc's default.
  std::string codeset;  ///< Empty: that of the locale.
  std::string name;     ///< The domain's, for libc.
};

}  // namespace

struct LocaleState {
  std::mutex mutex;  ///< Locked while what follows up to `kept` is used: threads of the program may call at once.
  Names names;       ///< What setlocale() was told.
  /// The locale of those names. Changed in place, as libc changes its own: who uses it sees what another flow sets.
  __locale_struct room{};
  std::atomic<locale_t> global{nullptr};  ///< That one, once it was needed; null: the process's.
  locale_t chosen = nullptr;              ///< What a task gave to uselocale(); null: LC_GLOBAL_LOCALE.
  lconv numbers{};                        ///< localeconv
  std::string message_domain;             ///< textdomain; empty: not told
  std::map<std::string, const Catalogue*, std::less<>> catalogues;  ///< bindtextdomain, by domain
  /// Texts that were returned: programs hold on to them.
  std::set<std::string> returned;
  /// By full name. A locale that was used once stays: a thread of the program may still use it, and programs like
  /// to go to and fro.
  std::map<std::string, locale_t> made;
  /// Copies of what tasks have chosen, each once. The program may free its own while they are in use.
  std::vector<locale_t> kept;

  LocaleState() { names.fill("C"); }
  ~LocaleState() {
    for (const auto& [name, locale] : made) freelocale(locale);
    for (const locale_t locale : kept) freelocale(locale);
  }
  LocaleState(const LocaleState&) = delete;
  LocaleState& operator=(const LocaleState&) = delete;
};

namespace {

LocaleState& locale_of(LibcState& state) { return shared_part(state.locale); }

std::string composite(const Names& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text.push_back(';');
    text.append(categories[i].name).append("=").append(names[i]);
  }
  return text;
}

// As glibc prints LC_ALL: one name if all are equal.
std::string full_name(const Names& names) {
  for (const std::string& name : names) {
    if (name != names.front()) return composite(names);
  }
  return names.front();
}

// What "" means for a category in the instance's environment.
std::string from_environment(const LibcState& state, const Category& category) {
  for (const char* variable : {"LC_ALL", category.name, "LANG"}) {
    const char* value = find_variable(state, variable);
    if (value != nullptr && *value != '\0') return value;
  }
  return "C";
}

// "LC_CTYPE=a;LC_NUMERIC=b;..." into `names`; false: not of that form, or a category is missing.
bool parse_composite(std::string_view text, Names& names) {
  std::array<bool, categories.size()> seen{};
  while (!text.empty()) {
    const std::string_view clause = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(clause.size() + 1, text.size()));
    const std::size_t equals = clause.find('=');
    if (equals == std::string_view::npos) return false;
    std::size_t i = 0;
    while (i < categories.size() && clause.substr(0, equals) != categories[i].name) ++i;
    if (i == categories.size()) return false;
    names[i] = clause.substr(equals + 1);
    seen[i] = true;
  }
  for (const bool each : seen) {
    if (!each) return false;
  }
  return true;
}

// The names after setlocale(category, name). False: there is no such category or form.
bool change_names(const LibcState& state, int category, std::string_view name, Names& names) {
  bool known = category == LC_ALL;
  if (known && name.find(';') != std::string_view::npos) {
    if (!parse_composite(name, names)) return false;
  } else {
    for (std::size_t i = 0; i < categories.size(); ++i) {
      if (category != LC_ALL && category != categories[i].number) continue;
      known = true;
      names[i] = name;
    }
  }
  for (std::size_t i = 0; i < categories.size(); ++i) {
    if (names[i].empty()) names[i] = from_environment(state, categories[i]);
    if (names[i] == "POSIX") names[i] = "C";
  }
  return known;
}

bool process_uses_c() {
  const char* name = ::setlocale(LC_ALL, nullptr);
  return name != nullptr && std::string_view(name) == "C";
}

// The locale object of these names, for as long as the instance lives; null and errno: there is none.
locale_t find_or_make(LocaleState& own, const Names& names) {
  std::string name = full_name(names);
  if (const auto found = own.made.find(name); found != own.made.end()) return found->second;
  const locale_t fresh = ::newlocale(LC_ALL_MASK, name.c_str(), nullptr);
  if (fresh != nullptr) own.made.emplace(std::move(name), fresh);
  return fresh;
}

bool is_same(const __locale_struct& one, const __locale_struct& other) noexcept {
  return std::ranges::all_of(categories, [&](const Category& category) {
    return one.__locales[category.number] == other.__locales[category.number];  // the data are there once
  });
}

/// The copy of `locale`, for as long as the instance lives; null and errno: there is no memory.
locale_t find_or_keep(LocaleState& own, locale_t locale) {
  const auto same = [&](locale_t each) { return is_same(*each, *locale); };
  if (const auto found = std::ranges::find_if(own.kept, same); found != own.kept.end()) return *found;
  own.kept.reserve(own.kept.size() + 1);
  const locale_t copy = ::duplocale(locale);
  if (copy != nullptr) own.kept.push_back(copy);
  return copy;
}

/// What the calling thread, which the program has made, gave to uselocale(); null: LC_GLOBAL_LOCALE.
constinit thread_local locale_t chosen_by_thread = nullptr;

bool has_own_thread(const TaskContext* flow) noexcept { return flow != nullptr && flow->of_thread; }

/// Has the calling flow use what it should. It may not: another one has called setlocale() for the first time.
void use_own(const LibcState& state, const LocaleState& own) noexcept {
  const TaskContext* const flow = here();
  if (flow == nullptr) return;  // the thread serves other programs, too
  locale_t wanted = state.thread_locale;
  if (has_own_thread(flow)) wanted = chosen_by_thread != nullptr ? chosen_by_thread : own.global.load();
  ::uselocale(wanted != nullptr ? wanted : LC_GLOBAL_LOCALE);
}

/// Has tasks use `locale`: the calling one now, others when they run next. A thread of the program calls it where they
/// use the process's, and nowhere else: the switch must know what is loaded where they run now.
void tasks_use(Instance& instance, locale_t locale) {
  LibcState& state = instance.libc();
  if (state.thread_locale == locale) return;
  state.thread_locale = locale;
  thread_state_changed(instance);  // fails for directories alone
}

/// False, errno set: there is no such locale.
bool set_global(LocaleState& own, const Names& names) {
  const locale_t found = find_or_make(own, names);
  if (found == nullptr) return false;
  own.names = names;
  own.room = *found;
  own.global = &own.room;  // and so it stays: those who have it loaded need not be told of "C"
  return true;
}

const std::string& text_of(LocaleState& own, int category) {
  for (std::size_t i = 0; i < categories.size(); ++i) {
    if (categories[i].number == category) return *own.returned.insert(own.names[i]).first;
  }
  return *own.returned.insert(full_name(own.names)).first;
}

char* change_locale(Instance& instance, int category, const char* name) {
  if (category < 0 || category > LC_IDENTIFICATION) {
    errno = EINVAL;
    return nullptr;
  }
  LocaleState& own = locale_of(instance.libc());
  const std::lock_guard lock(own.mutex);
  if (name != nullptr) {
    Names names = own.names;
    if (!change_names(instance.libc(), category, name, names)) {
      errno = EINVAL;
      return nullptr;
    }
    if (names != own.names) {
      if (!set_global(own, names)) return nullptr;
      if (own.chosen == nullptr) tasks_use(instance, own.global);
    }
  }
  use_own(instance.libc(), own);
  return const_cast<char*>(text_of(own, category).c_str());
}

// --- what programs call

char* own_setlocale(Instance& instance, int category, const char* name) {
  try {
    return change_locale(instance, category, name);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return nullptr;
  }
}

/// `locale` null: LC_GLOBAL_LOCALE. False, errno set: there is no memory.
bool choose_for_tasks(Instance& instance, LocaleState& own, locale_t locale) try {
  const std::lock_guard lock(own.mutex);
  const locale_t used = locale != nullptr ? find_or_keep(own, locale) : own.global.load();
  if (used == nullptr && locale != nullptr) return false;
  own.chosen = locale;
  tasks_use(instance, used);
  return true;
} catch (const std::bad_alloc&) {
  errno = ENOMEM;
  return false;
}

locale_t own_uselocale(Instance& instance, locale_t locale) {
  const TaskContext* const flow = here();
  if (flow == nullptr) return ::uselocale(locale);
  LocaleState& own = locale_of(instance.libc());
  const locale_t before = has_own_thread(flow) ? chosen_by_thread : own.chosen;
  if (locale != nullptr) {
    const locale_t chosen = locale != LC_GLOBAL_LOCALE ? locale : nullptr;
    if (has_own_thread(flow)) {
      chosen_by_thread = chosen;
    } else if (!choose_for_tasks(instance, own, chosen)) {
      return nullptr;
    }
  }
  use_own(instance.libc(), own);
  return before != nullptr ? before : LC_GLOBAL_LOCALE;
}

std::string global_name(LocaleState& own) {
  const std::lock_guard lock(own.mutex);
  return full_name(own.names);
}

locale_t own_duplocale(locale_t locale) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr || locale != LC_GLOBAL_LOCALE) return ::duplocale(locale);
  return ::newlocale(LC_ALL_MASK, global_name(locale_of(*state)).c_str(), nullptr);
}

locale_t own_newlocale(int mask, const char* name, locale_t base) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr || name == nullptr || *name != '\0') return ::newlocale(mask, name, base);
  Names names;
  change_names(*state, LC_ALL, "", names);
  return ::newlocale(mask, full_name(names).c_str(), base);
}

lconv* own_localeconv(LibcState& state) {
  static std::mutex filling;  // libc fills one structure for the process
  const std::lock_guard lock(filling);
  LocaleState& own = locale_of(state);
  use_own(state, own);
  lconv& numbers = own.numbers;
  numbers = *::localeconv();
  return &numbers;
}

// --- messages. libc knows one folder for a domain, by its name. So where an instance has told one, libc is given
// another name, which leads to the same file of that folder: "./domain", "././domain", ...

std::mutex catalogues_mutex;  // of all instances'

/// With catalogues_mutex held.
const Catalogue& catalogue_for(const std::string& domain, const std::string& folder, const std::string& codeset) {
  static auto* const all = new std::map<std::string, std::deque<Catalogue>>;
  std::deque<Catalogue>& known = (*all)[domain];
  const auto same = [&](const Catalogue& each) { return each.folder == folder && each.codeset == codeset; };
  if (const auto found = std::ranges::find_if(known, same); found != known.end()) return *found;
  const std::string& last = known.empty() ? domain : known.back().name;
  const Catalogue& made = known.emplace_back(Catalogue{folder, codeset, "./" + last});
  if (!folder.empty()) ::bindtextdomain(made.name.c_str(), folder.c_str());
  if (!codeset.empty()) ::bind_textdomain_codeset(made.name.c_str(), codeset.c_str());
  return made;
}

/// What bindtextdomain() and its kin return: `part` of what the program has told, after `change` if there is one.
char* bind(LibcState& state, const char* domain, const char* change, std::string Catalogue::*part) {
  if (domain == nullptr || *domain == '\0') return nullptr;
  const std::lock_guard lock(catalogues_mutex);
  const Catalogue*& own = locale_of(state).catalogues[domain];
  if (change != nullptr) {
    Catalogue wanted = own != nullptr ? *own : Catalogue{};
    wanted.*part = change;
    own = &catalogue_for(domain, wanted.folder, wanted.codeset);
  }
  return own != nullptr && !(own->*part).empty() ? const_cast<char*>((own->*part).c_str()) : nullptr;
}

char* own_bindtextdomain(LibcState& state, const char* domain, const char* folder) {
  char* const own = bind(state, domain, folder, &Catalogue::folder);
  return own != nullptr ? own : ::bindtextdomain(domain, nullptr);
}

char* own_bind_textdomain_codeset(LibcState& state, const char* domain, const char* codeset) {
  return bind(state, domain, codeset, &Catalogue::codeset);
}

/// For libc. `named` null: the domain that is meant where none is named.
const char* domain_of(const void* caller, const char* named) {
  LibcState* state = state_of(caller);
  if (state == nullptr) return named;
  LocaleState& own = locale_of(*state);
  if (named == nullptr) named = own.message_domain.empty() ? "messages" : own.message_domain.c_str();
  const std::lock_guard lock(catalogues_mutex);
  const auto found = own.catalogues.find(std::string_view(named));
  return found != own.catalogues.end() && found->second != nullptr ? found->second->name.c_str() : named;
}

char* own_textdomain(LibcState& state, const char* domain) {
  LocaleState& own = locale_of(state);
  if (domain != nullptr) own.message_domain = *domain != '\0' ? domain : "messages";
  return own.message_domain.empty() ? const_cast<char*>("messages") : own.message_domain.data();
}

char* own_gettext(const char* text) { return ::dgettext(domain_of(__builtin_return_address(0), nullptr), text); }

char* own_dgettext(const char* domain, const char* text) {
  return ::dgettext(domain_of(__builtin_return_address(0), domain), text);
}

char* own_dcgettext(const char* domain, const char* text, int category) {
  return ::dcgettext(domain_of(__builtin_return_address(0), domain), text, category);
}

char* own_ngettext(const char* one, const char* many, unsigned long count) {
  return ::dngettext(domain_of(__builtin_return_address(0), nullptr), one, many, count);
}

char* own_dngettext(const char* domain, const char* one, const char* many, unsigned long count) {
  return ::dngettext(domain_of(__builtin_return_address(0), domain), one, many, count);
}

char* own_dcngettext(const char* domain, const char* one, const char* many, unsigned long count, int category) {
  return ::dcngettext(domain_of(__builtin_return_address(0), domain), one, many, count, category);
}

}  // namespace

void start_locale(Instance& instance) {
  if (process_uses_c()) return;  // where every program starts
  LocaleState& own = locale_of(instance.libc());
  if (set_global(own, own.names)) instance.libc().thread_locale = own.global;
}

void start_thread_locale(Instance& instance) noexcept {
  const LibcState& state = instance.libc();
  if (const LocaleState* const own = std::atomic_ref(instance.libc().locale.part).load(std::memory_order_acquire))
    use_own(state, *own);
}

std::span<const Binding> locale_bindings() {
  static const std::array table{
      bound<::setlocale, own_setlocale>("setlocale"),
      bound<::uselocale, own_uselocale>("uselocale"),
      bound<::uselocale, own_uselocale>("__uselocale"),
      Binding::of("duplocale", &own_duplocale),
      Binding::of("__duplocale", &own_duplocale),
      Binding::of("newlocale", &own_newlocale),
      Binding::of("__newlocale", &own_newlocale),
      bound<::localeconv, own_localeconv>("localeconv"),
      bound<::textdomain, own_textdomain>("textdomain"),
      bound<::bindtextdomain, own_bindtextdomain>("bindtextdomain"),
      bound<::bind_textdomain_codeset, own_bind_textdomain_codeset>("bind_textdomain_codeset"),
      Binding::of("gettext", &own_gettext),
      Binding::of("dgettext", &own_dgettext),
      Binding::of("__dgettext", &own_dgettext),
      Binding::of("dcgettext", &own_dcgettext),
      Binding::of("__dcgettext", &own_dcgettext),
      Binding::of("ngettext", &own_ngettext),
      Binding::of("dngettext", &own_dngettext),
      Binding::of("dcngettext", &own_dcngettext),
  };
  return table;
}

}  // namespace aplib::loader::libc
