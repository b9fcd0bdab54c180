// SPDX-License-Identifier: MIT
#include "kernel/overseer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "aplib/error.hpp"
#include "aplib/machine.hpp"
#include "kernel/mailbox.hpp"

namespace aplib {

struct Overseer::Impl {
  struct ProcessState {
    std::string name;
    std::optional<std::uint64_t> ended;  ///< all_ended: after so many starts.
    std::optional<QuietNote> quiet;
    std::optional<QuietNote> probed;  ///< `quiet` when the probe under way began: what its sums were made of.
    bool still = false;               ///< It has answered that nothing has changed.
    bool gone = false;
  };
  struct Question {
    std::vector<std::optional<std::string>> texts;
    std::function<void(std::vector<std::string>)> answer;
  };

  std::vector<ProcessState> processes;
  CellMap cells;
  Grid grid{0, 0};  ///< Known when a process has told.
  bool deadlock_report = true;
  OverseerActions actions;
  std::uint64_t starts = 0;
  bool stopped = false;
  bool over = false;
  std::uint64_t round = 0;
  bool probing = false;
  std::uint64_t next_question = 1;
  std::optional<api::Failed> failed_first;
  std::map<std::uint64_t, Question> questions;

  void tell(std::uint32_t process, const ByteWriter& note) {
    if (!processes[process].gone) actions.send(process, note.bytes());
  }
  void tell_others(std::uint32_t but, const ByteWriter& note) {
    for (std::uint32_t p = 0; p < processes.size(); ++p) {
      if (p != but) tell(p, note);
    }
  }
  static constexpr std::uint32_t nobody = ~0U;

  void stop(int status, const std::string& text) {
    if (stopped || over) return;
    stopped = true;
    ByteWriter note = begin_note(NoteKind::stop);
    note.number(static_cast<std::uint32_t>(status));
    note.text(text);
    tell_others(nobody, note);
  }
  void fail(int status, const std::string& text) {
    if (stopped || over) {
      if (stopped && actions.failed_too) actions.failed_too(text);
      return;
    }
    stop(status, text);
    if (actions.failed) actions.failed(status, text);
  }

  void check_over() {
    if (stopped || over) return;
    const bool all =
        std::ranges::all_of(processes, [&](const ProcessState& process) { return process.ended == starts; });
    if (!all) return;
    over = true;
    tell_others(nobody, begin_note(NoteKind::over));
    if (actions.over) actions.over();
  }

  // It is a deadlock when every process is quiet, everything sent has been taken, and nobody has anything new when
  // asked once more. This is Mattern's double counting: a message under way would make the sums differ, and a process
  // that has moved in between would have other counts.
  void check_quiet() {
    if (stopped || over || probing || !deadlock_report) return;
    QuietNote sum;
    for (const ProcessState& process : processes) {
      if (!process.quiet) return;
      sum.sent += process.quiet->sent;
      sum.received += process.quiet->received;
    }
    if (sum.sent != sum.received) return;
    probing = true;
    ++round;
    for (ProcessState& process : processes) {
      process.probed = process.quiet;
      process.still = false;
    }
    ByteWriter note = begin_note(NoteKind::probe);
    note.number(round);
    tell_others(nobody, note);
  }

  void still(std::uint32_t from, bool quiet, const QuietNote& answer) {
    ProcessState& process = processes[from];
    if (!quiet) {  // it moves: wait for its next quiet note, unless that has come already
      probing = false;
      if (process.quiet == process.probed) process.quiet.reset();
      return;
    }
    if (process.probed != answer) {  // it has moved, and is quiet again
      probing = false;
      process.quiet = answer;
      return;
    }
    process.still = true;
    if (!std::ranges::all_of(processes, [](const ProcessState& each) { return each.still; })) return;
    // It ends now, so `probing` stays: the question below wakes processors, which are quiet again then.
    if (processes[0].probed->host_ended != 0) {
      // The host program is through, and the cells only wait for more from it. As on the original, its end ends the
      // run.
      stop(0, "");
      if (actions.over) actions.over();
      return;
    }
    stop_with_descriptions();
  }

  void stop_with_descriptions() {
    ask([this](std::vector<std::string> texts) {
      std::string text = "deadlock: every task waits and no message is on its way, so nothing can go on";
      for (std::uint32_t p = 0; p < processes.size(); ++p) {
        if (!texts[p].empty()) text += fmt::format("\n on {}:{}", processes[p].name, texts[p]);
      }
      text += "\n  look for a receive whose source, task or type no send has, or a collective that not all cells call";
      if (!failed_first) return fail(static_cast<int>(ExitStatus::deadlock), text);
      // Others wait for what it would have sent, or for anybody's.
      fail(failed_first->status, fmt::format("{}: {}", failed_first->text(), text));
    });
  }

