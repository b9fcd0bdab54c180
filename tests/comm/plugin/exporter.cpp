// SPDX-License-Identifier: MIT
#include "exporter.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "aplib/error.hpp"

APLIB_COMM_REQUIRE(1, 0);

namespace aplib::comm::test {
namespace {

aplib_comm_label to_c(const Label& label) {
  return {.key = label.key, .cell = label.cell, .task = label.task, .kind = label.kind, .extra = label.extra};
}

Label from_c(const aplib_comm_label& label) { return {label.key, label.cell, label.task, label.kind, label.extra}; }

MemoryKey from_c(const aplib_comm_memory_key& key) {
  MemoryKey made;
  made.bytes = std::min<std::uint32_t>(key.bytes, MemoryKey::bytes_max);
  std::memcpy(made.words.data(), key.words, sizeof key.words);
  return made;
}

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

void put(const char* text, std::size_t length, char* into, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  length = std::min(length, bytes - 1);
  std::memcpy(into, text, length);
  into[length] = '\0';
}

/// The status of the current exception, with its text in `error`. Call inside a catch block.
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

/// Writes `text` and its end, cut if it is too long.
void put_text(const std::string& text, char* into, std::size_t bytes) noexcept {
  put(text.data(), text.size(), into, bytes);
}

/// The host's upcalls as a Receiver.
class HostReceiver final : public Receiver {
 public:
  explicit HostReceiver(const aplib_comm_receiver& host) : host_(host) {}

  bool wants(Peer from) override { return host_.wants(host_.host, from) != 0; }
  void frame(Peer from, const Label& label, std::span<const std::byte> body) override {
    const aplib_comm_label to_host = to_c(label);
    host_.frame(host_.host, from, &to_host, body.data(), body.size());
  }
  std::byte* large_begin(Peer from, const Label& label, std::size_t bytes) override {
    const aplib_comm_label to_host = to_c(label);
    return static_cast<std::byte*>(host_.large_begin(host_.host, from, &to_host, bytes));
  }
  void large_end(Peer from, const Label& label, std::size_t bytes, bool complete) override {
    const aplib_comm_label to_host = to_c(label);
    host_.large_end(host_.host, from, &to_host, bytes, complete ? 1 : 0);
  }
  void peer_lost(Peer peer, const std::string& why) override { host_.peer_lost(host_.host, peer, why.c_str()); }
  void memory_done(std::uint64_t context, bool ok) override { host_.memory_done(host_.host, context, ok ? 1 : 0); }

 private:
  const aplib_comm_receiver& host_;
};

}  // namespace
}  // namespace aplib::comm::test

// The structures that the interface only declares.
struct aplib_comm_port {
  std::unique_ptr<aplib::comm::Port> port;
  std::string endpoint;
};

struct aplib_comm_module {
  // Declared first, so that it is destroyed last: the module's destructor may still call it.
  std::unique_ptr<aplib::comm::test::HostReceiver> receiver;
  std::unique_ptr<aplib::comm::Module> module;
};

namespace aplib::comm::test {

struct Exporter::Functions {
  /// What `call` returns, or the status of the exception that it throws.
  template <class Call>
  static std::int32_t guarded(aplib_comm_error* error, Call&& call) noexcept {
    try {
      return call();
    } catch (...) {
      return status_of_exception(error);
    }
  }

  static const ModuleKind& kind(const aplib_comm_plugin* plugin) {
    return *static_cast<const Exporter*>(plugin->own)->kind_;
  }
  static PortSettings settings(const aplib_comm_port_settings& from) {
    return {.address = from.address,
            .ports = from.ports,
            .host = from.host,
            .key = JobKey::from_bytes(
                std::span<const std::byte, JobKey::size>(reinterpret_cast<const std::byte*>(from.key), JobKey::size)),
            .secure = static_cast<Secure>(from.secure),
            .streams = from.streams,
            .provider = from.provider,
            .peer_timeout = std::chrono::milliseconds(from.peer_timeout)};
  }

