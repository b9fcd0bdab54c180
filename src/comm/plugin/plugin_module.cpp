// SPDX-License-Identifier: MIT
#include "comm/plugin/plugin_module.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <limits>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::comm::plugin {
namespace {

static_assert(Module::large_from_bytes == APLIB_COMM_LARGE_BYTES);
static_assert(Module::body_bytes_max == APLIB_COMM_BODY_BYTES_MAX);
static_assert(MemoryKey::bytes_max == APLIB_COMM_MEMORY_KEY_BYTES);

aplib_comm_label to_c(const Label& label) {
  return {.key = label.key, .cell = label.cell, .task = label.task, .kind = label.kind, .extra = label.extra};
}

Label from_c(const aplib_comm_label& label) { return {label.key, label.cell, label.task, label.kind, label.extra}; }

/// Room for a text, which is empty at first.
struct ErrorText : aplib_comm_error {
  ErrorText() noexcept { text[0] = '\0'; }  // Only that: it is made for each send().
};

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

/// Throws an Error that says what `status` (negative) and `error` mean. `subject`, the module's name, stands for a
/// missing text.
[[noreturn]] void throw_status(std::int32_t status, const aplib_comm_error& error, const char* subject) {
  const std::size_t length = ::strnlen(error.text, sizeof error.text);
  if (length != 0) throw Error(code_of(status), std::string(error.text, length));
  throw Error(code_of(status), fmt::format("{}: failed with status {} and does not say why", subject, status));
}

aplib_comm_memory_key to_c(const MemoryKey& key) {
  aplib_comm_memory_key made{};
  made.bytes = key.bytes;
  std::memcpy(made.words, key.words.data(), sizeof made.words);
  return made;
}

}  // namespace

/// The functions that the plug-in calls.
struct PluginModule::Upcalls {
  /// Calls the receiver. An exception of the receiver is kept for the caller of poll().
  template <class Result, class Call>
  static Result guarded(void* host, Result otherwise, Call&& call) noexcept {
    auto* const module = static_cast<PluginModule*>(host);
    try {
      return call(*module->receiver_);
    } catch (...) {
      if (!module->thrown_) module->thrown_ = std::current_exception();
      return otherwise;
    }
  }
  static std::int32_t wants(void* host, std::uint32_t from) noexcept {
    return guarded(host, 0, [from](Receiver& receiver) { return receiver.wants(from) ? 1 : 0; });
  }
  static void frame(void* host, std::uint32_t from, const aplib_comm_label* label, const void* body,
                    std::size_t bytes) noexcept {
    guarded(host, 0, [&](Receiver& receiver) {
      receiver.frame(from, from_c(*label), {static_cast<const std::byte*>(body), bytes});
      return 0;
    });
  }
  static void* large_begin(void* host, std::uint32_t from, const aplib_comm_label* label, std::size_t bytes) noexcept {
    return guarded(host, static_cast<std::byte*>(nullptr),
                   [&](Receiver& receiver) { return receiver.large_begin(from, from_c(*label), bytes); });
  }
  static void large_end(void* host, std::uint32_t from, const aplib_comm_label* label, std::size_t bytes,
                        std::int32_t complete) noexcept {
    guarded(host, 0, [&](Receiver& receiver) {
      receiver.large_end(from, from_c(*label), bytes, complete != 0);
      return 0;
    });
  }
  static void peer_lost(void* host, std::uint32_t peer, const char* why) noexcept {
    guarded(host, 0, [&](Receiver& receiver) {
      receiver.peer_lost(peer, why != nullptr && *why != '\0' ? why : "the module does not say why");
      return 0;
    });
  }
  static void memory_done(void* host, std::uint64_t context, std::int32_t ok) noexcept {
    guarded(host, 0, [&](Receiver& receiver) {
      receiver.memory_done(context, ok != 0);
      return 0;
    });
  }
};

PluginModule::PluginModule(std::shared_ptr<const Plugin> plugin, aplib_comm_module* module)
    : plugin_(std::move(plugin)), call_(plugin_->operator->()), module_(module) {}

PluginModule::~PluginModule() { call_->destroy(module_); }

std::int32_t PluginModule::checked(std::int32_t status, const aplib_comm_error& error) const {
  if (status < 0) throw_status(status, error, call_->name);
  return status;
}

