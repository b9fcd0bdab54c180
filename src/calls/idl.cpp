// SPDX-License-Identifier: MIT
#include "calls/idl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>

#include "aplib/error.hpp"
#include "base/text.hpp"

namespace aplib::calls {
namespace {

/// Expressions and declarators nest no deeper, so that a hostile text cannot exhaust the stack.
constexpr int depth_max = 50;
constexpr std::size_t expression_nodes_max = 1000;
constexpr std::size_t shown_bytes_max = 40;

struct Token {
  enum class Kind : std::uint8_t { end, word, number, text, sign };
  Kind kind = Kind::end;
  std::string_view text;  ///< A text's without its quotes.
  Place at;

  [[nodiscard]] bool is(std::string_view what) const noexcept {
    return (kind == Kind::word || kind == Kind::sign) && text == what;
  }
};

bool is_letter(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
bool is_blank(char c) noexcept { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v'; }

std::string shown(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, shown_bytes_max))
    result += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text.size() > shown_bytes_max ? result + "..." : result;
}

/// What a text is, for what is said of it.
enum class Source : std::uint8_t {
  file,       ///< NAME:line:column
  signature,  ///< NAME, column
};

/// The text as tokens, from `begin` on, and as C text where the grammar has that.
class Scanner {
 public:
  Scanner(std::string_view text, const std::string& name, Source source = Source::file, std::size_t begin = 0)
      : name_(name), source_(source), text_(text) {
    if (text.size() > idl_bytes_max) refuse({}, "", "this is no IDL", fmt::format("use up to {} bytes", idl_bytes_max));
    while (at_ < begin) step();
    if (const std::size_t zero = text.find('\0'); zero != text.npos) {
      while (at_ < zero) step();
      refuse(place_, "", "a zero byte", "save the file as text");
    }
    advance();
  }

  [[nodiscard]] const Token& now() const noexcept { return now_; }

  Token take() {
    const Token token = now_;
    advance();
    return token;
  }

  /// Whether that comes next; takes it.
  bool take_if(std::string_view what) {
    if (!now_.is(what)) return false;
    advance();
    return true;
  }

  void expect(std::string_view what, std::string_view cause, std::string_view remedy) {
    if (!take_if(what)) refuse_now(cause, remedy);
  }

  /// What stands between braces; the opening one is now(). Braces in C's texts, characters and comments do not count.
  CText take_c_text(std::string_view subject) {
    const Place begin = now_.at;
    CText result{.text = {}, .line = place_.line};
    const std::size_t first = at_;
    for (int depth = 1; at_ < text_.size();) {
      if (skip_comment(begin, subject)) continue;
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        skip_quoted(c);
        continue;
      }
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
      if (depth == 0) {
        result.text = text_.substr(first, at_ - first);
        step();
        advance();
        return result;
      }
      step();
    }
    refuse(begin, "{", fmt::format("the C text of {} does not end", subject), "a } for each { is needed");
  }

  [[noreturn]] void refuse_now(std::string_view cause, std::string_view remedy) const {
    const std::string_view found = now_.kind == Token::Kind::end ? "the end" : now_.text;
    refuse(now_.at, found, cause, remedy);
  }

  [[noreturn]] void refuse(Place at, std::string_view found, std::string_view cause, std::string_view remedy) const {
    const std::string quoted = found.empty() ? "" : fmt::format("\"{}\": ", shown(found));
    const std::string place = source_ == Source::file ? fmt::format("{}:{}:{}", name_, at.line, at.column)
                                                      : fmt::format("{}, column {}", name_, at.column);
    throw Error(Errc::bad_option, fmt::format("{}: {}{}: {}", place, quoted, cause, remedy));
  }

 private:
  void step() noexcept {
    if (text_[at_++] == '\n') {
      ++place_.line;
      place_.column = 1;
    } else {
      ++place_.column;
    }
  }

  [[nodiscard]] bool comes(std::string_view what) const noexcept { return text_.substr(at_).starts_with(what); }