  static std::int32_t usable(const aplib_comm_plugin* plugin, const aplib_comm_port_settings* from,
                             aplib_comm_error* error) noexcept {
    return guarded(error, [&] {
      const std::optional<std::string> why = kind(plugin).unusable(settings(*from));
      if (why) put_text(*why, error->text, sizeof error->text);
      return why ? APLIB_COMM_FAILED : APLIB_COMM_OK;
    });
  }
  static std::int32_t open(const aplib_comm_plugin* plugin, const aplib_comm_port_settings* from,
                           aplib_comm_port** port, aplib_comm_error* error) noexcept {
    return guarded(error, [&] {
      auto made = std::make_unique<aplib_comm_port>();
      made->port = kind(plugin).open(settings(*from));
      made->endpoint = made->port->endpoint();
      *port = made.release();
      return APLIB_COMM_OK;
    });
  }
  static const char* endpoint(const aplib_comm_port* port) noexcept { return port->endpoint.c_str(); }
  static std::int32_t joins(const aplib_comm_plugin* plugin, const char* endpoint, const char* other) noexcept {
    aplib_comm_error error;  // If it throws, they do not join.
    return std::max(0, guarded(&error, [&] { return kind(plugin).joins(endpoint, other) ? 1 : 0; }));
  }
  static std::int32_t join(aplib_comm_port* port, const aplib_comm_join_settings* from, aplib_comm_module** module,
                           aplib_comm_error* error) noexcept {
    return guarded(error, [&] {
      auto made = std::make_unique<aplib_comm_module>();
      made->module = port->port->join({.machine = from->machine,
                                       .self = from->self,
                                       .endpoints = {from->endpoints, from->endpoints + from->processes},
                                       .names = {from->names, from->names + from->processes}});
      *module = made.release();
      return APLIB_COMM_OK;
    });
  }
  static void close_port(aplib_comm_port* port) noexcept { delete port; }

  static std::int32_t start(aplib_comm_module* module, const aplib_comm_receiver* receiver,
                            aplib_comm_error* error) noexcept {
    return guarded(error, [&] {
      auto host = std::make_unique<HostReceiver>(*receiver);
      module->module->start(*host);
      module->receiver = std::move(host);
      return APLIB_COMM_OK;
    });
  }
  static std::int32_t send(aplib_comm_module* module, std::uint32_t to, const aplib_comm_label* label, const void* body,
                           std::size_t bytes, aplib_comm_error* error) noexcept {
    try {
      module->module->send(to, from_c(*label), {static_cast<const std::byte*>(body), bytes});
      return APLIB_COMM_OK;
    } catch (...) {
      return status_of_exception(error);
    }
  }
  static std::uint64_t queued(const aplib_comm_module* module, std::uint32_t to) noexcept {
    return module->module->queued(to);
  }
  static void flush(aplib_comm_module* module) noexcept { module->module->flush(); }
  static std::int32_t poll(aplib_comm_module* module, aplib_comm_error* error) noexcept {
    return guarded(error, [&] { return module->module->poll() ? 1 : 0; });
  }
  static std::int32_t wait(aplib_comm_module* module, std::int64_t nanoseconds, aplib_comm_error* error) noexcept {
    return guarded(error, [&] {
      module->module->wait(nanoseconds < 0 ? std::nullopt : std::optional(std::chrono::nanoseconds(nanoseconds)));
      return APLIB_COMM_OK;
    });
  }
  static void wake(aplib_comm_module* module) noexcept { module->module->wake(); }
  static std::int32_t close(aplib_comm_module* module, std::int64_t linger, aplib_comm_error* error) noexcept {
    return guarded(error, [&] { return module->module->close(std::chrono::nanoseconds(linger)) ? 1 : 0; });
  }
  static void destroy(aplib_comm_module* module) noexcept { delete module; }
  static void traffic(const aplib_comm_module* module, aplib_comm_traffic* traffic) noexcept {
    const Traffic now = module->module->traffic();
    traffic->frames_sent = now.frames_sent;
    traffic->frames_received = now.frames_received;
    traffic->bytes_sent = now.bytes_sent;
    traffic->bytes_received = now.bytes_received;
    traffic->system_calls = now.system_calls;
    traffic->refused = now.refused;
  }
  static void describe(const aplib_comm_module* module, std::uint32_t peer, char* text, std::size_t bytes) noexcept {
    aplib_comm_error error;
    const std::int32_t status = guarded(&error, [&] {
      put_text(module->module->describe(peer), text, bytes);
      return APLIB_COMM_OK;
    });
    if (status < 0) put_text(error.text, text, bytes);
  }
  static void let_go(aplib_comm_module* module) noexcept { module->module->let_go(); }
  static std::int32_t abandon(aplib_comm_module* module) noexcept {
    aplib_comm_error error;
    return std::max(0, guarded(&error, [&] { return module->module->abandon() ? 1 : 0; }));
  }

