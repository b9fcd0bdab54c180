// SPDX-License-Identifier: MIT
// HttpServer: answers HTTP/1.1 at one socket, for a few readers on this computer. What it holds is bounded: so many
// clients, so many bytes of a request, so many seconds for each. Files that need only this do not include Boost.Beast.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/os/descriptor.hpp"
#include "launch/wire/event_loop.hpp"

namespace aplib::launch::web {

struct HttpRequest {
  std::string method{};
  std::string target{};  ///< Path and query, as sent.
  std::string host{};
  std::string origin{};  ///< Empty: the client does not say.
  std::string site{};    ///< Sec-Fetch-Site.
};

struct HttpResponse {
  unsigned status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::shared_ptr<const std::string> body{};  ///< Null: none.
  std::string policy = "default-src 'none'";  ///< Content-Security-Policy.
  bool trusted = false;  ///< The request has shown that its client is one of ours: it is dropped last.
};

/// Not thread safe: the loop's thread.
class HttpServer {
 public:
  /// At the same time. For one more, the oldest is dropped: one that is not trusted, if there is any.
  static constexpr std::size_t clients_max = 32;
  static constexpr std::size_t request_bytes_max = 8192;
  static constexpr int client_seconds_max = 10;  ///< To send a request, or to take its answer.

  struct Events {
    std::function<HttpResponse(const HttpRequest& request)> request;  ///< Answers at once.
    std::function<void()> malformed;                                  ///< Somebody has sent what is no request.
  };

  /// `listening` is a socket of `family` that listens. Throws Error(failed).
  HttpServer(wire::EventLoop& loop, os::UniqueFd listening, int family, Events events);
  /// Drops all clients.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace aplib::launch::web