  void ask(std::function<void(std::vector<std::string>)> answer) {
    const std::uint64_t question = next_question++;
    questions[question] = Question{std::vector<std::optional<std::string>>(processes.size()), std::move(answer)};
    ByteWriter note = begin_note(NoteKind::ask);
    note.number(question);
    tell_others(nobody, note);
    for (std::uint32_t p = 0; p < processes.size(); ++p) {
      if (processes[p].gone) described(p, question, "");
    }
  }

  void described(std::uint32_t from, std::uint64_t question, std::string text) {
    const auto found = questions.find(question);
    if (found == questions.end()) return;
    found->second.texts[from] = std::move(text);
    const auto& texts = found->second.texts;
    if (!std::ranges::all_of(texts, [](const auto& each) { return each.has_value(); })) return;
    std::vector<std::string> all;
    for (const auto& each : texts) all.push_back(*each);
    const auto answer = std::move(found->second.answer);
    questions.erase(found);
    answer(std::move(all));
  }

  void start(std::uint32_t but, const StartNote& note) {
    ++starts;
    ByteWriter out = begin_note(NoteKind::start);
    note.write(out);
    tell_others(but, out);
  }

  // One for each kind of note. False: it makes no sense.

  bool read_failed(std::uint32_t from, ByteReader& in) {
    const auto status = in.number<std::uint32_t>();
    std::string text = in.text();
    if (!in.ended()) return false;
    if (text.empty()) text = "it has failed, and does not say why";
    fail(static_cast<int>(status), processes.size() > 1 ? fmt::format("{}: {}", processes[from].name, text) : text);
    return true;
  }

  bool read_all_ended(std::uint32_t from, ByteReader& in) {
    processes[from].ended = in.number<std::uint64_t>();
    if (!in.ended()) return false;
    check_over();
    return true;
  }

  bool read_cell_ended(std::uint32_t from, ByteReader& in) {
    const auto cell = in.number<std::uint32_t>();
    const auto tasks = in.number<std::uint64_t>();
    const std::array<std::uint64_t, 3> episodes{in.number<std::uint64_t>(), in.number<std::uint64_t>(),
                                                in.number<std::uint64_t>()};
    const auto status = in.number<std::uint32_t>();
    const std::vector<std::uint32_t> told = in.numbers<std::uint32_t>();
    const bool is_its = cell == cells.cells() ? from == 0 : cells.carries(from, cell);  // behind the last: the host
    if (!in.ended() || !is_its) return false;
    ByteWriter out = begin_note(NoteKind::cell_ended);
    out.number(cell);
    out.number(tasks);
    for (const std::uint64_t episode : episodes) out.number(episode);
    out.number(status);
    if (status != 0 && !failed_first && cell != cells.cells()) failed_first = {cell, static_cast<int>(status)};
    for (std::uint32_t p = 0; p < processes.size(); ++p) {
      if (p != from && std::ranges::find(told, p) == told.end()) tell(p, out);
    }
    return true;
  }

  bool read_status(std::uint32_t from, ByteReader& in) {
    const auto status = in.number<std::uint64_t>();
    if (!in.ended()) return false;
    ByteWriter out = begin_note(NoteKind::status);
    out.number(from);
    out.number(status);
    tell_others(from, out);
    return true;
  }

  bool read_preset(std::uint32_t from, ByteReader& in) {
    const auto word = in.number<std::uint32_t>();
    if (!in.ended()) return false;
    ByteWriter out = begin_note(NoteKind::preset);
    out.number(word);
    tell_others(from, out);
    return true;
  }

  bool read_start(std::uint32_t from, ByteReader& in) {
    const std::optional<StartNote> note = StartNote::read(in, static_cast<std::uint32_t>(processes.size()));
    if (!note || note->grid.count() == 0) return false;
    cells = note->cells;
    grid = note->grid;
    start(from, *note);
    return true;
  }

  bool read_lost_peer(std::uint32_t from, ByteReader& in) {
    const auto peer = in.number<std::uint32_t>();
    const std::string why = in.text();
    if (!in.ended() || peer >= processes.size()) return false;
    const std::string text = fmt::format("{} lost its connection to it: {}", processes[from].name, why);
    if (processes[peer].gone || processes[from].gone || stopped || over) return true;
    if (actions.suspect) {
      actions.suspect(peer, text);
    } else {
      lost(peer, text);
    }
    return true;
  }

