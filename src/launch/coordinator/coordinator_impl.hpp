// SPDX-License-Identifier: MIT
// Coordinator::Impl, for the files of the coordinator.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "comm/job_key.hpp"
#include "kernel/overseer.hpp"
#include "launch/coordinator/coordinator.hpp"
#include "launch/coordinator/file_carrier.hpp"
#include "launch/coordinator/relays.hpp"
#include "launch/coordinator/streams.hpp"
#include "launch/coordinator/ways.hpp"
#include "launch/wire/connection.hpp"
#include "launch/wire/event_loop.hpp"
#include "launch/wire/run_messages.hpp"

namespace aplib::launch::coordinator {

enum class Phase : std::uint8_t { calling, measuring, preparing, loading, running, ending, over };

[[nodiscard]] const char* phase_text(Phase phase);

/// How far a node is.
enum class Stage : std::uint8_t {
  called,
  here,
  measuring,
  measured,
  preparing,
  prepared,
  probing,
  probed,
  loading,
  ready,
  running,
  finished,  ///< It has reported, and may leave.
  gone
};
[[nodiscard]] const char* stage_text(Stage stage);

/// A node, as the coordinator knows it.
struct KnownNode {
  KnownNode(wire::EventLoop& loop, std::string its_name) : name(std::move(its_name)), patience(loop) {}

  /// It has said who it is.
  [[nodiscard]] bool has_come() const { return stage != Stage::called && !is_foretold; }

  std::string name;
  Stage stage = Stage::called;
  std::shared_ptr<wire::Connection> newcomer{};  ///< Over its streams, while it is greeted.
  std::shared_ptr<wire::Connection> connection{};
  bool closed = false;  ///< It was connected, and the connection is closed.
  wire::Hello hello{};
  bool is_foretold = false;  ///< It has not come yet, and `hello` is what it will say.
  cluster::HostSpeed speed{};
  std::string endpoint{};  ///< By each module.
  std::vector<wire::LeftOutModule> left_out{};
  wire::Probed found{};  ///< Which others, and which relays, it reaches.
  wire::Finished finished{};
  wire::Bytes unfinished_note{};
  std::size_t lines_said = 0;              ///< Lines of its process on standard error.
  std::size_t lines_hidden = 0;            ///< Lines that were not shown.
  std::vector<std::string> early_lines{};  ///< What it wrote before it was there.
  std::vector<std::string> late_lines{};   ///< What it wrote since another one has failed.
  bool has_fault = false;                  ///< It has said so on standard error.
  std::string cause{};                     ///< Why it ended, as far as its starter knows.
  int own_status = 0;                      ///< The status with which it ended by itself.
  std::size_t unfetched = 0;               ///< Transfers from it that are not over.
  std::string lost{};                      ///< Why it has gone, or that is not known.
  wire::Timer patience;                    ///< For a better cause.
};

using NodeAnswers = std::function<void(const std::vector<std::optional<wire::Bytes>>& answers)>;

/// A question to the nodes, and what they have answered so far.
struct Inquiry {
  std::vector<std::optional<wire::Bytes>> answers{};
  NodeAnswers answer{};
  std::function<bool(const wire::Bytes& answer)> is_enough{};  ///< One that makes others' needless.
  std::unique_ptr<wire::Timer> patience{};
};

class Coordinator::Impl {
 public:
  static constexpr std::size_t kept_lines_max = 100;  ///< Of a process, before it calls, or since another one fails.
  static constexpr std::size_t said_lines_max = 200;  ///< Of a process: more are counted, not shown.
  /// A process that has told of a fault ends within this time, or another one's failure is the first.
  static constexpr std::chrono::seconds moment{1};

  Impl(Job its_job, Output& its_output, std::unique_ptr<start::Starter> its_starter, Actions its_actions,
       Coordinator& its_owner);

  JobResult run();

