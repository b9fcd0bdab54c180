// SPDX-License-Identifier: MIT
// What a farm and its workers say to each other, apfarm and its workers on hosts, and what a journal of a farm has.
// What is read can be written to the same bytes again.
#include <algorithm>

#include "farm/apfarm/host_messages.hpp"
#include "farm/journal.hpp"
#include "farm/messages.hpp"
#include "fuzzer.hpp"

namespace aplib::fuzz {
namespace {

using namespace farm;
using launch::wire::Bytes;

template <class Message>
Input one(const Message& message) {
  Bytes bytes;
  append_message(bytes, message);
  return bytes;
}

/// The message that a stream begins with. False: there is none of this type.
template <class Message>
bool try_next(MessageStream& stream, std::span<const std::byte>& rest) {
  const auto message = stream.next<Message>();
  if (!message) return false;
  const Input again = one(*message);
  promise(rest.size() >= again.size() && std::ranges::equal(again, rest.first(again.size())),
          "it is written as it was read");
  rest = rest.subspan(again.size());
  return true;
}

template <class... Message>
void try_stream(std::span<const std::byte> bytes) {
  MessageStream stream;
  stream.add(bytes);
  std::span<const std::byte> rest = bytes;
  while (const auto type = stream.next_type()) {
    const bool taken = ((*type == static_cast<std::uint8_t>(Message::type) && try_next<Message>(stream, rest)) || ...);
    if (!taken) break;
  }
}

void try_journal(std::span<const std::byte> bytes) {
  const JournalScan scan = scan_journal(bytes);
  promise(scan.whole <= bytes.size(), "it ends in the file");
  Bytes again;
  for (const std::size_t begin : scan.records) append_record(again, record_at(bytes, begin));
  promise(std::ranges::equal(again, bytes.first(scan.whole)), "records are written as they were read");
}

}  // namespace

std::vector<Input> seeds() {
  const Bytes some(40, std::byte{7});
  Input journal;
  for (const char* name : {"f", "g"}) append_record(journal, {.function = name, .arguments = some, .result = some});
  Input jobs;
  append_message(jobs, BeginWork{.jobs = "100%", .shell = "/bin/sh", .owner = "7", .silence = 10, .has_files = true});
  append_message(jobs, FilePiece{some});
  append_message(jobs, RunJob{.task = 1, .sequence = 2, .slot_number = 3, .text = "a b", .words = {"a", "b"}});
  append_message(jobs, StopJob{.task = 1, .how = Stop::kill});
  Input ends;
  append_message(ends, WorkerReady{.slots = 4});
  append_message(ends, JobOutput{.task = 1, .stream = JobOutput::Stream::error, .bytes = some});
  append_message(ends, Beat{});
  append_message(ends, JobEnded{.task = 1, .begun = true, .exit_value = 1, .problem = "no"});
  return {journal, jobs, ends, one(RunTask{.number = 1, .function = 2, .arguments = some}),
          one(RunEnded{.number = 1, .outcome = Outcome::failed, .nanoseconds = 5, .result = some})};
}

}  // namespace aplib::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace aplib;
  const auto bytes = std::as_bytes(std::span(data, size));
  fuzz::try_stream<farm::RunTask, farm::RunEnded>(bytes);
  fuzz::try_stream<farm::BeginWork, farm::RunJob, farm::StopJob, farm::FilePiece, farm::Beat, farm::WorkerReady,
                   farm::JobOutput, farm::JobEnded>(bytes);
  fuzz::try_journal(bytes);
  return 0;
}
