// SPDX-License-Identifier: MIT
// What nodes say, once they are here.
#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "kernel/program_summary.hpp"
#include "kernel/programs.hpp"
#include "launch/coordinator/coordinator_impl.hpp"
#include "launch/program_path.hpp"
#include "launch/wire/endpoint.hpp"

namespace aplib::launch {

void Coordinator::Inside::take(std::uint32_t process, MessageType type, std::span<const std::byte> body) {
  Member& member = *members[process];
  bool good = false;
  const auto with = [&]<class Message>(auto&& what) {
    if (const auto message = decode<Message>(body)) {
      good = true;
      what(*message);
    }
  };
  // What only makes sense at one stage is a mistake at any other.
  const auto expect = [&]<class Message>(Stage stage, auto&& what) {
    if (member.stage == stage) with.template operator()<Message>(what);
  };
  const auto channel = [](bool error) { return error ? Channel::error : Channel::out; };
  if (member.stage == Stage::called) {
    if (type == MessageType::hello) return take_hello(process, body);
    return misspoken(process);
  }
  switch (type) {
    case MessageType::speed:
      expect.operator()<SpeedIs>(Stage::measuring, [&](const SpeedIs& is) {
        member.speed = {is.speed, is.threads};
        member.stage = Stage::measured;
        advance();
      });
      break;
    case MessageType::prepared:
      expect.operator()<Prepared>(Stage::preparing, [&](const Prepared& prepared) {
        member.endpoint = prepared.endpoint;
        member.left_out = prepared.left_out;
        member.stage = Stage::prepared;
        advance();
      });
      break;
    case MessageType::ready:
      expect.operator()<Ready>(Stage::loading, [&](const Ready&) {
        member.stage = Stage::ready;
        advance();
      });
      break;
    case MessageType::cannot:
      with.operator()<Cannot>([&](const Cannot& cannot) {
        if (phase == Phase::running)
          return stop_running(static_cast<int>(ExitStatus::program_failed),
                              fmt::format("{}: {}", member.name, cannot.text));
        if (phase < Phase::ending)
          call_off(fmt::format("{} is not ready: {}; nothing was started", member.name, cannot.text));
        tell(process, Leave{});
      });
      break;
    case MessageType::want_file:
      with.operator()<WantFile>([&](const WantFile& want) {
        deadline_moves();
        Bytes buffer;
        tell(process, files.answer(want, buffer));
      });
      break;
    case MessageType::find_program:
      with.operator()<FindProgram>([&](const FindProgram& find) { answer_find(process, find.name); });
      break;
    case MessageType::note:
      with.operator()<Note>([&](const Note& note) { take_note(process, note); });
      break;
    case MessageType::output:
      with.operator()<OutputPiece>([&](const OutputPiece& piece) {
        std::string bytes(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
        output_carrier.write(process, piece.cell, channel(piece.error), std::move(bytes));
      });
      break;
    case MessageType::flush:
      with.operator()<Flush>([&](const Flush& flush) { output_carrier.flush(flush.cell, channel(flush.error)); });
      break;
    case MessageType::ended:
      with.operator()<EndedCell>([&](const EndedCell& ended) { take_ended(ended); });
      break;
    case MessageType::warning:
      with.operator()<Warning>([&](const Warning& warning) { actions.say(warning.text); });
      break;
    case MessageType::want_input:
      with.operator()<WantInput>([&](const WantInput& want) { input_carrier.want(process, want.cell, want.bytes); });
      break;
    case MessageType::finished:
      with.operator()<Finished>([&](const Finished& finished) {
        good = member.stage == Stage::running || member.stage == Stage::loading || member.stage == Stage::ready;
        if (good) take_finished(process, finished);
      });
      break;
    case MessageType::told_to_end:
      with.operator()<ToldToEnd>([&](const ToldToEnd& told) {
        good = told.signal > 0 && told.signal < 128;
        if (good) told_to_end(process, told.signal);
      });
      break;
    case MessageType::state:
      with.operator()<NodeState>([&](const NodeState& is) {
        if (process < state.processes.size()) {
          state.processes[process].node = is;
          state.processes[process].answered = true;
        }
        answer_state();
      });
      break;
    default:
      break;
  }
  if (!good) misspoken(process);
}

void Coordinator::Inside::deadline_moves() {
  if (phase == Phase::preparing) advance();
}

void Coordinator::Inside::take_note(std::uint32_t process, const Note& note) {
  Member& member = *members[process];
  if (member.unfinished_note.size() + note.bytes.size() > note_bytes_max) return misspoken(process);
  member.unfinished_note.insert(member.unfinished_note.end(), note.bytes.begin(), note.bytes.end());
  if (!note.last) return;
  const Bytes whole = std::exchange(member.unfinished_note, {});
  if (overseer) overseer->receive(process, whole);
}

void Coordinator::Inside::send_note(std::uint32_t process, std::span<const std::byte> note) {
  do {
    const auto piece = note.first(std::min(note.size(), piece_bytes_max));
    note = note.subspan(piece.size());
    tell(process, Note{note.empty(), piece});
  } while (!note.empty());
}

void Coordinator::Inside::take_ended(const EndedCell& ended) {
  output_carrier.end(ended.cell);
  if (ended.cell == Output::host) {
    host_status = ended.status;
  } else if (ended.status != 0 && first_failure == 0) {
    first_failure = ended.status;
  }
}

/// A further program: as it was named, or else beside the first one.
std::vector<FileRef> Coordinator::Inside::find_files(const std::string& name) {
  const std::filesystem::path first(job.files.front().path);
  const std::string beside = (first.parent_path() / std::filesystem::path(name).filename()).string();
  std::string found;
  try {
    found = find_program(name.find('/') == name.npos ? "./" + name : name, "");
  } catch (const Error& error) {
    try {
      found = find_program(beside, "");
    } catch (const Error&) {
      throw Error(error);
    }
  }
  std::vector<std::string> paths{found};
  ProgramRun run;
  run.file = found;
  for (const ProgramSummary::File& library : summarize_program(options_of(0), run).libraries)
    if (library.separate) paths.push_back(library.path);
  std::vector<FileRef> all = describe_files(paths);
  files.offer(all);
  return all;
}

void Coordinator::Inside::answer_find(std::uint32_t process, const std::string& name) {
  ProgramIs answer;
  try {
    answer.files = find_files(name);
  } catch (const Error& error) {
    answer.problem = error.what();
  }
  tell(process, answer);
}

void Coordinator::Inside::ask_state(std::function<void(MachineState)> answer) {
  questions.push_back(std::move(answer));
  if (questions.size() > 1) return;  // the answer to the first is for all
  constexpr const char* phases[] = {"starting", "measuring", "preparing", "loading", "running", "ending", "over"};
  state = {};
  state.program = job.files.front().path;
  state.file = job.cluster.file;
  state.grid = shares.grid;
  state.phase = phases[static_cast<std::size_t>(phase)];
  state.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  state.strangers = acceptor ? acceptor->strangers() : 0;
  for (std::uint32_t process = 0; process < members.size(); ++process) {
    const Member& member = *members[process];
    ProcessState& is = state.processes.emplace_back();
    is.name = member.name;
    is.stage = stage_text(member.stage);
    is.host = member.hello.host;
    is.pid = member.hello.pid;
    is.control = member.hello.local;
    is.endpoint = address_of(member.endpoint);
    if (process < cells.processes() && !cells.cells_of(process).empty()) {
      is.first_cell = cells.cells_of(process).front();
      is.cells = static_cast<std::uint32_t>(cells.cells_of(process).size());
    }
    is.answered = member.stage != Stage::running;
    tell(process, AskState{});
  }
  state_patience = std::make_unique<Timer>(loop);
  state_patience->start(std::chrono::seconds(1), [this] {
    for (ProcessState& process : state.processes) process.stage += process.answered ? "" : ", does not answer";
    for (ProcessState& process : state.processes) process.answered = true;
    answer_state();
  });
  loop.post([this] { answer_state(); });
}

void Coordinator::Inside::answer_state() {
  for (const ProcessState& process : state.processes)
    if (!process.answered) return;
  const auto waiting = std::exchange(questions, {});
  for (const auto& question : waiting) question(state);
}

}  // namespace aplib::launch
