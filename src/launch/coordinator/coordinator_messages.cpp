// SPDX-License-Identifier: MIT
// Messages of nodes that have called back.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <type_traits>
#include <utility>

#include "aplib/error.hpp"
#include "kernel/programs.hpp"
#include "launch/coordinator/coordinator_impl.hpp"
#include "launch/program_path.hpp"
#include "launch/terminal.hpp"
#include "launch/wire/endpoint.hpp"
#include "launch/wire/files.hpp"

namespace aplib::launch::coordinator {
namespace {

/// Calls `what` with the message. Returns false if the bytes are no such message, or if `what` refuses it.
template <class Message, class What>
bool with(std::span<const std::byte> body, What&& what) {
  const auto message = wire::decode<Message>(body);
  if (!message) return false;
  if constexpr (std::is_void_v<decltype(what(*message))>) {
    what(*message);
    return true;
  } else {
    return what(*message);
  }
}

}  // namespace

void Coordinator::Impl::take(std::uint32_t process, wire::MessageType type, std::span<const std::byte> body) {
  if (!nodes[process]->has_come()) {
    if (type == wire::MessageType::hello) return take_hello(process, body);
    return misspoken(process);
  }
  if (!take_of_start(process, type, body) && !take_of_run(process, type, body)) misspoken(process);
}

/// Returns false if this is no message of the start, or makes no sense now.
bool Coordinator::Impl::take_of_start(std::uint32_t process, wire::MessageType type, std::span<const std::byte> body) {
  KnownNode& node = *nodes[process];
  // A message of one stage is a mistake at any other.
  const auto moves = [&](Stage from, Stage to) {
    if (node.stage != from) return false;
    node.stage = to;
    advance();
    return true;
  };
  switch (type) {
    case wire::MessageType::speed:
      return with<wire::SpeedIs>(body, [&](const wire::SpeedIs& is) {
        if (node.stage == Stage::measuring) node.speed = {is.speed, is.threads};
        const bool moved = moves(Stage::measuring, Stage::measured);
        if (phase == Phase::measuring) measure_next(node.hello.host_id);
        return moved;
      });
    case wire::MessageType::prepared:
      return with<wire::Prepared>(body, [&](const wire::Prepared& prepared) {
        if (node.stage == Stage::preparing) {
          node.endpoint = prepared.endpoint;
          node.left_out = prepared.left_out;
        }
        const bool moved = moves(Stage::preparing, Stage::prepared);
        check_all_come();
        return moved;
      });
    case wire::MessageType::probed:
      return with<wire::Probed>(body, [&](wire::Probed probed) {
        if (node.stage == Stage::probing) {
          probed.relays.resize(relays ? relays->names().size() : 0);
          node.found = std::move(probed);
        }
        return moves(Stage::probing, Stage::probed);
      });
    case wire::MessageType::ready:
      return with<wire::Ready>(body, [&](const wire::Ready&) { return moves(Stage::loading, Stage::ready); });
    case wire::MessageType::cannot:
      return with<wire::Cannot>(body, [&](const wire::Cannot& cannot) { take_cannot(process, one_line(cannot.text)); });
    case wire::MessageType::want_files:
      return with<wire::WantFiles>(body, [&](const wire::WantFiles& want) { return send_programs(process, want); });
    case wire::MessageType::transfer:
      return with<wire::Transfer>(body, [&](const wire::Transfer& transfer) { take_transfer(process, transfer); });
    case wire::MessageType::find_program:
      return with<wire::FindProgram>(body, [&](const wire::FindProgram& find) { answer_find(process, find.name); });
    default:
      return false;
  }
}

/// Returns false if this is no message of a run, or makes no sense now.
bool Coordinator::Impl::take_of_run(std::uint32_t process, wire::MessageType type, std::span<const std::byte> body) {
  const auto channel = [](bool error) { return error ? Channel::error : Channel::out; };
  switch (type) {
    case wire::MessageType::note:
      return with<wire::Note>(body, [&](const wire::Note& note) { take_note(process, note); });
    case wire::MessageType::output:
      return with<wire::OutputPiece>(body, [&](const wire::OutputPiece& piece) {
        if (!has_cell(process, piece.cell)) return false;
        std::string bytes(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
        output_carrier.write(process, piece.cell, channel(piece.error), std::move(bytes));
        return true;
      });
    case wire::MessageType::flush:
      return with<wire::Flush>(body, [&](const wire::Flush& flush) {
        if (!has_cell(process, flush.cell)) return false;
        output_carrier.flush(flush.cell, channel(flush.error));
        return true;
      });
    case wire::MessageType::ended:
      return with<wire::EndedCell>(body, [&](const wire::EndedCell& ended) {
        if (!has_cell(process, ended.cell)) return false;
        take_ended(ended);
        return true;
      });
    case wire::MessageType::warning:
      return with<wire::Warning>(body, [&](const wire::Warning& warning) { actions.say(one_line(warning.text)); });
    case wire::MessageType::want_input:
      return with<wire::WantInput>(body, [&](const wire::WantInput& want) {
        if (!has_cell(process, want.cell)) return false;
        input_carrier.want(process, want.cell, want.bytes);
        return true;
      });
    case wire::MessageType::finished:
      return with<wire::Finished>(body, [&](const wire::Finished& finished) {
        const Stage stage = nodes[process]->stage;
        const bool is_kept = stage >= Stage::preparing && stage <= Stage::probed && keeps(process);
        if (stage != Stage::running && stage != Stage::loading && stage != Stage::ready && !is_kept) return false;
        take_finished(process, finished);
        return true;
      });
    case wire::MessageType::told_to_end:
      return with<wire::ToldToEnd>(body, [&](const wire::ToldToEnd& told) {
        if (told.signal < 0 || told.signal >= 128) return false;
        told_to_end(process, told.signal);
        return true;
      });
    case wire::MessageType::answer:
      return with<wire::Answer>(body, [&](const wire::Answer& answer) { take_answer(process, answer); });
    default:
      return false;
  }
}

/// A node cannot go on.
void Coordinator::Impl::take_cannot(std::uint32_t process, const std::string& text) {
  blame(process);
  if (phase == Phase::running) {
    return fail_by(process, [this, why = fmt::format("{}: {}", nodes[process]->name, text)] {
      stop_running(static_cast<int>(ExitStatus::program_failed), why);
    });
  }
  if (phase < Phase::ending) call_off(early_end(process, text));
  tell(process, wire::Leave{});
}

void Coordinator::Impl::deadline_moves() {
  if (phase == Phase::preparing) advance();
}

void Coordinator::Impl::take_note(std::uint32_t process, const wire::Note& note) {
  KnownNode& node = *nodes[process];
  if (node.unfinished_note.size() + note.bytes.size() > wire::note_bytes_max) return misspoken(process);
  node.unfinished_note.insert(node.unfinished_note.end(), note.bytes.begin(), note.bytes.end());
  if (!note.last) return;
  const wire::Bytes whole = std::exchange(node.unfinished_note, {});
  if (!overseer) return;
  const auto tell = [this, process, whole] { overseer->receive(process, whole); };
  const bool fails = !whole.empty() && static_cast<NoteKind>(whole.front()) == NoteKind::failed;
  fails ? fail_by(process, tell) : tell();
}

void Coordinator::Impl::send_note(std::uint32_t process, std::span<const std::byte> note) {
  do {
    const auto piece = note.first(std::min(note.size(), wire::piece_bytes_max));
    note = note.subspan(piece.size());
    tell(process, wire::Note{note.empty(), piece});
  } while (!note.empty());
}

bool Coordinator::Impl::has_cell(std::uint32_t process, std::uint32_t cell) const {
  if (cell == Output::host) return process == 0;
  return (overseer ? overseer->cells() : cells).carries(process, cell);
}

void Coordinator::Impl::take_ended(const wire::EndedCell& ended) {
  output_carrier.end(ended.cell);
  if (ended.cell == Output::host) {
    host_status = ended.status;
  } else if (ended.status != 0 && first_failure == 0) {
    first_failure = ended.status;
  }
  ended_cells.insert(ended.cell);
  end_well();
}

/// When all cells have ended well, and keepers see to the end of all nodes, the user need not wait for it.
void Coordinator::Impl::end_well() {
  const bool is_over = phase == Phase::running && all_ended && ended_cells.size() == overseer->cells().cells();
  const bool is_plain = !job.with_host && job.fetched.empty() && !job.cluster.options.account_heap &&
                        std::ranges::all_of(job.cluster.hosts, [](const cluster::ClusterHost& host) {
                          return host.launch == cluster::LaunchKind::keeper && !host.process;
                        });
  const bool is_well =
      first_failure == 0 && first_part_status == 0 && std::ranges::all_of(nodes, [](const auto& node) {
        return node->stage >= Stage::running && node->stage <= Stage::finished && node->connection != nullptr;
      });
  if (!is_over || !is_plain || !is_well) return;
  phase = Phase::over;
  result.cell_status.assign(overseer->cells().cells(), 0);
  starter->leave_to_keepers();
  loop.post([this] {
    for (std::uint32_t process = 0; process < nodes.size(); ++process) tell(process, wire::Leave{});
    loop.post([this] { loop.post([this] { loop.stop(); }); });  // behind the writing of what was told
  });
}

/// The files of a further program, which is where its name says, or else beside the first one.
std::vector<wire::FileRef> Coordinator::Impl::find_files(const std::string& name) {
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
  std::vector<wire::FileRef> all = wire::describe_files(paths);
  for (const wire::FileRef& file : all) offered.insert(file.path);
  return all;
}

void Coordinator::Impl::answer_find(std::uint32_t process, const std::string& name) {
  wire::ProgramIs answer;
  try {
    answer.files = find_files(name);
  } catch (const Error& error) {
    answer.problem = error.what();
  }
  tell(process, answer);
}

void Coordinator::start_program(const std::string& file, std::uint32_t task,
                                const std::vector<std::string>& arguments) {
  if (!impl_->overseer || impl_->phase != Phase::running)
    throw Error(Errc::failed, fmt::format("the machine does not run: it is {}", phase_text(impl_->phase)));
  const wire::FileRef program = impl_->find_files(file).front();
  std::vector<wire::FileRef>& present = impl_->job.files;
  // Both would be the same rank, which begins and ends MPI once.
  const auto calls_mpi = [](const wire::FileRef& each) { return needs_mpi(each.path); };
  if (const auto other = std::ranges::find_if(present, calls_mpi); other != present.end() && calls_mpi(program)) {
    throw Error(Errc::failed,
                fmt::format("load: {} calls MPI, as {} of this machine does, and only one program of a rank can: start "
                            "it by an aprun of its own",
                            program.path, other->path));
  }
  impl_->overseer->start_program(program.path, task, arguments);
  present.push_back(program);
}

wire::MachineStatus Coordinator::Impl::status() const {
  wire::MachineStatus status;
  status.state = phase_text(phase);
  status.seconds = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begun).count());
  status.strangers = acceptor ? acceptor->strangers() : 0;
  status.file = job.cluster.file;
  status.program = job.files.front().path;
  const CellMap& carried = overseer ? overseer->cells() : cells;
  // The shares are not known before the hosts have been measured.
  const bool known = shares.grid.count() != 0 && carried.processes() == nodes.size();
  if (known) {
    status.grid = shares.grid;
    status.cells = carried;
  }
  for (std::uint32_t process = 0; process < nodes.size(); ++process) {
    const KnownNode& node = *nodes[process];
    status.processes.push_back({.name = node.name,
                                .computer = node.hello.host,
                                .pid = node.hello.pid,
                                .address = wire::address_of(node.endpoint),
                                .state = stage_text(node.stage)});
  }
  return status;
}

