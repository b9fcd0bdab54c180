// SPDX-License-Identifier: MIT
#include "wan/orders.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace aplib::wan {
namespace {

/// Why an order is not carried out, and what to do.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string in_quotes(std::string_view text) { return '"' + std::string(text) + '"'; }

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (std::size_t begin = line.find_first_not_of(" \t\r"); begin != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
    words.emplace_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(" \t\r", end);
  }
  return words;
}

/// A number with one of these units, in the unit of factor 1.
double measure(const std::string& text, std::initializer_list<std::pair<std::string_view, double>> units, double least,
               const std::string& remedy) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error == std::errc()) {
    for (const auto& [unit, factor] : units) {
      if (std::string_view(stop, end) != unit) continue;
      const double value = number * factor;
      if (std::isfinite(value) && value >= least && value <= 1e15) return value;
    }
  }
  throw Refusal(in_quotes(text) + " is " + remedy);
}

double rate_of(const std::string& text) {
  if (text == "none") return 0;
  return measure(text, {{"b/s", 1}, {"kb/s", 1e3}, {"Mb/s", 1e6}, {"Gb/s", 1e9}}, 1,
                 "no rate: use none, or at least 1 of b/s, kb/s, Mb/s or Gb/s, as in 1.5Mb/s");
}

std::optional<std::uint64_t> queue_of(const std::string& text) {
  if (text == "auto") return std::nullopt;
  return static_cast<std::uint64_t>(measure(text, {{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}}, 0,
                                            "no size: use auto, or a number of B, kB, MB or GB, as in 64kB"));
}

Time time_of(const std::string& text) {
  constexpr double day = 86400e9;
  const std::string remedy = "no time up to a day: use a number of ns, us, ms or s, as in 0.35ms";
  const double time = measure(text, {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}, 0, remedy);
  if (time > day) throw Refusal(in_quotes(text) + " is " + remedy);
  return Time(std::llround(time));
}

double share_of(const std::string& text) {
  const std::string remedy = "no share: use 0 to 1, as in 0.01";
  const double share = measure(text, {{"", 1}}, 0, remedy);
  if (share > 1) throw Refusal(in_quotes(text) + " is " + remedy);
  return share;
}

std::uint64_t seed_of(const std::string& text) {
  std::uint64_t seed = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seed);
  if (error != std::errc() || stop != end)
    throw Refusal(in_quotes(text) + " is no seed: use a whole number below 2^64");
  return seed;
}

/// One order and the network that it is for. What it changes, it changes last.
class Order {
 public:
  Order(Network& network, std::vector<std::string> words, Time now)
      : network_(network), words_(std::move(words)), now_(now) {}

  void site(const Orders::MakeDevice& make_device) {
    want("site NAME NAMESPACE DEVICE ADDRESS[/BITS]...", 5);
    if (network_.find(words_[1])) throw Refusal("there is a site of that name already: choose another name");
    std::vector<Prefix> addresses;
    for (std::size_t i = 4; i < words_.size(); ++i) {
      const auto address = Prefix::parse(words_[i]);
      if (!address)
        throw Refusal(in_quotes(words_[i]) + " is no address: use one as 10.91.0.1, 10.91.1.0/24 or fd91::1");
      if (const auto owner = network_.owner(*address)) {
        throw Refusal(in_quotes(words_[i]) + " is an address of site " + in_quotes(network_.name(*owner)) +
                      ": choose another");
      }
      addresses.push_back(*address);
    }
    make_device(words_[2], words_[3]);
    network_.add_site(words_[1], std::move(addresses));
  }

  void access() {
    const std::string form = "access NAME [up RATE] [down RATE] [queue SIZE]";
    want(form, 4);
    const Network::Site site = site_of(words_[1]);
    Line up = network_.up(site);
    Line down = network_.down(site);
    for (std::size_t i = 2; i < words_.size(); i += 2) {
      const std::string& key = words_[i];
      if (key == "up") {
        up.rate = rate_of(value(i, form));
      } else if (key == "down") {
        down.rate = rate_of(value(i, form));
      } else if (key == "queue") {
        up.queue = down.queue = queue_of(value(i, form));
      } else {
        throw unknown_key(key, form);
      }
    }
    network_.up(site) = up;
    network_.down(site) = down;
  }

