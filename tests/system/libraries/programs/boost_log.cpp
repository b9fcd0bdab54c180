// SPDX-License-Identifier: MIT
// Boost.Log: the core with sinks, attributes and filters, one of it in each rank; its records hold what only that has.
#include <boost/core/null_deleter.hpp>
#include <boost/log/attributes/constant.hpp>
#include <boost/log/attributes/counter.hpp>
#include <boost/log/attributes/scoped_attribute.hpp>
#include <boost/log/core.hpp>
#include <boost/log/expressions.hpp>
#include <boost/log/sinks/async_frontend.hpp>
#include <boost/log/sinks/sync_frontend.hpp>
#include <boost/log/sinks/text_ostream_backend.hpp>
#include <boost/log/sources/record_ostream.hpp>
#include <boost/log/sources/severity_logger.hpp>
#include <boost/log/utility/setup/common_attributes.hpp>
#include <boost/make_shared.hpp>
#include <sstream>

#include "stress.h"

namespace logging = boost::log;
namespace expressions = boost::log::expressions;

template <template <class> class Frontend>
void round_of(int round) {
  using Sink = Frontend<logging::sinks::text_ostream_backend>;
  const auto text = boost::make_shared<std::ostringstream>();
  const auto sink = boost::make_shared<Sink>();
  sink->locked_backend()->add_stream(text);
  sink->set_filter(expressions::attr<int>("Severity") >= 2);
  sink->set_formatter(expressions::stream << expressions::attr<int>("Rank") << ':' << expressions::smessage);
  logging::core::get()->add_sink(sink);
  logging::core::get()->add_global_attribute("Rank", logging::attributes::constant<int>(rank));
  logging::sources::severity_logger<int> source;
  std::ostringstream expected;
  for (int i = 0; i < 50; ++i) {
    BOOST_LOG_SCOPED_THREAD_ATTR("Tag", logging::attributes::constant<int>(i));
    BOOST_LOG_SEV(source, i % 4) << "line " << i;
    if (i % 10 == 0) meet(i / 10);
    if (i % 4 >= 2) expected << rank << ":line " << i << '\n';
  }
  sink->flush();
  logging::core::get()->remove_sink(sink);
  if constexpr (requires { sink->stop(); }) sink->stop();
  check(text->str() == expected.str(), "the log");
  meet(round);
}

template <class Backend>
using Synchronous = logging::sinks::synchronous_sink<Backend>;
template <class Backend>
using Asynchronous = logging::sinks::asynchronous_sink<Backend>;

int main(int argc, char** argv) {
  begin(&argc, &argv);
  logging::add_common_attributes();
  for (int round = 0; round < 5; ++round) {
    round_of<Synchronous>(round);
    round_of<Asynchronous>(round);
  }
  return end();
}