void PluginModule::rethrow() {
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void PluginModule::start(Receiver& receiver) {
  // The module refuses a second start(), which must not replace the receiver of the first.
  if (receiver_ == nullptr) receiver_ = &receiver;
  upcalls_ = {.bytes = sizeof(aplib_comm_receiver),
              .reserved = 0,
              .host = this,
              .wants = Upcalls::wants,
              .frame = Upcalls::frame,
              .large_begin = Upcalls::large_begin,
              .large_end = Upcalls::large_end,
              .peer_lost = Upcalls::peer_lost,
              .memory_done = Upcalls::memory_done};
  ErrorText error;
  checked(call_->start(module_, &upcalls_, &error), error);
}

void PluginModule::send(Peer to, const Label& label, std::span<const std::byte> body) {
  const aplib_comm_label to_plugin = to_c(label);
  ErrorText error;
  const std::int32_t status = call_->send(module_, to, &to_plugin, body.data(), body.size(), &error);
  if (status < 0) throw_status(status, error, call_->name);
}

bool PluginModule::poll() {
  ErrorText error;
  const std::int32_t did = call_->poll(module_, &error);
  rethrow();
  return checked(did, error) != 0;
}

void PluginModule::wait(std::optional<std::chrono::nanoseconds> timeout) {
  ErrorText error;
  const std::int64_t time = timeout ? std::max<std::int64_t>(timeout->count(), 0) : -1;
  checked(call_->wait(module_, time, &error), error);
}

bool PluginModule::reaches_memory(Peer peer) const noexcept {
  return plugin_->can(APLIB_COMM_REMOTE_MEMORY) && call_->reaches_memory(module_, peer) > 0;
}

MemoryKey PluginModule::expose(Peer peer, std::span<std::byte> memory) {
  if (!plugin_->can(APLIB_COMM_REMOTE_MEMORY)) return Module::expose(peer, memory);
  aplib_comm_memory_key key{};
  ErrorText error;
  checked(call_->expose(module_, peer, memory.data(), memory.size(), &key, &error), error);
  MemoryKey made;
  made.bytes = std::min<std::uint32_t>(key.bytes, MemoryKey::bytes_max);
  std::memcpy(made.words.data(), key.words, sizeof key.words);
  return made;
}

void PluginModule::conceal(Peer peer, const MemoryKey& key) noexcept {
  if (!plugin_->can(APLIB_COMM_REMOTE_MEMORY)) return;
  const aplib_comm_memory_key to_plugin = to_c(key);
  call_->conceal(module_, peer, &to_plugin);
}

void PluginModule::write(Peer to, const MemoryKey& key, std::uint64_t address, std::span<const std::byte> local,
                         std::uint64_t context) {
  if (!plugin_->can(APLIB_COMM_REMOTE_MEMORY)) return Module::write(to, key, address, local, context);
  const aplib_comm_memory_key to_plugin = to_c(key);
  ErrorText error;
  checked(call_->write(module_, to, &to_plugin, address, local.data(), local.size(), context, &error), error);
}

void PluginModule::read(Peer from, const MemoryKey& key, std::uint64_t address, std::span<std::byte> local,
                        std::uint64_t context) {
  if (!plugin_->can(APLIB_COMM_REMOTE_MEMORY)) return Module::read(from, key, address, local, context);
  const aplib_comm_memory_key to_plugin = to_c(key);
  ErrorText error;
  checked(call_->read(module_, from, &to_plugin, address, local.data(), local.size(), context, &error), error);
}

int PluginModule::descriptor() noexcept { return call_->descriptor != nullptr ? call_->descriptor(module_) : -1; }

bool PluginModule::arm() {
  if (call_->arm == nullptr) return true;
  ErrorText error;
  return checked(call_->arm(module_, &error), error) != 0;
}

void PluginModule::disarm() noexcept {
  if (call_->disarm != nullptr) call_->disarm(module_);
}

void PluginModule::let_go() noexcept {
  if (call_->let_go != nullptr) call_->let_go(module_);
}

bool PluginModule::close(std::chrono::nanoseconds linger) {
  ErrorText error;
  const std::int32_t all = call_->close(module_, std::max<std::int64_t>(linger.count(), 0), &error);
  rethrow();
  return all > 0;
}

bool PluginModule::abandon() { return call_->abandon != nullptr && call_->abandon(module_) > 0; }

Traffic PluginModule::traffic() const noexcept {
  aplib_comm_traffic traffic{};
  traffic.bytes = sizeof traffic;
  call_->traffic(module_, &traffic);
  return {.frames_sent = traffic.frames_sent,
          .frames_received = traffic.frames_received,
          .bytes_sent = traffic.bytes_sent,
          .bytes_received = traffic.bytes_received,
          .system_calls = traffic.system_calls,
          .refused = traffic.refused};
}

std::string PluginModule::describe(Peer peer) const {
  ErrorText text;
  call_->describe(module_, peer, text.text, sizeof text.text);
  text.text[sizeof text.text - 1] = '\0';
  return text.text;
}

namespace {

/// The settings for the plug-in. Its pointers lead into `settings`.
aplib_comm_port_settings to_c(const PortSettings& settings) {
  static_assert(JobKey::size == APLIB_COMM_KEY_BYTES);
  static_assert(static_cast<int>(Secure::off) == APLIB_COMM_SECURE_OFF &&
                static_cast<int>(Secure::auth) == APLIB_COMM_SECURE_AUTH &&
                static_cast<int>(Secure::tls) == APLIB_COMM_SECURE_TLS);
  return {.bytes = sizeof(aplib_comm_port_settings),
          .secure = static_cast<std::uint32_t>(settings.secure),
          .address = settings.address.c_str(),
          .ports = settings.ports.c_str(),
          .host = settings.host.c_str(),
          .key = reinterpret_cast<const std::uint8_t*>(settings.key.secret().data()),
          .provider = settings.provider.c_str(),
          .streams = settings.streams,
          .peer_timeout = static_cast<std::uint32_t>(std::clamp<std::chrono::milliseconds::rep>(
              settings.peer_timeout.count(), 0, std::numeric_limits<std::uint32_t>::max()))};
}

std::vector<const char*> to_c(const std::vector<std::string>& texts, std::size_t count) {
  std::vector<const char*> all(count, "");
  for (std::size_t i = 0; i < std::min(count, texts.size()); ++i) all[i] = texts[i].c_str();
  return all;
}

class PluginPort final : public Port {
 public:
  PluginPort(std::shared_ptr<const Plugin> plugin, aplib_comm_port* port) : plugin_(std::move(plugin)), port_(port) {}
  ~PluginPort() override { (*plugin_)->close_port(port_); }
  PluginPort(const PluginPort&) = delete;
  PluginPort& operator=(const PluginPort&) = delete;

  [[nodiscard]] std::string endpoint() const override {
    const char* const text = (*plugin_)->endpoint(port_);
    const std::string endpoint = text != nullptr ? text : "";
    // The endpoint goes into lists and messages.
    if (endpoint.size() >= APLIB_COMM_ENDPOINT_BYTES || std::ranges::any_of(endpoint, [](unsigned char c) {
          return std::isprint(c) == 0 || c == ' ' || c == ',' || c == ';';
        })) {
      throw Error(
          Errc::failed,
          fmt::format("module {}: its endpoint is not printable, has a blank, a comma or a semicolon, or is too "
                      "long: correct the plug-in",
                      (*plugin_)->name));
    }
    return endpoint;
  }

  [[nodiscard]] std::unique_ptr<Module> join(const JoinSettings& settings) override {
    const std::vector<const char*> endpoints = to_c(settings.endpoints, settings.endpoints.size());
    const std::vector<const char*> names = to_c(settings.names, settings.endpoints.size());
    const aplib_comm_join_settings to_plugin{.bytes = sizeof(aplib_comm_join_settings),
                                             .self = settings.self,
                                             .processes = static_cast<std::uint32_t>(endpoints.size()),
                                             .reserved = 0,
                                             .machine = settings.machine.c_str(),
                                             .endpoints = endpoints.data(),
                                             .names = names.data()};
    aplib_comm_module* module = nullptr;
    ErrorText error;
    const std::int32_t status = (*plugin_)->join(port_, &to_plugin, &module, &error);
    if (status < 0) throw_status(status, error, (*plugin_)->name);
    return std::make_unique<PluginModule>(plugin_, module);
  }

 private:
  const std::shared_ptr<const Plugin> plugin_;
  aplib_comm_port* const port_;
};

}  // namespace

bool PluginKind::keeps(Secure secure) const {
  switch (secure) {
    case Secure::auth:
      return plugin().can(APLIB_COMM_KEEPS_AUTH);
    case Secure::tls:
      return plugin().can(APLIB_COMM_KEEPS_TLS);
    case Secure::off:
      break;
  }
  return true;
}

std::optional<std::string> PluginKind::unusable(const PortSettings& settings) const {
  const aplib_comm_port_settings to_plugin = to_c(settings);
  ErrorText error;
  if (plugin()->usable(plugin().exported(), &to_plugin, &error) >= 0) return std::nullopt;
  error.text[sizeof error.text - 1] = '\0';
  return error.text[0] != '\0' ? error.text : "it does not say why";
}

std::unique_ptr<Port> PluginKind::open(const PortSettings& settings) const {
  const aplib_comm_port_settings to_plugin = to_c(settings);
  aplib_comm_port* port = nullptr;
  ErrorText error;
  const std::int32_t status = plugin()->open(plugin().exported(), &to_plugin, &port, &error);
  if (status < 0) throw_status(status, error, plugin()->name);
  return std::make_unique<PluginPort>(plugin_, port);
}

bool PluginKind::joins(const std::string& endpoint, const std::string& other) const {
  return plugin()->joins(plugin().exported(), endpoint.c_str(), other.c_str()) > 0;
}

}  // namespace aplib::comm::plugin