  bool skip_comment(Place from, std::string_view subject) {
    if (comes("//")) {
      while (at_ < text_.size() && text_[at_] != '\n') step();
      return true;
    }
    if (!comes("/*")) return false;
    const Place begin = place_;
    step();
    step();
    while (at_ < text_.size() && !comes("*/")) step();
    if (at_ == text_.size()) {
      if (subject.empty()) refuse(begin, "/*", "the comment does not end", "write */ behind it");
      refuse(from, "{", fmt::format("the C text of {} does not end", subject), "it ends in a comment: write */");
    }
    step();
    step();
    return true;
  }

  void skip_quoted(char quote) {
    step();
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) step();
      step();
    }
    if (at_ < text_.size()) step();
  }

  void advance() {
    for (;;) {
      while (at_ < text_.size() && is_blank(text_[at_])) step();
      if (!skip_comment({}, "")) break;
    }
    const std::size_t first = at_;
    now_ = {.kind = Token::Kind::end, .text = {}, .at = place_};
    if (at_ == text_.size()) return;
    const char c = text_[at_];
    if (c == '"') {
      take_text();
      return;
    }
    if (c == '#') {
      refuse(place_, "#", "directives of the C preprocessor stand nowhere but in C text",
             "put it into Globals { ... }, or run the file through cpp -P");
    }
    if (is_letter(c) || is_digit(c)) {
      now_.kind = is_letter(c) ? Token::Kind::word : Token::Kind::number;
      while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) step();
    } else {
      now_.kind = Token::Kind::sign;
      step();
      const std::string_view two = text_.substr(first, 2);
      if (two == "<=" || two == ">=" || two == "==" || two == "!=") step();
    }
    now_.text = text_.substr(first, at_ - first);
  }

  void take_text() {
    now_.kind = Token::Kind::text;
    step();
    const std::size_t first = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\') step();
    if (at_ < text_.size() && text_[at_] == '\\')
      refuse(place_, "\\", "a backslash in a text", "texts are literal: leave it out");
    if (at_ == text_.size()) refuse(now_.at, "\"", "the text does not end", "write \" behind it");
    now_.text = text_.substr(first, at_ - first);
    step();
  }

  const std::string& name_;
  Source source_;
  std::string_view text_;
  std::size_t at_ = 0;
  Place place_;
  Token now_;
};

constexpr std::array<std::string_view, 11> declarations{"Module",  "Define",         "DefClass",      "Globals",
                                                        "Library", "CompileOptions", "FortranFormat", "Compiler",
                                                        "Linker",  "Required",       "Calls"};

constexpr std::string_view types_remedy =
    "use bool, char, the integers from signed char to unsigned long long, int8_t to uint64_t, size_t, float, double, "
    "scomplex, dcomplex, string (char const*) or filename";

struct TypeName {
  std::string_view name;
  Type type;
};

// Types of one word that are no keywords which others can qualify.
constexpr std::array type_names{
    TypeName{"float", Type::single_real},
    TypeName{"double", Type::double_real},
    TypeName{"scomplex", Type::single_complex},
    TypeName{"dcomplex", Type::double_complex},
    TypeName{"string", Type::string},
    TypeName{"filename", Type::filename},
    TypeName{"bool", Type::boolean},
    TypeName{"_Bool", Type::boolean},
    TypeName{"int8_t", Type::signed_character},
    TypeName{"uint8_t", Type::unsigned_character},
    TypeName{"int16_t", Type::short_integer},
    TypeName{"uint16_t", Type::unsigned_short},
    TypeName{"int32_t", Type::integer},
    TypeName{"uint32_t", Type::unsigned_integer},
    TypeName{"int64_t", Type::long_integer},
    TypeName{"uint64_t", Type::unsigned_long},
    TypeName{"size_t", Type::unsigned_long},
    TypeName{"ssize_t", Type::long_integer},
    TypeName{"ptrdiff_t", Type::long_integer},
    TypeName{"intptr_t", Type::long_integer},
    TypeName{"uintptr_t", Type::unsigned_long},
};

/// How often each keyword of C's arithmetic types occurs in a type.
struct Keywords {
  int is_signed = 0, is_unsigned = 0, chars = 0, shorts = 0, ints = 0, longs = 0;

