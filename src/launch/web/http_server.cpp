// SPDX-License-Identifier: MIT
#include "launch/web/http_server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/span_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <list>
#include <optional>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::launch::web {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

using Protocol = asio::generic::stream_protocol;
using Stream = beast::basic_stream<Protocol>;
using ErrorCode = boost::system::error_code;

/// Until descriptors may be free again.
constexpr std::chrono::milliseconds accept_again{100};

std::string text_of(boost::beast::string_view text) { return {text.data(), text.size()}; }

class Client : public std::enable_shared_from_this<Client> {
 public:
  struct Owner {
    HttpServer::Events events;
    std::function<void(Client&)> ended;
  };

  Client(Protocol::socket socket, const std::shared_ptr<Owner>& owner) : stream_(std::move(socket)), owner_(owner) {}

  void read() {
    parser_.emplace();
    parser_->header_limit(HttpServer::request_bytes_max);
    parser_->body_limit(std::uint64_t{0});  // no request of ours has one
    stream_.expires_after(std::chrono::seconds(HttpServer::client_seconds_max));
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](const ErrorCode& error, std::size_t) { self->have_read(error); });
  }

  void drop() {
    owner_.reset();
    stream_.close();
  }

  [[nodiscard]] bool trusted() const noexcept { return trusted_; }

 private:
  void have_read(const ErrorCode& error) {
    const std::shared_ptr<Owner> owner = owner_.lock();
    if (owner == nullptr) return;
    if (error) {
      const bool is_of_content = error.category() == http::make_error_code(http::error::bad_method).category();
      const bool is_gone = error == http::error::end_of_stream || error == http::error::partial_message;
      if (is_of_content && !is_gone) owner->events.malformed();
      return owner->ended(*this);
    }
    const auto& request = parser_->get();
    const HttpResponse answer = owner->events.request({.method = text_of(request.method_string()),
                                                       .target = text_of(request.target()),
                                                       .host = text_of(request[http::field::host]),
                                                       .origin = text_of(request[http::field::origin]),
                                                       .site = text_of(request["Sec-Fetch-Site"])});
    trusted_ = trusted_ || answer.trusted;
    respond(answer);
  }

  void respond(const HttpResponse& answer) {
    const auto& request = parser_->get();
    body_ = answer.body;
    response_ = {};
    response_.version(request.version());
    response_.result(answer.status);
    response_.keep_alive(request.keep_alive() && trusted_);
    response_.set(http::field::content_type, answer.type);
    response_.set(http::field::cache_control, "no-store");
    response_.set("Content-Security-Policy", answer.policy);
    response_.set("Cross-Origin-Resource-Policy", "same-origin");
    response_.set("Referrer-Policy", "no-referrer");
    response_.set("X-Content-Type-Options", "nosniff");
    response_.set("X-Frame-Options", "DENY");
    if (body_ != nullptr) response_.body() = {body_->data(), body_->size()};
    response_.prepare_payload();
    if (request.method() == http::verb::head) response_.body() = {};
    stream_.expires_after(std::chrono::seconds(HttpServer::client_seconds_max));
    http::async_write(stream_, response_, [self = shared_from_this()](const ErrorCode& error, std::size_t) {
      const std::shared_ptr<Owner> owner = self->owner_.lock();
      if (owner == nullptr) return;
      self->body_.reset();
      if (error || !self->response_.keep_alive()) return owner->ended(*self);
      self->read();
    });
  }

  Stream stream_;
  std::weak_ptr<Owner> owner_;
  beast::flat_buffer buffer_{2 * HttpServer::request_bytes_max};
  std::optional<http::request_parser<http::empty_body>> parser_;
  std::shared_ptr<const std::string> body_;
  http::response<http::span_body<const char>> response_;
  bool trusted_ = false;
};

}  // namespace

struct HttpServer::Impl : std::enable_shared_from_this<Impl> {
  explicit Impl(wire::EventLoop& loop) : acceptor(loop.io()), again(loop) {}

  void accept() {
    acceptor.async_accept([weak = weak_from_this()](const ErrorCode& error, Protocol::socket socket) {
      if (const std::shared_ptr<Impl> self = weak.lock()) self->accepted(error, std::move(socket));
    });
  }

  void accepted(const ErrorCode& error, Protocol::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) return again.start(accept_again, [this] { accept(); });
    make_room();
    clients.push_back(std::make_shared<Client>(std::move(socket), owner));
    clients.back()->read();
    accept();
  }

  void make_room() {
    if (clients.size() < clients_max) return;
    auto least = std::ranges::find_if(clients, [](const auto& client) { return !client->trusted(); });
    if (least == clients.end()) least = clients.begin();
    (*least)->drop();
    clients.erase(least);
  }

  asio::basic_socket_acceptor<Protocol> acceptor;
  wire::Timer again;
  std::list<std::shared_ptr<Client>> clients;  // oldest first
  std::shared_ptr<Client::Owner> owner;
};

HttpServer::HttpServer(wire::EventLoop& loop, os::UniqueFd listening, int family, Events events)
    : impl_(std::make_shared<Impl>(loop)) {
  impl_->owner = std::make_shared<Client::Owner>(
      Client::Owner{.events = std::move(events), .ended = [impl = impl_.get()](Client& client) {
                      client.drop();
                      impl->clients.remove_if([&](const auto& each) { return each.get() == &client; });
                    }});
  ErrorCode error;
  impl_->acceptor.assign(Protocol(family, 0), listening.get(), error);
  if (error) throw Error(Errc::failed, fmt::format("cannot wait for readers of the page: {}", error.message()));
  static_cast<void>(listening.release());
  impl_->accept();
}

HttpServer::~HttpServer() {
  impl_->owner.reset();
  for (const auto& client : impl_->clients) client->drop();
  ErrorCode ignored;
  impl_->acceptor.close(ignored);
}

}  // namespace aplib::launch::web