  void pair() {
    const std::string form = "pair FROM TO [delay TIME] [rate RATE] [queue SIZE] [loss SHARE] [seed NUMBER]";
    want(form, 5);
    const auto [from, to] = sites();
    Path path = network_.path(from, to);
    std::optional<std::uint64_t> seed;
    for (std::size_t i = 3; i < words_.size(); i += 2) {
      const std::string& key = words_[i];
      if (key == "delay") {
        path.delay = time_of(value(i, form));
      } else if (key == "rate") {
        path.line.rate = rate_of(value(i, form));
      } else if (key == "queue") {
        path.line.queue = queue_of(value(i, form));
      } else if (key == "loss") {
        path.loss = share_of(value(i, form));
      } else if (key == "seed") {
        seed = seed_of(value(i, form));
      } else {
        throw unknown_key(key, form);
      }
    }
    network_.path(from, to) = path;
    if (seed) network_.seed(from, to, *seed);
  }

  void cut() {
    want("cut FROM TO [TIME]", 3, 4);
    const auto [from, to] = sites();
    const std::optional<Time> end = words_.size() == 4 ? std::optional(now_ + time_of(words_[3])) : std::nullopt;
    network_.cut(from, to, end);
  }

  void join() {
    want("join FROM TO", 3, 3);
    const auto [from, to] = sites();
    network_.join(from, to);
  }

  void count() { want("count", 1, 1); }

 private:
  void want(const std::string& form, std::size_t least, std::optional<std::size_t> most = std::nullopt) const {
    if (words_.size() < least) throw Refusal("words are missing: write " + form);
    if (most && words_.size() > *most) throw Refusal(in_quotes(words_[*most]) + " is too much: write " + form);
  }

  [[nodiscard]] const std::string& value(std::size_t key, const std::string& form) const {
    if (key + 1 == words_.size()) throw Refusal(in_quotes(words_[key]) + " has no value: write " + form);
    return words_[key + 1];
  }

  static Refusal unknown_key(const std::string& key, const std::string& form) {
    return Refusal("there is no " + in_quotes(key) + " here: write " + form);
  }

  [[nodiscard]] Network::Site site_of(const std::string& name) const {
    if (const auto site = network_.find(name)) return *site;
    std::string names;
    for (Network::Site site = 0; site < network_.sites(); ++site) names += (site ? ", " : "") + network_.name(site);
    throw Refusal("there is no site " + in_quotes(name) + ": " +
                  (names.empty() ? "begin with orders \"site\"" : "use one of " + names));
  }

  [[nodiscard]] std::pair<Network::Site, Network::Site> sites() const {
    const std::pair both(site_of(words_[1]), site_of(words_[2]));
    if (both.first == both.second) throw Refusal("a pair is of two sites, not of one: name another");
    return both;
  }

  Network& network_;
  std::vector<std::string> words_;
  Time now_;
};

}  // namespace

std::string Orders::carry_out(std::string_view line, Time now) {
  ++lines_;
  const std::vector<std::string> words = words_of(line);
  if (words.empty() || words[0].starts_with('#')) return "ok\n";
  try {
    Order order(network_, words, now);
    if (words[0] == "site") {
      order.site(make_device_);
    } else if (words[0] == "access") {
      order.access();
    } else if (words[0] == "pair") {
      order.pair();
    } else if (words[0] == "cut") {
      order.cut();
    } else if (words[0] == "join") {
      order.join();
    } else if (words[0] == "count") {
      order.count();
      return counters() + "ok\n";
    } else {
      throw Refusal("there is no order " + in_quotes(words[0]) + ": use site, access, pair, cut, join or count");
    }
  } catch (const std::runtime_error& error) {
    return "error: line " + std::to_string(lines_) + ": " + in_quotes(line) + ": " + error.what() + '\n';
  }
  return "ok\n";
}

std::string Orders::counters() {
  std::string text;
  for (Network::Site from = 0; from < network_.sites(); ++from) {
    for (Network::Site to = 0; to < network_.sites(); ++to) {
      if (from == to) continue;
      const Counters& counters = network_.path(from, to).counters;
      text += "pair " + network_.name(from) + ' ' + network_.name(to);
      for (const auto& [name, count] : {std::pair("packets", counters.packets),
                                        {"bytes", counters.bytes},
                                        {"queue", counters.queue},
                                        {"loss", counters.loss},
                                        {"cut", counters.cut}}) {
        text += std::string(" ") + name + ' ' + std::to_string(count);
      }
      text += '\n';
    }
    text += "site " + network_.name(from) + " nowhere " + std::to_string(network_.nowhere(from)) + '\n';
  }
  return text;
}

}  // namespace aplib::wan