  /// False: not one of them.
  bool count(const Token& token) {
    const std::array<std::pair<std::string_view, int*>, 6> all{{{"signed", &is_signed},
                                                                {"unsigned", &is_unsigned},
                                                                {"char", &chars},
                                                                {"short", &shorts},
                                                                {"int", &ints},
                                                                {"long", &longs}}};
    for (const auto& [name, counter] : all)
      if (token.is(name)) return ++*counter, true;
    return false;
  }
  [[nodiscard]] bool any() const { return is_signed + is_unsigned + chars + shorts + ints + longs > 0; }
  [[nodiscard]] std::optional<Type> type() const {
    if (is_signed + is_unsigned > 1 || chars > 1 || shorts > 1 || ints > 1 || longs > 2) return std::nullopt;
    if (chars + shorts + (longs > 0 ? 1 : 0) > 1 || (chars > 0 && ints > 0)) return std::nullopt;
    const bool plus = is_unsigned > 0;
    if (chars > 0) return plus ? Type::unsigned_character : is_signed > 0 ? Type::signed_character : Type::character;
    if (shorts > 0) return plus ? Type::unsigned_short : Type::short_integer;
    if (longs > 0) return plus ? Type::unsigned_long : Type::long_integer;
    return plus ? Type::unsigned_integer : Type::integer;
  }
};

class Parser {
 public:
  Parser(std::string_view text, const std::string& name, Bodies bodies) : scan_(text, name), bodies_(bodies) {}
  /// Of the signature of `function`, whose parameters begin there.
  Parser(std::string_view text, const std::string& name, std::string function, std::size_t begin)
      : scan_(text, name, Source::signature, begin), source_(Source::signature) {
    function_.name = std::move(function);
  }

  Interface read() {
    while (scan_.now().kind != Token::Kind::end) read_declaration();
    if (interface_.name.empty()) scan_.refuse({}, "", "there is no module", "begin with: Module NAME;");
    if (interface_.functions.empty() && interface_.classes.empty())
      scan_.refuse_now("the module defines nothing", "write Define NAME(...) or DefClass NAME { ... }");
    return std::move(interface_);
  }

  Function read_signature() {
    if (scan_.now().kind == Token::Kind::end) return std::move(function_);
    read_parameters();
    if (scan_.now().kind == Token::Kind::end) return std::move(function_);
    constexpr std::string_view remedy = "write ->TYPE there";
    scan_.expect("-", "a result was expected", remedy);
    scan_.expect(">", "a result was expected", remedy);
    const Place at = scan_.now().at;
    if (!scan_.take_if("void")) {
      function_.result = read_type();
      if (scan_.take_if("*")) {
        if (function_.result != Type::character)
          scan_.refuse(at, "*", "an address as a result", "return it by an OUT parameter, as in OUT double x[n]");
        function_.result = Type::string;
        scan_.take_if("const");
      }
      if (function_.result == Type::filename)
        scan_.refuse(at, "filename", "a file as a result", "return its name, a string");
    }
    if (scan_.now().kind != Token::Kind::end) scan_.refuse_now("the signature ends before it", "leave it out");
    return std::move(function_);
  }

 private:
  void read_declaration() {
    const Token word = scan_.take();
    if (word.is("Module")) {
      if (!interface_.name.empty()) scan_.refuse(word.at, word.text, "a second module", "one file has one module");
      interface_.name = name("the module");
      end_of_declaration("the module's name");
      return;
    }
    if (word.is("Globals")) {
      need_brace("Globals");
      interface_.globals.push_back(scan_.take_c_text("Globals"));
    } else if (word.is("CompileOptions")) {
      interface_.compile_options.push_back(text_declaration(word));
    } else if (word.is("Library")) {
      interface_.libraries.push_back(text_declaration(word));
    } else if (word.is("Compiler")) {
      interface_.compiler = text_declaration(word);
    } else if (word.is("Linker")) {
      interface_.linker = text_declaration(word);
    } else if (word.is("FortranFormat")) {
      const Place at = scan_.now().at;
      interface_.fortran_format = text_declaration(word);
      if (interface_.fortran_format.find("%s") == std::string::npos)
        scan_.refuse(at, interface_.fortran_format, "it has no %s", "%s stands for the name, as in \"%s_\"");
    } else if (word.is("Define") || word.is("DefClass")) {
      if (interface_.name.empty())
        scan_.refuse(word.at, word.text, "it comes before the module", "begin with: Module NAME;");
      word.is("Define") ? read_function(interface_.functions, names_) : read_class();
    } else if (!word.is(";")) {
      refuse_unknown(word, "no declaration", declarations);
    }
  }