  static std::int32_t descriptor(aplib_comm_module* module) noexcept { return module->module->descriptor(); }
  static std::int32_t arm(aplib_comm_module* module, aplib_comm_error* error) noexcept {
    return guarded(error, [&] { return module->module->arm() ? 1 : 0; });
  }
  static void disarm(aplib_comm_module* module) noexcept { module->module->disarm(); }

  static std::int32_t reaches_memory(const aplib_comm_module* module, std::uint32_t peer) noexcept {
    return module->module->reaches_memory(peer) ? 1 : 0;
  }
  static std::int32_t expose(aplib_comm_module* module, std::uint32_t peer, void* memory, std::size_t bytes,
                             aplib_comm_memory_key* key, aplib_comm_error* error) noexcept {
    return guarded(error, [&] {
      const MemoryKey made = module->module->expose(peer, {static_cast<std::byte*>(memory), bytes});
      key->bytes = made.bytes;
      std::memcpy(key->words, made.words.data(), sizeof key->words);
      return APLIB_COMM_OK;
    });
  }
  static void conceal(aplib_comm_module* module, std::uint32_t peer, const aplib_comm_memory_key* key) noexcept {
    module->module->conceal(peer, from_c(*key));
  }
  static std::int32_t write(aplib_comm_module* module, std::uint32_t to, const aplib_comm_memory_key* key,
                            std::uint64_t address, const void* local, std::size_t bytes, std::uint64_t context,
                            aplib_comm_error* error) noexcept {
    return guarded(error, [&] {
      module->module->write(to, from_c(*key), address, {static_cast<const std::byte*>(local), bytes}, context);
      return APLIB_COMM_OK;
    });
  }
  static std::int32_t read(aplib_comm_module* module, std::uint32_t from, const aplib_comm_memory_key* key,
                           std::uint64_t address, void* local, std::size_t bytes, std::uint64_t context,
                           aplib_comm_error* error) noexcept {
    return guarded(error, [&] {
      module->module->read(from, from_c(*key), address, {static_cast<std::byte*>(local), bytes}, context);
      return APLIB_COMM_OK;
    });
  }
};

Exporter::Exporter(std::unique_ptr<ModuleKind> kind)
    : kind_(std::move(kind)), name_(kind_->name()), version_(kind_->version()), description_(kind_->description()) {
  plugin_ = {.head = APLIB_COMM_HEAD,
             .name = name_.c_str(),
             .version = version_.c_str(),
             .description = description_.c_str(),
             .rank = kind_->rank(),
             .can = (kind_->has_remote_memory() ? unsigned{APLIB_COMM_REMOTE_MEMORY} : 0U) |
                    (kind_->keeps(Secure::auth) ? unsigned{APLIB_COMM_KEEPS_AUTH} : 0U) |
                    (kind_->keeps(Secure::tls) ? unsigned{APLIB_COMM_KEEPS_TLS} : 0U) |
                    (kind_->one_host() ? unsigned{APLIB_COMM_ONE_HOST} : 0U),
             .own = this,
             .usable = Functions::usable,
             .open = Functions::open,
             .endpoint = Functions::endpoint,
             .joins = Functions::joins,
             .join = Functions::join,
             .close_port = Functions::close_port,
             .start = Functions::start,
             .send = Functions::send,
             .queued = Functions::queued,
             .flush = Functions::flush,
             .poll = Functions::poll,
             .wait = Functions::wait,
             .wake = Functions::wake,
             .close = Functions::close,
             .destroy = Functions::destroy,
             .traffic = Functions::traffic,
             .describe = Functions::describe,
             .abandon = Functions::abandon,
             .descriptor = Functions::descriptor,
             .arm = Functions::arm,
             .disarm = Functions::disarm,
             .reaches_memory = nullptr,
             .expose = nullptr,
             .conceal = nullptr,
             .write = nullptr,
             .read = nullptr,
             .let_go = Functions::let_go};
  if (!kind_->has_remote_memory()) return;
  plugin_.reaches_memory = Functions::reaches_memory;
  plugin_.expose = Functions::expose;
  plugin_.conceal = Functions::conceal;
  plugin_.write = Functions::write;
  plugin_.read = Functions::read;
}

}  // namespace aplib::comm::test
