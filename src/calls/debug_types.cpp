// SPDX-License-Identifier: MIT
#include "calls/debug_types.hpp"

#include <fmt/format.h>

#include <utility>

#include "aplib/error.hpp"

namespace aplib::calls {
namespace {
using TypeKind = DebugType::Kind;
}
}  // namespace aplib::calls

// The types come from the headers. The functions come from the library that is there when a program's types are asked
// for, so that no process depends on it that never does.
#if __has_include(<elfutils/libdw.h>)
#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdw.h>

#include <filesystem>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/os/descriptor.hpp"

namespace aplib::calls {
namespace {

constexpr int type_depth_max = 50;  // of types in types, of a file that may be anybody's

struct Library {
  decltype(&::dwarf_begin) begin = nullptr;
  decltype(&::dwarf_end) end = nullptr;
  decltype(&::dwarf_nextcu) next_unit = nullptr;
  decltype(&::dwarf_offdie) entry_at = nullptr;
  decltype(&::dwarf_getfuncs) functions = nullptr;
  decltype(&::dwarf_entrypc) entry_address = nullptr;
  decltype(&::dwarf_child) child = nullptr;
  decltype(&::dwarf_siblingof) sibling = nullptr;
  decltype(&::dwarf_tag) tag = nullptr;
  decltype(&::dwarf_attr_integrate) attribute = nullptr;
  decltype(&::dwarf_formref_die) as_entry = nullptr;
  decltype(&::dwarf_formudata) as_number = nullptr;
  decltype(&::dwarf_formstring) as_text = nullptr;
  decltype(&::dwarf_srclang) language = nullptr;
  decltype(&::dwarf_decl_file) file = nullptr;
  decltype(&::dwarf_decl_line) line = nullptr;

  /// Null: this computer has none.
  static const Library* get() {
    static const std::unique_ptr<const Library> library = load();
    return library.get();
  }