  template <std::size_t N>
  [[noreturn]] void refuse_unknown(const Token& found, std::string_view cause,
                                   const std::array<std::string_view, N>& known) {
    const auto nearest = text::nearest(found.text, known);
    scan_.refuse(found.at, found.text, cause,
                 nearest ? fmt::format("did you mean {}?", *nearest) : fmt::format("use {}", text::join(known)));
  }

  std::string name(std::string_view whose) {
    if (scan_.now().kind != Token::Kind::word)
      scan_.refuse_now(fmt::format("{} needs a name", whose), "names are of letters, digits and _");
    return std::string(scan_.take().text);
  }

  void end_of_declaration(std::string_view after) {
    scan_.expect(";", fmt::format("no ; follows {}", after), "end the line with ;");
  }

  void need_brace(std::string_view whose) {
    if (!scan_.now().is("{")) scan_.refuse_now(fmt::format("no C text follows {}", whose), "write { ... } there");
  }

  std::string text_declaration(const Token& word) {
    std::string result = text_option(word);
    end_of_declaration("the text");
    return result;
  }

  std::string text_option(const Token& word) {
    if (scan_.now().kind != Token::Kind::text)
      scan_.refuse_now(fmt::format("no text follows {}", word.text),
                       fmt::format("write {} \"...\" with double quotes", word.text));
    return std::string(scan_.take().text);
  }

  std::string optional_text() {
    return scan_.now().kind == Token::Kind::text ? std::string(scan_.take().text) : std::string();
  }

  void read_class() {
    ObjectClass object;
    std::set<std::string> methods;
    const Place at = scan_.now().at;
    object.name = name("the class");
    if (!names_.insert(object.name).second) scan_.refuse(at, object.name, "it is defined twice", "use another name");
    object.description = optional_text();
    while (read_option(&object.required)) {
    }
    scan_.expect("{", fmt::format("the methods of {} are missing", object.name),
                 "write { DefMethod ... } behind the class's name");
    while (!scan_.take_if("}")) {
      const Token word = scan_.take();
      if (word.is("DefMethod")) {
        read_function(object.methods, methods);
      } else if (word.is("DefState")) {
        need_brace("DefState");
        object.state = scan_.take_c_text("DefState");
      } else if (word.kind == Token::Kind::end) {
        scan_.refuse(at, object.name, "the class does not end", "write } behind its methods");
      } else if (!word.is(";")) {
        refuse_unknown(word, "no part of a class", std::array<std::string_view, 2>{"DefMethod", "DefState"});
      }
    }
    if (object.methods.empty()) scan_.refuse(at, object.name, "the class has no methods", "add DefMethod NAME(...)");
    interface_.classes.push_back(std::move(object));
  }

  /// `names`: what is defined there.
  void read_function(std::vector<Function>& functions, std::set<std::string>& names) {
    function_ = {};
    references_.clear();
    const Place at = scan_.now().at;
    function_.name = name("the function");
    if (!names.insert(function_.name).second)
      scan_.refuse(at, function_.name, "it is defined twice", "use another name");
    read_parameters();
    function_.description = optional_text();
    while (read_option(&function_.required)) {
    }
    read_body();
    functions.push_back(std::move(function_));
  }