  // The start. coordinator.cpp
  void listen();
  void start_nodes();
  [[nodiscard]] start::NodeStart start_of(std::uint32_t process) const;
  void hear(start::Contact contact);
  void greet_nodes();
  void greet(start::Contact contact);
  void join(start::Contact contact);
  void close_streams();
  wire::ConnectionEvents welcome(const std::shared_ptr<wire::Connection>& connection, std::uint32_t process);
  void take_hello(std::uint32_t process, std::span<const std::byte> body);
  void compare_layouts(std::uint32_t process);
  [[nodiscard]] bool all_at(Stage stage);
  /// Whether all nodes are so. It is asked after each message of a node, so it begins with the node that was not so the
  /// last time: N questions that end in "all" take some N steps, not N^2.
  template <class IsSo>
  [[nodiscard]] bool all_nodes(IsSo&& is_so) {
    for (std::size_t i = 0; i < nodes.size(); ++i, last_not_so = (last_not_so + 1) % nodes.size())
      if (!is_so(*nodes[last_not_so])) return false;
    return true;
  }
  void advance();
  void measure_all();
  void measure_next(const std::string& computer);
  [[nodiscard]] Options options_of(std::uint32_t process) const;
  void prepare_all();
  [[nodiscard]] bool any_auto() const;
  void say_shares();
  void describe_plan();
  void plan_all();
  void go();
  [[nodiscard]] bool keeps_any() const { return some_kept; }
  [[nodiscard]] bool keeps(std::uint32_t process) const { return job.cluster.hosts[process].process; }
  void check_all_come();

  // Addresses. reach.cpp
  [[nodiscard]] std::string data_address(std::uint32_t process) const;
  [[nodiscard]] std::vector<std::string> known_addresses() const;
  [[nodiscard]] const char* address_why(std::uint32_t process, const std::string& address) const;

  // Ways between the nodes. coordinator_ways.cpp
  void start_relays();
  [[nodiscard]] bool are_apart(std::uint32_t a, std::uint32_t b) const;
  [[nodiscard]] bool any_apart() const;
  bool probe_all();
  [[nodiscard]] Ways find_ways();
  void relay_lost(const std::string& why);

  // The end. coordinator.cpp
  void call_off(const std::string& text, int status = static_cast<int>(ExitStatus::usage));
  void stop_running(int status, const std::string& text);
  void fail(int status, const std::string& text);
  void begin_to_end();
  void end_by_force();
  void check_over();
  void told_to_end(std::uint32_t process, int signal);
  void end_early(std::uint32_t process, const std::string& why, int status);
  void fail_by(std::uint32_t process, std::function<void()> tell);
  [[nodiscard]] std::string early_end(std::uint32_t process, const std::string& why) const;
  void take_finished(std::uint32_t process, const wire::Finished& finished);
  [[nodiscard]] int status_of_cells() const;
  void too_late();
  [[nodiscard]] std::string not_there(const std::vector<std::uint32_t>& late, const std::string& names) const;

  // Nodes that are lost.
  void start_failed(std::uint32_t process, const std::string& text);
  void process_ended(std::uint32_t process, int status, const std::string& words);
  void connection_closed(std::uint32_t process, wire::ConnectionEnd end, const std::string& why);
  void suspect(std::uint32_t process, const std::string& why);
  void pulse();
  void lose(std::uint32_t process, const std::string& why);
  void blame(std::uint32_t process);
  void misspoken(std::uint32_t process);
  void process_said(std::uint32_t process, const std::string& line);
  void say_of(std::uint32_t process, const std::string& line);
  void say_late_lines();
  void say_debug(const std::string& line);

  // Files. coordinator_files.cpp
  [[nodiscard]] FileCarrier::Events carrier_events();
  [[nodiscard]] std::vector<wire::TransferText> transfers_of(std::uint32_t process) const;
  void expect_files();
  void send_files(std::uint32_t process);
  bool send_programs(std::uint32_t process, const wire::WantFiles& want);
  void take_transfer(std::uint32_t process, const wire::Transfer& transfer);
  void let_go(std::uint32_t process);
  void transfer_ended(std::uint32_t process, std::uint32_t transfer);
  void not_fetched(const std::string& problem);
  void fetch_moves();
  [[nodiscard]] bool fetches() const;

