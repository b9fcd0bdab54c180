// SPDX-License-Identifier: MIT
#include "comm/tcp/entrance.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <exception>
#include <memory>
#include <utility>

#include "comm/tcp/stream.hpp"
#include "comm/tls.hpp"

namespace aplib::comm::tcp {
namespace {

using boost::system::error_code;

std::string describe(const error_code& error) {
  return error == boost::asio::error::eof ? "the other side ended the connection while it was being greeted"
                                          : describe_connection_error(error.value());
}

}  // namespace

void Entrance::FreeTls::operator()(ssl_st* ssl) const noexcept { SSL_free(ssl); }

Entrance::Entrance(boost::asio::ip::tcp::socket socket, Greeting::Role role, const JobKey& key, Introduction mine,
                   const TlsContext* tls, Judge judge, Done done)
    : socket_(std::move(socket)),
      limit_(socket_.get_executor()),
      role_(role),
      secure_(mine.secure),
      greeter_(role, key, std::move(mine)),
      tls_(tls),
      judge_(std::move(judge)),
      done_(std::move(done)) {}

void Entrance::begin() {
  limit_.expires_after(Greeting::time_max);
  limit_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error) {
      self->cancel("no answer to the greeting for " + std::to_string(Greeting::time_max.count()) + " s");
    }
  });
  greeter_.begin(socket_, shared_from_this(), [this](const connect::Greeter::Failure& failure) { greeted(failure); });
}

void Entrance::cancel(const std::string& why) { finish(Outcome::failed, why); }

void Entrance::greeted(const connect::Greeter::Failure& failure) {
  if (!done_) return;
  if (failure.error) return finish(Outcome::failed, describe(failure.error));
  if (!failure.trouble.empty()) return finish(Outcome::failed, failure.trouble);
  const Greeting& greeting = greeter_.greeting();
  if (greeting.state() == Greeting::State::stranger) return finish(Outcome::stranger, greeting.words());
  greeted_ = true;
  if (greeting.state() == Greeting::State::refused) return finish(Outcome::refused, greeting.words());
  return role_ == Greeting::Role::answerer ? judge() : hear_verdict();
}

void Entrance::judge() {
  const Verdict verdict = judge_(greeter_.greeting().peer());
  if (verdict == Verdict::drop) return finish(Outcome::failed, "a connection that is not expected");
  verdict_[0] = static_cast<std::byte>(verdict);
  boost::asio::async_write(socket_, boost::asio::buffer(verdict_),
                           [self = shared_from_this(), verdict](const error_code& error, std::size_t) {
                             if (error) return self->finish(Outcome::failed, describe(error));
                             if (verdict == Verdict::not_now) return self->finish(Outcome::not_now);
                             self->begin_tls();
                           });
}

void Entrance::hear_verdict() {
  boost::asio::async_read(socket_, boost::asio::buffer(verdict_),
                          [self = shared_from_this()](const error_code& error, std::size_t) {
                            if (error) return self->finish(Outcome::failed, describe(error));
                            const auto verdict = static_cast<Verdict>(self->verdict_[0]);
                            if (verdict == Verdict::not_now) return self->finish(Outcome::not_now);
                            if (verdict != Verdict::taken)
                              return self->finish(Outcome::failed, "it does not follow the protocol");
                            self->begin_tls();
                          });
}

void Entrance::begin_tls() {
  if (!done_) return;
  if (secure_ != Secure::tls) return finish(Outcome::taken);
  try {
    ssl_.reset(make_tls_on_socket(tls_->native(), socket_.native_handle()));
    set_tls_secret(ssl_.get(), greeter_.greeting().secret());
  } catch (const std::exception& failure) {
    return finish(Outcome::failed, failure.what());
  }
  if (role_ == Greeting::Role::caller) {
    SSL_set_connect_state(ssl_.get());
  } else {
    SSL_set_accept_state(ssl_.get());
  }
  error_code ignored;
  socket_.native_non_blocking(true, ignored);
  pump_tls();
}

void Entrance::pump_tls() {
  if (!done_) return;
  ERR_clear_error();
  const int good = SSL_do_handshake(ssl_.get());
  if (good == 1) {
    return tls_by_secret(ssl_.get()) ? finish(Outcome::taken)
                                     : finish(Outcome::failed, "TLS without the shared secret");
  }
  const int reason = SSL_get_error(ssl_.get(), good);
  if (reason != SSL_ERROR_WANT_READ && reason != SSL_ERROR_WANT_WRITE)
    return finish(Outcome::failed, std::string("TLS: ") + take_tls_error());
  socket_.async_wait(reason == SSL_ERROR_WANT_READ ? boost::asio::ip::tcp::socket::wait_read
                                                   : boost::asio::ip::tcp::socket::wait_write,
                     [self = shared_from_this()](const error_code& error) {
                       if (error) return self->finish(Outcome::failed, describe(error));
                       self->pump_tls();
                     });
}

void Entrance::finish(Outcome outcome, std::string words) {
  if (!done_) return;
  const Done done = std::exchange(done_, nullptr);
  limit_.cancel();
  greeter_.cancel();
  Result result{outcome, nullptr, greeter_.greeting().peer(), std::move(words), greeted_};
  error_code error;
  if (outcome == Outcome::taken) {
    const int socket = socket_.release(error);
    if (error) {
      result.outcome = Outcome::failed;
      result.words = describe(error);
    } else {
      prepare_for_frames(socket);
      result.stream = std::make_unique<Stream>(socket, ssl_.release());
    }
  }
  if (!result.stream) {
    ssl_.reset();
    socket_.close(error);
  }
  done(std::move(result));
}

}  // namespace aplib::comm::tcp