  void read_parameters() {
    scan_.expect("(", fmt::format("the parameters of {} are missing", function_.name), "write ( ... ) behind its name");
    if (!scan_.take_if(")")) {
      const Place at = scan_.now().at;
      if (scan_.take_if("void")) {
        if (!scan_.now().is(")")) scan_.refuse(at, "void", "void is the type of a result only", "leave it out");
      } else {
        do read_parameter();
        while (scan_.take_if(","));
      }
      scan_.expect(")", fmt::format("the parameters of {} do not end", function_.name),
                   "write , before another one, ) behind the last");
    }
    resolve_references();
  }

  /// Required "...", and what other implementations need.
  bool read_option(std::vector<std::string>* required) {
    const Token word = scan_.now();
    if (word.is("Required")) {
      scan_.take();
      required->push_back(text_option(word));
      return true;
    }
    if (word.is("Backend")) {
      scan_.take();
      const Place at = scan_.now().at;
      const std::string backend = text_option(word);
      if (!text::equal_ignoring_case(backend, "normal"))
        scan_.refuse(at, backend, "there are no such servers", "leave Backend out, or write Backend \"NORMAL\"");
      return true;
    }
    if (word.is("Shrink") || word.is("Language")) {
      scan_.take();
      static_cast<void>(text_option(word));
      return true;
    }
    if (word.is("CalcOrder")) {  // how long it takes: for schedulers
      scan_.take();
      static_cast<void>(read_expression());
      references_.clear();
      scan_.take_if(";");
      return true;
    }
    return false;
  }

  void read_body() {
    if (bodies_ == Bodies::none && scan_.take_if(";")) return;
    if (scan_.now().is("{")) {
      function_.body = scan_.take_c_text(function_.name);
      return;
    }
    if (!scan_.take_if("Calls")) {
      scan_.refuse_now(fmt::format("what {} does is missing", function_.name),
                       "write { C text }, or Calls \"C\" FUNCTION(PARAMETER, ...);");
    }
    const Place at = scan_.now().at;
    const std::string language = optional_text();
    const bool fortran = text::equal_ignoring_case(language, "Fortran");
    if (!fortran && !language.empty() && !text::equal_ignoring_case(language, "C"))
      scan_.refuse(at, language, "no language", "use \"C\" or \"Fortran\"");
    function_.language = fortran ? "Fortran" : "C";
    function_.calls = name("the function that is called");
    scan_.expect("(", fmt::format("the arguments of {} are missing", function_.calls), "write ( ... ) behind its name");
    if (!scan_.take_if(")")) {
      do function_.call_arguments.push_back(parameter_named(scan_.take()));
      while (scan_.take_if(","));
      scan_.expect(")", fmt::format("the arguments of {} do not end", function_.calls),
                   "write , before another one, ) behind the last");
    }
    end_of_declaration("the call");
  }

  std::uint32_t parameter_named(const Token& found) {
    const auto at = std::ranges::find(function_.parameters, found.text, &Parameter::name);
    if (found.kind == Token::Kind::word && at != function_.parameters.end())
      return static_cast<std::uint32_t>(at - function_.parameters.begin());
    std::vector<std::string_view> known;
    for (const Parameter& each : function_.parameters)
      if (!each.name.empty()) known.push_back(each.name);
    const auto nearest = text::nearest(found.text, known);
    scan_.refuse(found.at, found.kind == Token::Kind::end ? "the end" : found.text,
                 fmt::format("{} has no such parameter", function_.name),
                 known.empty() ? "it has none"
                 : nearest     ? fmt::format("did you mean {}?", *nearest)
                               : fmt::format("it has {}", text::join(known)));
  }

  // --- Parameters ---

