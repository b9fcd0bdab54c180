// SPDX-License-Identifier: MIT
// Resolver makes a Program of a file: it finds the libraries, then binds every relocation once.
//
// Order of lookup for a reference: the image itself first if it was linked symbolically; the program; its separate
// libraries, breadth first; our bindings for libc state; the shared libraries in order of need; the whole process.
// So what a program defines (a malloc of its own, a getopt) is used by itself and its libraries, as ever.
//
// Executables hold data of their libraries themselves (COPY relocations), and their libraries shall use it there. What
// we bind is made there. What separate libraries have is copied, and they find it there by the order of lookup. Of
// shared libraries only constants are copied, for they would not see the program's changes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loader/program.hpp"

namespace aplib::loader {

/// True for a call by which a program names memory of other cells by its own addresses. `symbol`: as it stands in the
/// program's file.
bool is_one_sided_call(std::string_view symbol) noexcept;

/// True for a call of the CellOS interface.
bool is_cellos_call(std::string_view symbol) noexcept;

/// An executable may have a copy of this variable, which the process has at `address`.
bool may_be_copied(std::string_view symbol, void* address);

class Resolver {
 public:
  Resolver(Program& program, const std::string& path);

  void run();
  /// The same for a file that an instance of `main` loads while it runs (Program::load_plugin).
  void run(const Program& main, const Surroundings& around, std::shared_ptr<const ElfFile> file,
           const Requester& asked_by);

 private:
  /// Where a reference leads.
  struct Target {
    enum class Kind : unsigned char { none, image, binding, process } kind = Kind::none;
    std::uint32_t image = 0;
    const Symbol* symbol = nullptr;  // image
    const libc::Binding* binding = nullptr;
    void* address = nullptr;  // process
    void* library = nullptr;  // process: the handle it was found by; null: anywhere
  };

  void bind();
  std::uint32_t add(std::shared_ptr<const ElfFile> file, const Requester* needed_by);
  void preload();
  void find_libraries();
  void choose_memory();
  void enter_group(std::uint32_t index);
  [[nodiscard]] std::uint32_t image_named(std::string_view name) const;
  void lay_out();
  void order_initialization();
  void plan_image(std::uint32_t index);
  void plan_relocation(std::uint32_t index, const Relocation& relocation);
  void plan_symbolic(std::uint32_t index, const Relocation& relocation, const Target& target, std::uint64_t addend);
  void plan_thread_local(std::uint32_t index, const Relocation& relocation, const Target& target);
  void plan_copy(std::uint32_t index, const Relocation& relocation);
  bool plan_copy_of_process(const Relocation& relocation, const Symbol& symbol, void* address);
  Target look_up(std::uint32_t index, const Symbol& reference, bool skip_program = false);
  bool allocates_for_process(std::uint32_t index, std::string_view name) const;
  Target look_up_in_process(const Symbol& reference) const;
  void report_missing() const;
  [[noreturn]] void refuse(std::uint32_t index, const std::string& what) const;

  Program& program_;
  std::string path_;
  struct File {
    Requester requester;
    std::vector<std::uint32_t> needs;  // images
  };
  std::vector<std::unique_ptr<File>> files_;  // by image; null: not ours, it was there before
  std::vector<std::uint32_t> scope_;          // images in order of search
  bool is_plugin_ = false;
  std::size_t static_tls_used_ = 0;
  std::vector<Target> cache_;  // by symbol of the image that is being planned
  std::vector<bool> cached_;
  std::vector<std::string> missing_;
};

}  // namespace aplib::loader