  bool read_quiet(std::uint32_t from, ByteReader& in) {
    processes[from].quiet = QuietNote::read(in);
    if (!in.ended()) return false;
    check_quiet();
    return true;
  }

  bool read_still(std::uint32_t from, ByteReader& in) {
    const auto of_round = in.number<std::uint64_t>();
    const bool quiet = in.number<std::uint8_t>() != 0;
    const QuietNote answer = QuietNote::read(in);
    if (!in.ended()) return false;
    if (probing && of_round == round && !stopped && !over) {
      still(from, quiet, answer);
      if (!probing) check_quiet();
    }
    return true;
  }

  bool read_description(std::uint32_t from, ByteReader& in) {
    const auto question = in.number<std::uint64_t>();
    std::string text = in.text();
    if (!in.ended()) return false;
    described(from, question, std::move(text));
    return true;
  }

  /// False: it makes no sense.
  bool receive(std::uint32_t from, ByteReader& in) {
    switch (static_cast<NoteKind>(in.number<std::uint8_t>())) {
      case NoteKind::failed:
        return read_failed(from, in);
      case NoteKind::all_ended:
        return read_all_ended(from, in);
      case NoteKind::cell_ended:
        return read_cell_ended(from, in);
      case NoteKind::status:
        return read_status(from, in);
      case NoteKind::preset:
        return read_preset(from, in);
      case NoteKind::start:
        return read_start(from, in);
      case NoteKind::lost_peer:
        return read_lost_peer(from, in);
      case NoteKind::quiet:
        return read_quiet(from, in);
      case NoteKind::still:
        return read_still(from, in);
      case NoteKind::description:
        return read_description(from, in);
      default:
        return false;
    }
  }

  void lost(std::uint32_t process, const std::string& why, int status = static_cast<int>(ExitStatus::peer_lost)) {
    if (processes[process].gone) return;
    processes[process].gone = true;
    fail(status,
         fmt::format("{} ({}) is lost: {}; the machine stops", processes[process].name, cells.text(process), why));
    std::vector<std::uint64_t> open;
    for (const auto& [question, unused] : questions) open.push_back(question);
    for (const std::uint64_t question : open) described(process, question, "");
  }
};

Overseer::Overseer(std::vector<std::string> names, CellMap cells, bool deadlock_report, OverseerActions actions)
    : impl_(std::make_unique<Impl>()) {
  for (std::string& name : names) {
    impl_->processes.emplace_back();
    impl_->processes.back().name = std::move(name);
  }
  impl_->cells = std::move(cells);
  impl_->deadlock_report = deadlock_report;
  impl_->actions = std::move(actions);
}

Overseer::~Overseer() = default;

void Overseer::receive(std::uint32_t process, std::span<const std::byte> note) {
  ByteReader in(note);
  if (process < impl_->processes.size() && impl_->receive(process, in)) return;
  impl_->fail(static_cast<int>(ExitStatus::peer_lost),
              fmt::format("{} sent a note that makes no sense; are all installations of APlib the same?",
                          process < impl_->processes.size() ? impl_->processes[process].name : "a stranger"));
}

void Overseer::lost(std::uint32_t process, const std::string& why, int status) { impl_->lost(process, why, status); }

void Overseer::stop(int status, const std::string& text) { impl_->fail(status, text); }

void Overseer::start_program(const std::string& file, std::uint32_t task, const std::vector<std::string>& arguments) {
  if (impl_->stopped || impl_->over)
    throw Error(Errc::ended, fmt::format("cannot start '{}': the machine has ended", file));
  StartNote note;
  note.grid = impl_->grid;  // 0x0: as it is
  note.cells = impl_->cells;
  note.file = file;
  note.task = task;
  note.joins = true;
  note.arguments = arguments;
  impl_->start(Impl::nobody, note);
}

const CellMap& Overseer::cells() const noexcept { return impl_->cells; }

void Overseer::ask_tasks(std::function<void(std::string)> answer) {
  impl_->ask([this, answer = std::move(answer)](std::vector<std::string> texts) {
    std::string all;
    for (std::size_t p = 0; p < texts.size(); ++p)
      all += fmt::format("{}:{}{}\n", impl_->processes[p].name, texts[p].empty() ? " (no answer)" : "", texts[p]);
    answer(all);
  });
}

}  // namespace aplib