  void read_parameter() {
    Parameter parameter;
    bool has_mode = read_mode(parameter.mode);
    parameter.type = read_type();
    if (!has_mode) has_mode = read_mode(parameter.mode);
    const Place at = scan_.now().at;
    read_declarator(parameter, 0);
    if (!parameter.name.empty() &&
        std::ranges::find(function_.parameters, parameter.name, &Parameter::name) != function_.parameters.end())
      scan_.refuse(at, parameter.name, fmt::format("{} has two of that name", function_.name), "use another name");
    if (parameter.mode == Mode::work && !parameter.is_array())
      scan_.refuse(at, parameter.name, "a work area without a size", "write its size, as in WORK double w[n]");
    if (parameter.mode == Mode::work && is_text(parameter.type))
      scan_.refuse(at, parameter.name, "a work area of texts", "use char, as in WORK char w[n]");
    if (function_.parameters.size() == parameters_max)
      scan_.refuse(at, parameter.name, fmt::format("{} has more than {} parameters", function_.name, parameters_max),
                   "pass arrays");
    function_.parameters.push_back(std::move(parameter));
  }

  bool read_mode(Mode& mode) {
    constexpr std::array<std::string_view, 4> plain{"IN", "OUT", "INOUT", "WORK"};
    constexpr std::array<std::string_view, 4> long_names{"mode_in", "mode_out", "mode_inout", "mode_work"};
    for (std::size_t i = 0; i < plain.size(); ++i) {
      if (!scan_.take_if(plain[i]) && !scan_.take_if(long_names[i])) continue;
      mode = static_cast<Mode>(i);
      return true;
    }
    return false;
  }

  Type read_type() {
    const Token first = scan_.now();
    Keywords keywords;
    std::optional<Type> single;
    for (;;) {
      if (scan_.take_if("const")) continue;
      // std::size_t is size_t, but std::string is no char const*.
      const bool qualified = scan_.take_if("std");
      for (int i = 0; qualified && i < 2; ++i)
        scan_.expect(":", "std:: and a type were expected", "write C's name of it");
      const Token token = scan_.now();
      if (keywords.count(token)) {
        scan_.take();
        continue;
      }
      const auto* const row = std::ranges::find(type_names, token.text, &TypeName::name);
      const bool known =
          token.kind == Token::Kind::word && row != type_names.end() && !(qualified && is_text(row->type));
      if (qualified && !known) scan_.refuse_now("a type of C++ that cannot be passed", types_remedy);
      if (!known || single) break;  // the next word is a name
      if (keywords.any()) scan_.refuse(first.at, first.text, "no such type", types_remedy);
      single = row->type;
      scan_.take();
    }
    if (!single && !keywords.any()) refuse_type();
    const auto type = single ? (keywords.any() ? std::nullopt : single) : keywords.type();
    if (!type) scan_.refuse(first.at, first.text, "no such type", types_remedy);
    return *type;
  }

  [[noreturn]] void refuse_type() {
    constexpr std::array<std::string_view, 19> known{
        "IN",       "OUT",    "INOUT",    "WORK",     "char",   "short",    "int",     "long",   "float",   "double",
        "unsigned", "signed", "scomplex", "dcomplex", "string", "filename", "int64_t", "size_t", "long int"};
    const Token found = scan_.now();
    if (found.is("filepointer"))
      scan_.refuse(found.at, found.text, "there are no file pointers", "use filename, and fopen() in the function");
    if (found.kind != Token::Kind::word) scan_.refuse_now("a parameter was expected", "write MODE TYPE NAME there");
    const Token name = scan_.take();
    if (scan_.now().is("("))
      scan_.refuse(name.at, name.text, "call-back functions are not there", "return values by OUT parameters");
    refuse_unknown(name, "no mode or type of a parameter", known);
  }

  void read_declarator(Parameter& parameter, int depth) {
    if (depth > depth_max) scan_.refuse_now("it nests too deep", "leave parentheses out");
    const bool is_reference = source_ == Source::signature && scan_.take_if("&");
    if (is_reference || scan_.take_if("*")) {
      scan_.take_if("const");
      // In C, a char const* is a text.
      if (source_ == Source::signature && parameter.type == Type::character && parameter.mode == Mode::in) {
        parameter.type = Type::string;
        return read_declarator(parameter, depth + 1);
      }
      if (parameter.pointer) scan_.refuse_now("a pointer to a pointer", "use an array with its size: NAME[n]");
      parameter.pointer = true;
      return read_declarator(parameter, depth + 1);
    }
    if (scan_.take_if("(")) {
      read_declarator(parameter, depth + 1);
      scan_.expect(")", "the parenthesis does not end", "write ) there");
    } else if (source_ == Source::file || scan_.now().kind == Token::Kind::word) {
      parameter.name = name("the parameter");
      if (scan_.now().is("("))
        scan_.refuse(scan_.now().at, parameter.name, "call-back functions are not there",
                     "return values by OUT parameters");
    }
    while (scan_.now().is("[")) {
      if (parameter.dimensions.size() == dimensions_max)
        scan_.refuse_now(fmt::format("{} has more than {} dimensions", parameter.name, dimensions_max), "use fewer");
      parameter.dimensions.push_back(read_dimension(parameter));
    }
    if (parameter.pointer && !parameter.dimensions.empty())
      scan_.refuse_now("an array of pointers", "use one array with its sizes: NAME[n][m]");
  }