  // Messages. coordinator_messages.cpp
  void take(std::uint32_t process, wire::MessageType type, std::span<const std::byte> body);
  bool take_of_start(std::uint32_t process, wire::MessageType type, std::span<const std::byte> body);
  bool take_of_run(std::uint32_t process, wire::MessageType type, std::span<const std::byte> body);
  void take_cannot(std::uint32_t process, const std::string& text);
  void deadline_moves();
  void take_note(std::uint32_t process, const wire::Note& note);
  void send_note(std::uint32_t process, std::span<const std::byte> note);
  /// The process carries the cell, or the host program. Of any number: for what a node says.
  [[nodiscard]] bool has_cell(std::uint32_t process, std::uint32_t cell) const;
  void take_ended(const wire::EndedCell& ended);
  void end_well();
  [[nodiscard]] std::vector<wire::FileRef> find_files(const std::string& name);
  void answer_find(std::uint32_t process, const std::string& name);
  [[nodiscard]] wire::MachineStatus status() const;
  /// Its program runs, as far as is known here, or is about to as a process.
  [[nodiscard]] bool has_program(std::uint32_t process) const;
  void ask_nodes(const std::string& question, NodeAnswers answer, std::chrono::seconds patience,
                 std::function<bool(const wire::Bytes&)> is_enough = {});
  void take_answer(std::uint32_t process, const wire::Answer& answer);
  void check_answers(std::uint64_t number);
  template <class Message>
  void tell(std::uint32_t process, const Message& message) {
    if (nodes[process]->connection != nullptr) nodes[process]->connection->send(message);
  }

  Coordinator& owner;
  Job job;
  Output& output;
  const Actions actions;
  const comm::JobKey key;
  const std::string machine_id;
  const std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  wire::EventLoop loop;
  wire::ConnectionSettings settings;
  wire::Timer deadline;  // of the phase
  wire::Timer ending;    // until the end by force
  wire::Timer pulse_timer;
  std::chrono::steady_clock::time_point last_pulse{};
  std::chrono::steady_clock::time_point last_standstill{};
  std::chrono::nanoseconds stood_still{0};  // this process, at that time
  std::optional<wire::Acceptor> acceptor;   // None if no node calls back.
  std::vector<std::unique_ptr<KnownNode>> nodes;
  std::size_t last_not_so = 0;  // all_nodes()
  bool some_kept = false;       // some process is an ordinary one
  bool needs_speeds = false;
  std::map<std::string, std::deque<std::uint32_t>> unmeasured;  // by computer
  Phase phase = Phase::calling;
  std::vector<cluster::CpuShare> cpu_shares;
  cluster::Shares shares;
  CellMap cells;                 // as planned
  std::optional<Relays> relays;  // None: no gateways.
  const ForcedWay forced_way;
  std::optional<Overseer> overseer;
  bool all_ended = false;                 // as the overseer says: nodes may report
  std::set<std::uint32_t> ended_cells{};  // whose output has come
  std::set<std::string> offered;          // program files that nodes may ask for
  bool ran = false;                       // so there is something to fetch
  bool not_all_fetched = false;
  bool by_force = false;  // whoever has not ended by now is given up
  std::map<std::uint64_t, Inquiry> inquiries;
  std::uint64_t last_inquiry = 0;

  JobResult result;
  std::string failure;
  std::optional<std::uint32_t> first_layout;  // the process that has told first where heaps place blocks
  bool tells_of_layouts = false;
  // Of several processes that fail at once, the user is told of the first, and its status is the machine's.
  std::optional<std::uint32_t> first_to_fail;  // it has told of a fault, or has failed
  std::function<void()> held_failure;          // of another one, until the first has ended, or for a moment
  wire::Timer held_for;
  int host_status = 0;
  int first_failure = 0;
  int first_part_status = 0;

  std::mutex contacts_mutex;  // of what follows
  std::vector<start::Contact> contacts;
  bool deaf = false;  // too late for further ones

  // Their threads use the members above, so they are destroyed first.
  OutputCarrier output_carrier;
  InputCarrier input_carrier;
  FileCarrier file_carrier;
  std::unique_ptr<start::Starter> starter;
};

}  // namespace aplib::launch::coordinator