/// A node that is foretold but has not come has none: it could only answer before its hello.
bool Coordinator::Impl::has_program(std::uint32_t process) const {
  const KnownNode& node = *nodes[process];
  const bool keeps_one = keeps(process) && node.stage >= Stage::preparing && node.stage <= Stage::ready;
  return node.has_come() && (node.stage == Stage::running || keeps_one);
}

void Coordinator::Impl::ask_nodes(const std::string& question, NodeAnswers answer, std::chrono::seconds patience,
                                  std::function<bool(const wire::Bytes&)> is_enough) {
  const std::uint64_t number = ++last_inquiry;
  Inquiry& inquiry = inquiries[number];
  inquiry.answer = std::move(answer);
  inquiry.is_enough = std::move(is_enough);
  inquiry.answers.resize(nodes.size());
  for (std::uint32_t process = 0; process < nodes.size(); ++process) {
    if (has_program(process)) {
      tell(process, wire::Ask{number, question});
    } else {
      inquiry.answers[process].emplace();
    }
  }
  inquiry.patience = std::make_unique<wire::Timer>(loop);
  inquiry.patience->start(patience, [this, number] {
    const Inquiry over = std::move(inquiries[number]);
    inquiries.erase(number);
    over.answer(over.answers);
  });
  loop.post([this, number] { check_answers(number); });
}