  Dimension read_dimension(const Parameter& parameter) {
    scan_.take();
    if (scan_.now().is("]"))
      scan_.refuse_now(fmt::format("a size of {} is missing", parameter.name),
                       "write it between the brackets, as an expression of the integer parameters");
    Dimension dimension{.size = read_expression(), .low = {}, .high = {}, .stride = {}};
    if (scan_.take_if(":")) {
      dimension.high = read_expression();
      if (scan_.take_if(",")) {
        dimension.low = std::exchange(dimension.high, read_expression());
        if (scan_.take_if(",")) dimension.stride = read_expression();
      }
    }
    scan_.expect("]", fmt::format("the size of {} does not end", parameter.name),
                 "write ] there; a range is [size:low,high,stride]");
    return dimension;
  }

  // --- Expressions ---

  using Kind = Expression::Kind;

  Expression read_expression() {
    Expression expression;
    read_choice(expression, 0);
    return expression;
  }

  std::uint32_t add_node(Expression& expression, Expression::Node node) {
    if (expression.nodes.size() == expression_nodes_max) scan_.refuse_now("the expression is too long", "shorten it");
    expression.nodes.push_back(node);
    return static_cast<std::uint32_t>(expression.nodes.size() - 1);
  }

  std::uint32_t read_choice(Expression& expression, int depth) {
    if (depth > depth_max) scan_.refuse_now("the expression nests too deep", "leave parentheses out");
    const std::uint32_t first = read_binary(expression, 0, depth);
    if (!scan_.take_if("?")) return first;
    const std::uint32_t second = read_choice(expression, depth + 1);
    scan_.expect(":", "the choice has no second half", "write CONDITION ? SIZE : SIZE");
    const std::uint32_t third = read_choice(expression, depth + 1);
    return add_node(expression, {.kind = Kind::choose, .first = first, .second = second, .third = third});
  }

  struct Sign {
    std::string_view text;
    Kind kind;
    int level;  ///< What binds more has a higher one.
  };
  static constexpr int power_level = 4;

  static std::optional<Sign> sign_of(const Token& token) {
    constexpr std::array<Sign, 12> signs{
        Sign{"==", Kind::equal, 0},  Sign{"!=", Kind::unequal, 0},    Sign{"<", Kind::less, 1},
        Sign{">", Kind::greater, 1}, Sign{"<=", Kind::less_equal, 1}, Sign{">=", Kind::greater_equal, 1},
        Sign{"+", Kind::add, 2},     Sign{"-", Kind::subtract, 2},    Sign{"*", Kind::multiply, 3},
        Sign{"/", Kind::divide, 3},  Sign{"%", Kind::modulo, 3},      Sign{"^", Kind::power, power_level}};
    for (const Sign& each : signs)
      if (token.is(each.text)) return each;
    return std::nullopt;
  }

  std::uint32_t read_binary(Expression& expression, int level, int depth) {
    std::uint32_t left = read_primary(expression, depth);
    for (auto sign = sign_of(scan_.now()); sign && sign->level >= level; sign = sign_of(scan_.now())) {
      scan_.take();
      if (depth > depth_max) scan_.refuse_now("the expression nests too deep", "leave parentheses out");
      const int next = sign->level == power_level ? power_level : sign->level + 1;  // a^b^c is a^(b^c)
      const std::uint32_t right = read_binary(expression, next, depth + 1);
      left = add_node(expression, {.kind = sign->kind, .first = left, .second = right});
    }
    return left;
  }