 private:
  static std::unique_ptr<const Library> load() {
    void* const handle = ::dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return nullptr;
    auto library = std::make_unique<Library>();
    bool complete = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
      complete = complete && function != nullptr;
    };
    find(library->begin, "dwarf_begin");
    find(library->end, "dwarf_end");
    find(library->next_unit, "dwarf_nextcu");
    find(library->entry_at, "dwarf_offdie");
    find(library->functions, "dwarf_getfuncs");
    find(library->entry_address, "dwarf_entrypc");
    find(library->child, "dwarf_child");
    find(library->sibling, "dwarf_siblingof");
    find(library->tag, "dwarf_tag");
    find(library->attribute, "dwarf_attr_integrate");
    find(library->as_entry, "dwarf_formref_die");
    find(library->as_number, "dwarf_formudata");
    find(library->as_text, "dwarf_formstring");
    find(library->language, "dwarf_srclang");
    find(library->file, "dwarf_decl_file");
    find(library->line, "dwarf_decl_line");
    return complete ? std::move(library) : nullptr;
  }
};

/// The debug information of one file.
class DebugFile {
 public:
  DebugFile(const Library& library, const std::string& file)
      : lib_(library), file_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_) information_ = lib_.begin(file_.get(), DWARF_C_READ);
  }
  ~DebugFile() {
    if (information_ != nullptr) lib_.end(information_);
  }
  DebugFile(const DebugFile&) = delete;
  DebugFile& operator=(const DebugFile&) = delete;

  /// Functions for which wanted(entry) says yes, up to `most` of them.
  template <class Wanted>
  std::vector<DebugFunction> find(Wanted wanted, std::size_t most) {
    std::vector<DebugFunction> found;
    if (information_ == nullptr) return found;
    struct Search {
      Wanted& wanted;
      std::size_t most;
      std::vector<Dwarf_Die> entries{};
    } search{wanted, most};
    Dwarf_Off next = 0;
    std::size_t header = 0;
    for (Dwarf_Off unit = 0; lib_.next_unit(information_, unit, &next, &header, nullptr, nullptr, nullptr) == 0;
         unit = next) {
      Dwarf_Die entry;
      if (lib_.entry_at(information_, unit + header, &entry) == nullptr) continue;
      const auto look = [](Dwarf_Die* each, void* argument) -> int {
        auto& search = *static_cast<Search*>(argument);
        if (search.wanted(each)) search.entries.push_back(*each);
        return search.entries.size() < search.most ? DWARF_CB_OK : DWARF_CB_ABORT;
      };
      lib_.functions(&entry, look, &search, 0);
      const bool is_fortran = comes_from_fortran(&entry);
      while (found.size() < search.entries.size())
        found.push_back(read_function(search.entries[found.size()], is_fortran));
      if (found.size() >= most) break;
    }
    return found;
  }

  [[nodiscard]] bool begins_at(Dwarf_Die* function, Dwarf_Addr address) const {
    Dwarf_Addr begin = 0;
    return lib_.entry_address(function, &begin) == 0 && begin == address;
  }
  [[nodiscard]] bool is_called(Dwarf_Die* function, std::string_view name) const {
    Dwarf_Addr begin = 0;
    Dwarf_Attribute external;
    return (text_of(function, DW_AT_name) == name || symbol_of(function) == name) &&
           lib_.entry_address(function, &begin) == 0 && lib_.attribute(function, DW_AT_external, &external) != nullptr;
  }

 private:
  std::string text_of(Dwarf_Die* entry, unsigned attribute) const {
    Dwarf_Attribute found;
    const char* const text = lib_.attribute(entry, attribute, &found) != nullptr ? lib_.as_text(&found) : nullptr;
    return text != nullptr ? text : "";
  }
  std::string symbol_of(Dwarf_Die* function) const {
    const std::string linked = text_of(function, DW_AT_linkage_name);
    return linked.empty() ? text_of(function, DW_AT_name) : linked;
  }
  std::uint64_t number_of(Dwarf_Die* entry, unsigned attribute) const {
    Dwarf_Attribute found;
    Dwarf_Word number = 0;
    const bool there = lib_.attribute(entry, attribute, &found) != nullptr && lib_.as_number(&found, &number) == 0;
    return there ? number : 0;
  }

  [[nodiscard]] bool comes_from_fortran(Dwarf_Die* unit) const {
    switch (lib_.language(unit)) {
      case DW_LANG_Fortran77:
      case DW_LANG_Fortran90:
      case DW_LANG_Fortran95:
      case DW_LANG_Fortran03:
      case DW_LANG_Fortran08:
        return true;
      default:
        return false;
    }
  }

  DebugFunction read_function(Dwarf_Die& entry, bool is_fortran) const {
    DebugFunction function{.name = text_of(&entry, DW_AT_name),
                           .symbol = symbol_of(&entry),
                           .arguments = {},
                           .result = type_of(&entry, 0)};
    const char* const file = lib_.file(&entry);
    int line = 0;
    if (file != nullptr && lib_.line(&entry, &line) == 0)
      function.place = fmt::format("{}:{}", std::filesystem::path(file).filename().string(), line);
    Dwarf_Die child;
    for (int there = lib_.child(&entry, &child); there == 0; there = lib_.sibling(&child, &child)) {
      const int tag = lib_.tag(&child);
      if (tag == DW_TAG_unspecified_parameters) function.takes_more = true;
      if (tag != DW_TAG_formal_parameter) continue;
      DebugType type = type_of(&child, 0);
      // Fortran passes addresses, but for lengths of texts, which are nobody's arguments.
      Dwarf_Attribute artificial;
      if (is_fortran && type.kind == TypeKind::value &&
          lib_.attribute(&child, DW_AT_artificial, &artificial) == nullptr)
        type.kind = TypeKind::reference;
      function.arguments.push_back({.name = text_of(&child, DW_AT_name), .type = std::move(type)});
    }
    return function;
  }

  /// The type that the entry's attribute names.
  DebugType type_of(Dwarf_Die* entry, int depth) const {
    Dwarf_Attribute attribute;
    Dwarf_Die type;
    if (lib_.attribute(entry, DW_AT_type, &attribute) == nullptr || lib_.as_entry(&attribute, &type) == nullptr)
      return {};
    return read_type(&type, depth);
  }

  DebugType read_type(Dwarf_Die* entry, int depth) const {
    if (depth > type_depth_max) return {.kind = TypeKind::other, .text = "?"};
    const std::string name = text_of(entry, DW_AT_name);
    switch (lib_.tag(entry)) {
      case DW_TAG_base_type: {
        const auto type = base_type(entry, name);
        return {.kind = type ? TypeKind::value : TypeKind::other, .type = type, .text = name};
      }
      case DW_TAG_enumeration_type: {
        DebugType type = type_of(entry, depth + 1);
        if (type.kind != TypeKind::value)
          type = {.kind = TypeKind::value, .type = integer(true, number_of(entry, DW_AT_byte_size)), .text = {}};
        if (!type.type) type.kind = TypeKind::other;
        type.text = "enum " + name;
        return type;
      }
      case DW_TAG_typedef: {
        DebugType type = type_of(entry, depth + 1);
        type.text = name;
        return type;
      }
      case DW_TAG_const_type: {
        DebugType type = type_of(entry, depth + 1);
        if (!type.is_address()) type.is_const = true;  // of an address: the variable alone
        type.text += " const";
        return type;
      }
      case DW_TAG_volatile_type:
      case DW_TAG_restrict_type:
      case DW_TAG_atomic_type:
        return type_of(entry, depth + 1);
      case DW_TAG_pointer_type:
      case DW_TAG_reference_type:
      case DW_TAG_rvalue_reference_type: {
        const bool is_pointer = lib_.tag(entry) == DW_TAG_pointer_type;
        DebugType type = type_of(entry, depth + 1);
        if (!type.text.ends_with('*')) type.text += ' ';
        type.text += is_pointer ? '*' : '&';
        if (type.kind != TypeKind::value) type.type.reset();
        type.kind = !is_pointer                    ? TypeKind::reference
                    : type.type == Type::character ? TypeKind::text
                                                   : TypeKind::address;
        return type;
      }
      case DW_TAG_array_type: {  // of Fortran: C's are pointers
        DebugType type = type_of(entry, depth + 1);
        type.text += "[]";
        if (type.kind != TypeKind::value) type.type.reset();
        type.kind = TypeKind::address;
        return type;
      }
      case DW_TAG_structure_type:
        return {.kind = TypeKind::other, .text = "struct " + name};
      case DW_TAG_class_type:
        return {.kind = TypeKind::other, .text = name};
      case DW_TAG_union_type:
        return {.kind = TypeKind::other, .text = "union " + name};
      case DW_TAG_subroutine_type:
        return {.kind = TypeKind::other, .text = "function"};
      default:
        return {.kind = TypeKind::other, .text = name.empty() ? "?" : name};
    }
  }

  static std::optional<Type> integer(bool is_signed, std::uint64_t bytes) {
    switch (bytes) {
      case 1:
        return is_signed ? Type::signed_character : Type::unsigned_character;
      case 2:
        return is_signed ? Type::short_integer : Type::unsigned_short;
      case 4:
        return is_signed ? Type::integer : Type::unsigned_integer;
      case 8:
        return is_signed ? Type::long_integer : Type::unsigned_long;
      default:
        return std::nullopt;
    }
  }

  std::optional<Type> base_type(Dwarf_Die* entry, std::string_view name) const {
    const std::uint64_t bytes = number_of(entry, DW_AT_byte_size);
    const auto real = [&](std::uint64_t single, Type short_type, Type long_type) -> std::optional<Type> {
      if (bytes == single) return short_type;
      return bytes == 2 * single ? std::optional(long_type) : std::nullopt;
    };
    switch (number_of(entry, DW_AT_encoding)) {
      case DW_ATE_boolean:
        return bytes == 1 ? Type::boolean : integer(true, bytes);  // Fortran's LOGICAL
      case DW_ATE_signed_char:
      case DW_ATE_signed:
        return name == "char" ? Type::character : integer(true, bytes);
      case DW_ATE_unsigned_char:
      case DW_ATE_unsigned:
        return name == "char" ? Type::character : integer(false, bytes);
      case DW_ATE_float:
        return real(4, Type::single_real, Type::double_real);
      case DW_ATE_complex_float:
        return real(8, Type::single_complex, Type::double_complex);
      default:
        return std::nullopt;
    }
  }

  const Library& lib_;
  os::UniqueFd file_;
  Dwarf* information_ = nullptr;
};

}  // namespace