void Coordinator::Impl::take_answer(std::uint32_t process, const wire::Answer& answer) {
  const auto found = inquiries.find(answer.question);
  if (found == inquiries.end()) return;  // the answer comes too late
  found->second.answers[process].emplace(answer.bytes.begin(), answer.bytes.end());
  check_answers(answer.question);
}

void Coordinator::Impl::check_answers(std::uint64_t number) {
  const auto found = inquiries.find(number);
  if (found == inquiries.end()) return;
  const Inquiry& inquiry = found->second;
  const bool all = std::ranges::all_of(inquiry.answers, [](const auto& each) { return each.has_value(); });
  const auto is_enough = [&](const auto& each) { return inquiry.is_enough && each && inquiry.is_enough(*each); };
  if (!all && std::ranges::none_of(inquiry.answers, is_enough)) return;
  const Inquiry over = std::move(found->second);
  inquiries.erase(found);
  over.answer(over.answers);
}

bool Coordinator::pass_signal(int signal) {
  const auto check = [this, signal](const auto& answers) {
    if (!wire::have_passed(answers)) refused_signal(signal);
  };
  post([this, impl = impl_.get(), signal, check] {
    // A program that has not begun handles nothing, and would miss what the others get.
    for (std::uint32_t process = 0; process < impl->nodes.size(); ++process)
      if (impl->nodes[process]->stage < Stage::finished && !impl->has_program(process)) return refused_signal(signal);
    // One that is stopped does not answer, and the others must not go on until then.
    const auto refuses = [](const wire::Bytes& answer) { return answer == wire::signal_answer(false); };
    impl->ask_nodes(wire::signal_question(signal), check, std::chrono::seconds(10), refuses);
  });
  return true;
}

}  // namespace aplib::launch::coordinator