  std::uint32_t read_primary(Expression& expression, int depth) {
    if (depth > depth_max) scan_.refuse_now("the expression nests too deep", "leave parentheses out");
    if (scan_.take_if("(")) {
      const std::uint32_t inner = read_choice(expression, depth + 1);
      scan_.expect(")", "the parenthesis does not end", "write ) there");
      return inner;
    }
    if (scan_.take_if("-")) {
      const std::uint32_t inner = read_primary(expression, depth + 1);
      return add_node(expression, {.kind = Kind::negate, .first = inner});
    }
    const Token token = scan_.now();
    if (token.kind == Token::Kind::number) {
      std::int64_t number = 0;
      const char* const end = token.text.data() + token.text.size();
      if (const auto [last, error] = std::from_chars(token.text.data(), end, number);
          error != std::errc() || last != end)
        scan_.refuse_now("no whole number of 64 bits", "use decimal digits");
      scan_.take();
      return add_node(expression, {.kind = Kind::number, .number = number});
    }
    if (token.kind != Token::Kind::word)
      scan_.refuse_now("a size was expected", "use numbers, integer parameters, ( ) + - * / % ^ < > == ? :");
    scan_.take();
    references_.push_back(token);
    return add_node(expression, {.kind = Kind::parameter, .number = static_cast<std::int64_t>(references_.size() - 1)});
  }

  /// All parameters are known: names in sizes become their numbers.
  void resolve_references() {
    std::vector<std::int64_t> numbers;
    for (const Token& token : references_) {
      const std::uint32_t which = parameter_named(token);
      const Parameter& parameter = function_.parameters[which];
      if (!is_integer(parameter.type) || parameter.is_array() || !parameter.goes_in()) {
        scan_.refuse(token.at, token.text,
                     fmt::format("a size cannot be made of {} {}", name_of(parameter.mode), name_of(parameter.type)),
                     "use IN parameters of an integer type that are no arrays");
      }
      numbers.push_back(which);
    }
    const auto resolve = [&](Expression& expression) {
      for (Expression::Node& node : expression.nodes)
        if (node.kind == Kind::parameter) node.number = numbers[static_cast<std::size_t>(node.number)];
    };
    for (Parameter& parameter : function_.parameters) {
      for (Dimension& dimension : parameter.dimensions) {
        resolve(dimension.size);
        for (auto* each : {&dimension.low, &dimension.high, &dimension.stride})
          if (*each) resolve(**each);
      }
    }
  }

  Scanner scan_;
  Source source_ = Source::file;
  Bodies bodies_ = Bodies::none;
  Interface interface_;
  std::set<std::string> names_;  // of functions and classes
  Function function_;
  std::vector<Token> references_;  ///< Names in sizes, whose parameters may come later: a node has its number here.
};

}  // namespace

Interface read_interface(std::string_view text, const std::string& name, Bodies bodies) {
  return Parser(text, name, bodies).read();
}

Function read_signature(std::string_view text) {
  // Names are C++'s and symbols, too.
  const auto of_name = [](char c) {
    return is_letter(c) || is_digit(c) || std::string_view(":$.~").find(c) != std::string_view::npos;
  };
  const std::string source = fmt::format("entry \"{}\"", shown(text));
  const std::size_t open = std::min(text.find('('), text.size());
  std::string_view name = text.substr(0, open);
  while (!name.empty() && is_blank(name.front())) name.remove_prefix(1);
  while (!name.empty() && is_blank(name.back())) name.remove_suffix(1);
  if (name.empty() || !std::ranges::all_of(name, of_name)) {
    throw Error(Errc::bad_option, fmt::format("{} does not begin with the name of a function: write "
                                              "name(type,...)->type, for example solve(int,double)->int",
                                              source));
  }
  return Parser(text, source, std::string(name), open).read_signature();
}

}  // namespace aplib::calls