std::optional<DebugFunction> debug_function(const std::string& file, std::uint64_t address) {
  const Library* const library = Library::get();
  if (library == nullptr) return std::nullopt;
  DebugFile debug(*library, file);
  auto found = debug.find([&](Dwarf_Die* each) { return debug.begins_at(each, address); }, 1);
  return found.empty() ? std::nullopt : std::optional(std::move(found.front()));
}

std::vector<DebugFunction> debug_functions(const std::string& file, std::string_view name) {
  const Library* const library = Library::get();
  if (library == nullptr) return {};
  DebugFile debug(*library, file);
  return debug.find([&](Dwarf_Die* each) { return debug.is_called(each, name); }, SIZE_MAX);
}

}  // namespace aplib::calls

#else

namespace aplib::calls {

std::optional<DebugFunction> debug_function(const std::string& /*file*/, std::uint64_t /*address*/) {
  return std::nullopt;
}

std::vector<DebugFunction> debug_functions(const std::string& /*file*/, std::string_view /*name*/) { return {}; }

}  // namespace aplib::calls

#endif

namespace aplib::calls {
namespace {

/// Passed in the same place with the same size: int and unsigned are, int and float are not.
bool is_alike(Type one, Type other) {
  const auto is_whole = [](Type type) { return is_integer(type) || type == Type::boolean; };
  return one == other || (is_whole(one) && is_whole(other) && bytes_of(one) == bytes_of(other));
}

/// A value of `passed` is what the function takes there, or returns.
bool fits(Type passed, const DebugType& type) {
  if (is_text(passed)) return type.is_address() && (!type.type || bytes_of(*type.type) == 1);
  return type.kind == TypeKind::value && type.type && is_alike(passed, *type.type);
}

bool fits(const Parameter& parameter, const DebugType& type) {
  if (parameter.is_by_value()) return fits(parameter.type, type);
  return type.is_address() && (is_text(parameter.type) || !type.type || is_alike(parameter.type, *type.type));
}

/// How a user would write it; sizes that are not known are dots.
std::string as_signature(const DebugFunction& function, const std::string& name) {
  std::string text = name + "(";
  for (const auto& each : function.arguments) {
    if (&each != function.arguments.data()) text += ",";
    const std::string type(each.type.type ? name_of(*each.type.type) : "?");
    if (each.type.kind == TypeKind::address)
      text += fmt::format("{} {} {}[...]", each.type.is_const ? "IN" : "INOUT", type, each.name);
    else if (each.type.kind == TypeKind::text)
      text += "string " + each.name;
    else
      text += type + (each.type.kind == TypeKind::reference ? " *" : " ") + each.name;
  }
  const DebugType& result = function.result;
  if (result.kind == TypeKind::nothing) return text + ")";
  return fmt::format("{})->{}", text,
                     result.kind == TypeKind::text ? "string"
                     : result.type                 ? name_of(*result.type)
                                                   : "?");
}

[[noreturn]] void refuse(const DebugFunction& function, const std::string& name, const std::string& why) {
  throw Error(Errc::bad_option, fmt::format("entry {}: the program has {}{}: {}", name, print_function(function),
                                            function.place.empty() ? "" : fmt::format(" ({})", function.place), why));
}

}  // namespace

std::string print_argument(const DebugFunction::Argument& argument) {
  const std::string_view gap = argument.name.empty() || argument.type.text.ends_with('*') ? "" : " ";
  return fmt::format("{}{}{}", argument.type.text, gap, argument.name);
}

std::string print_function(const DebugFunction& function) {
  std::string text = function.name + "(";
  for (const auto& each : function.arguments) {
    if (&each != function.arguments.data()) text += ", ";
    text += print_argument(each);
  }
  if (function.takes_more) text += function.arguments.empty() ? "..." : ", ...";
  return fmt::format("{}) -> {}", text, function.result.text);
}

std::optional<Parameter> parameter_of(const DebugFunction::Argument& argument) {
  const DebugType& type = argument.type;
  const bool is_text = type.kind == TypeKind::text;
  if (!is_text && !type.type) return std::nullopt;
  Parameter parameter;
  parameter.name = argument.name;
  parameter.type = is_text ? Type::string : *type.type;
  parameter.pointer = type.kind == TypeKind::reference;
  if (!is_text && type.is_address() && !type.is_const) parameter.mode = Mode::inout;
  return parameter;
}

Function signature_of(const DebugFunction& function, const std::string& name) {
  Function signature;
  signature.name = name;
  for (const auto& each : function.arguments) {
    auto parameter = parameter_of(each);
    if (!parameter)
      refuse(function, name, fmt::format("{} cannot be passed: call a function that makes it", print_argument(each)));
    if (each.type.kind == TypeKind::address) {
      refuse(function, name,
             fmt::format("how many elements {} has is not known: write the sizes, --entry '{}'", print_argument(each),
                         as_signature(function, name)));
    }
    signature.parameters.push_back(std::move(*parameter));
  }
  const DebugType& result = function.result;
  if (result.kind == TypeKind::text) signature.result = Type::string;
  if (result.kind == TypeKind::value) signature.result = result.type;
  return signature;
}

void check_signature(const Function& signature, const DebugFunction& function) {
  const std::size_t takes = function.arguments.size();
  const std::size_t gets = signature.parameters.size();
  const auto wrong = [&](const std::string& what) {
    refuse(function, print_signature(signature),
           fmt::format("{}: write --entry '{}'", what, as_signature(function, signature.name)));
  };
  if (gets < takes || (gets > takes && !function.takes_more))
    wrong(fmt::format("it takes {} argument{}, not {}", takes, takes == 1 ? "" : "s", gets));
  for (std::size_t i = 0; i < takes; ++i) {
    if (fits(signature.parameters[i], function.arguments[i].type)) continue;
    wrong(fmt::format("parameter {} is {}", i + 1, print_argument(function.arguments[i])));
  }
  if (signature.result && !fits(*signature.result, function.result))
    wrong(fmt::format("it returns {}", function.result.text));
}

}  // namespace aplib::calls
