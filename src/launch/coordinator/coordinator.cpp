// SPDX-License-Identifier: MIT
#include "launch/coordinator/coordinator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "aplib/error.hpp"
#include "aplib/version.hpp"
#include "comm/mixed/mixed_port.hpp"
#include "comm/tcp/address.hpp"
#include "kernel/overseer.hpp"
#include "kernel/process.hpp"
#include "kernel/programs.hpp"
#include "launch/coordinator/coordinator_impl.hpp"
#include "launch/start/launch_method.hpp"
#include "launch/terminal.hpp"
#include "launch/this_host.hpp"
#include "launch/wire/connection.hpp"
#include "launch/wire/endpoint.hpp"

namespace aplib::launch::coordinator {

using namespace std::chrono_literals;

namespace {

constexpr auto arrival_patience =
    120s;  // without anybody's arrival; what can take longer (a login) has limits of its own
constexpr auto start_patience = 120s;   // from the last arrival to ready, without any node's progress
constexpr auto cause_patience = 1s;     // for the reason behind a lost connection
constexpr auto words_patience = 300ms;  // for the last words of a process that has ended
constexpr auto standstill_note = 3s;    // how long a standstill of ours counts: longer than a cause is awaited
constexpr auto grace = 1500ms;          // nodes end by themselves after 1 s
constexpr auto end_patience = 30s;      // from the last cell's end to the last node's
constexpr int failed_status = static_cast<int>(ExitStatus::program_failed);

ForcedWay read_forced_way() {
  const char* const variable = std::getenv("TEST_APRUN_WAY");
  const std::string_view text = variable == nullptr ? "" : variable;
  return text == "reverse" ? ForcedWay::reverse : text == "relay" ? ForcedWay::relay : ForcedWay::none;
}

std::string random_name() {
  std::array<std::byte, 8> bytes{};
  comm::fill_random(bytes);
  std::string name;
  for (const std::byte byte : bytes) name += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return name;
}

}  // namespace

const char* phase_text(Phase phase) {
  constexpr std::array texts{"starting", "measuring", "preparing", "loading", "running", "ending", "over"};
  return texts.at(static_cast<std::size_t>(phase));
}

const char* stage_text(Stage stage) {
  constexpr std::array texts{"called", "here",    "measuring", "measured", "preparing", "prepared", "probing",
                             "probed", "loading", "ready",     "running",  "finished",  "gone"};
  return texts.at(static_cast<std::size_t>(stage));
}

Coordinator::Impl::Impl(Job its_job, Output& its_output, std::unique_ptr<start::Starter> its_starter,
                        Actions its_actions, Coordinator& its_owner)
    : owner(its_owner),
      job(std::move(its_job)),
      output(its_output),
      actions(std::move(its_actions)),
      key(comm::JobKey::make()),
      machine_id(random_name()),
      settings{.key = key},
      deadline(loop),
      ending(loop),
      pulse_timer(loop),
      forced_way(read_forced_way()),
      held_for(loop),
      output_carrier(output,
                     [this](std::uint32_t process, std::uint64_t bytes) {
                       loop.post([this, process, bytes] { tell(process, wire::Written{bytes}); });
                     }),
      input_carrier(output,
                    [this](std::uint32_t process, std::uint32_t cell, std::span<const std::byte> bytes, bool last) {
                      loop.post([this, process, cell, last, copy = wire::Bytes(bytes.begin(), bytes.end())] {
                        tell(process, wire::InputPiece{cell, last, copy});
                      });
                    }),
      file_carrier(carrier_events(), describe_this_host().host_id),
      starter(std::move(its_starter)) {
  for (std::uint32_t process = 0; process < job.cluster.hosts.size(); ++process)
    nodes.push_back(std::make_unique<KnownNode>(loop, job.cluster.hosts[process].name));
  for (const wire::FileRef& file : job.files) offered.insert(file.path);
  some_kept = std::ranges::any_of(job.cluster.hosts, &cluster::ClusterHost::process);
  needs_speeds = cluster::needs_speeds(job.cluster);
}

// ---- the start ----

JobResult Coordinator::Impl::run() {
  settings.secure = comm::secure_from(job.cluster.options.secure);
  if (settings.secure == comm::Secure::tls) settings.tls = std::make_shared<comm::TlsContext>();
  settings.timeout = job.cluster.options.peer_timeout;
  if (!job.reach.addresses.empty()) listen();
  loop.post([this] {
    last_pulse = std::chrono::steady_clock::now();
    pulse();
    try {
      start_relays();
    } catch (const Error& error) {
      return call_off(fmt::format("{}; nothing was started", error.what()));
    }
    start_nodes();
  });
  loop.run();
  relays.reset();
  if (acceptor) acceptor->close();
  close_streams();
  starter.reset();  // ends what still runs, and waits for it
  output_carrier.finish();
  say_late_lines();
  for (const auto& node : nodes) {
    if (node->unfetched != 0)
      not_fetched(fmt::format("{}: its files were not fetched: {}", node->name,
                              node->lost.empty() ? "that took too long" : node->lost));
    if (node->lines_hidden != 0)
      actions.say(fmt::format("{}: {} more lines of its process are not shown", node->name, node->lines_hidden));
  }
  result.reason = failure;
  // The overseer's map counts, not the planned one: a host program may have chosen another grid.
  const CellMap& carried = overseer ? overseer->cells() : cells;
  for (std::uint32_t process = 0; process < nodes.size() && process < carried.processes(); ++process) {
    const auto& statuses = nodes[process]->finished.cell_status;
    const std::span<const std::uint32_t> here = carried.cells_of(process);
    if (statuses.empty() || statuses.size() != here.size()) continue;
    result.cell_status.resize(carried.cells());
    for (std::size_t i = 0; i < here.size(); ++i) result.cell_status[here[i]] = statuses[i];
  }
  if (result.reason.empty() && result.status == 0) result.status = status_of_cells();
  if (not_all_fetched && result.status == 0) result.status = failed_status;
  result.host_status = host_status;
  return std::move(result);
}

/// For nodes that call back.
void Coordinator::Impl::listen() {
  const comm::tcp::PortRange ports = comm::tcp::PortRange::parse(job.cluster.options.ports);
  wire::Acceptor::Events events;
  events.arrived = [this](const std::shared_ptr<wire::Connection>& connection, std::uint32_t process) {
    return welcome(connection, process);
  };
  events.refused = [this](const std::string& text) { call_off(fmt::format("a host does not fit: {}", text)); };
  acceptor.emplace(loop, settings, job.reach.addresses, static_cast<std::uint16_t>(ports.first),
                   static_cast<std::uint16_t>(ports.last), std::move(events));
}

void Coordinator::Impl::start_nodes() {
  if (owner.listening)
    owner.listening({acceptor ? acceptor->endpoints() : std::vector<std::string>(), key.reveal_hex()});
  deadline.start(arrival_patience, [this] { too_late(); });
  if (starter == nullptr) return;  // another launcher starts them
  std::vector<start::NodeStart> starts;
  for (std::uint32_t process = 0; process < nodes.size(); ++process) {
    const bool is_there = job.cluster.hosts[process].launch == cluster::LaunchKind::pmix && owner.listening;
    if (!is_there) starts.push_back(start_of(process));
  }
  start::StartEvents events;
  events.failed = [this](std::uint32_t process, const std::string& text) {
    loop.post([this, process, text] { start_failed(process, text); });
  };
  events.ended = [this](std::uint32_t process, int status, const std::string& words) {
    loop.post([this, process, status, words] { process_ended(process, status, words); });
  };
  events.said = [this](std::uint32_t process, const std::string& line) {
    loop.post([this, process, line] { process_said(process, line); });
  };
  events.greets = [this](start::Contact contact) { hear(std::move(contact)); };
  try {
    starter->start(std::move(starts), std::move(events));
  } catch (const Error& error) {
    call_off(error.what());
  }
}

start::NodeStart Coordinator::Impl::start_of(std::uint32_t process) const {
  const cluster::ClusterHost& host = job.cluster.hosts[process];
  std::string place(host.launch == cluster::LaunchKind::keeper ? wire::kept_endpoint : wire::streams_endpoint);
  if (!cluster::speaks_by_streams(host.launch)) {
    // First the address by which this host comes, then the others.
    const std::vector<std::string> endpoints = acceptor->endpoints();
    place.clear();
    for (const bool first : {true, false}) {
      for (std::size_t i = 0; i < endpoints.size(); ++i)
        if ((job.reach.addresses[i] == job.reach.first[process]) == first)
          place += (place.empty() ? "" : ",") + endpoints[i];
    }
  }
  start::NodeStart start;
  start.process = process;
  start.host = host;
  start.command = {host.aprun.empty() ? job.aprun : host.aprun,
                   "--node",
                   place,
                   "--process",
                   std::to_string(process),
                   "--secure",
                   job.cluster.options.secure,
                   "--peer-timeout",
                   job.cluster.options.get("peer-timeout")};
  if (host.process) start.command.emplace_back("--processes");  // it has no cells for which its heap would be tuned
  start.input = key.reveal_hex() + "\n";
  return start;
}

/// The starter's thread.
void Coordinator::Impl::hear(start::Contact contact) {
  const std::lock_guard lock(contacts_mutex);
  if (deaf) return;
  contacts.push_back(std::move(contact));
  loop.post([this] { greet_nodes(); });
}

void Coordinator::Impl::greet_nodes() {
  std::vector<start::Contact> those;
  {
    const std::lock_guard lock(contacts_mutex);
    those.swap(contacts);
  }
  for (start::Contact& contact : those) greet(std::move(contact));
}

/// A node speaks on its streams. If it is too late, they are closed, and it ends.
void Coordinator::Impl::greet(start::Contact contact) {
  const std::uint32_t process = contact.process;
  KnownNode& node = *nodes[process];
  if (phase >= Phase::ending || node.newcomer != nullptr) return;
  if (contact.kept) return join(std::move(contact));
  wire::ConnectionEvents events;
  events.opened = [this, process](std::uint32_t) {
    std::shared_ptr<wire::Connection> opened = std::move(nodes[process]->newcomer);
    opened->listen(welcome(opened, process));
  };
  events.closed = [this, process](wire::ConnectionEnd end, const std::string& why) {
    using End = wire::ConnectionEnd;
    if (end == End::lost) return connection_closed(process, end, why);  // its starter may know the cause
    lose(process, end == End::refused ? why : fmt::format("what speaks there is not this machine's aprun: {}", why));
  };
  try {
    node.newcomer =
        wire::connect_pair(loop, settings, std::move(contact.ends), process, contact.came, std::move(events));
  } catch (const Error& error) {
    call_off(early_end(process, error.what()));
  }
}

/// A keeper starts the node, which hears what is said to it before it is there.
void Coordinator::Impl::join(start::Contact contact) {
  const std::uint32_t process = contact.process;
  KnownNode& node = *nodes[process];
  try {
    const auto connection = wire::join_pair(loop, settings, std::move(contact.ends), process, {});
    connection->listen(welcome(connection, process));
  } catch (const Error& error) {
    return call_off(early_end(process, error.what()));
  }
  if (process >= job.foretold.size() || !job.foretold[process] || node.connection == nullptr) return;
  node.hello = *job.foretold[process];
  node.is_foretold = true;
  node.stage = Stage::here;
  advance();
}

/// Nodes that are still there see the end of their input.
void Coordinator::Impl::close_streams() {
  {
    const std::lock_guard lock(contacts_mutex);
    deaf = true;
    contacts.clear();
  }
  for (const auto& node : nodes) {
    if (node->newcomer != nullptr) node->newcomer->drop();
    if (node->connection != nullptr) node->connection->drop();
  }
}

wire::ConnectionEvents Coordinator::Impl::welcome(const std::shared_ptr<wire::Connection>& connection,
                                                  std::uint32_t process) {
  if (process >= nodes.size() || nodes[process]->connection != nullptr || phase >= Phase::ending) {
    connection->send(wire::Refused{process >= nodes.size() ? "there is no such process in this machine"
                                                           : "it is too late, or this process is here already"});
    connection->close();
    return {};
  }
  KnownNode& node = *nodes[process];
  node.connection = connection;
  wire::ConnectionEvents events;
  events.message = [this, process](wire::MessageType type, std::span<const std::byte> body) {
    take(process, type, body);
  };
  events.closed = [this, process](wire::ConnectionEnd end, const std::string& why) {
    connection_closed(process, end, why);
  };
  return events;
}

void Coordinator::Impl::take_hello(std::uint32_t process, std::span<const std::byte> body) {
  KnownNode& node = *nodes[process];
  const auto start = wire::read_hello_start(body);
  auto hello = wire::decode<wire::Hello>(body);
  if (!start) return misspoken(process);
  if (start->control != wire::control_version || start->version != version) {
    return call_off(
        fmt::format("{} has APlib {} (control protocol {}), and this is APlib {} (control protocol {}): install "
                    "the same version on all hosts, or name its aprun by aprun = \"...\" of [[host]]",
                    node.name, start->version, start->control, version, wire::control_version));
  }
  if (!hello || hello->process != process) return misspoken(process);
  const bool was_foretold = std::exchange(node.is_foretold, false);
  if (was_foretold && (hello->host_id != node.hello.host_id || hello->cpus != node.hello.cpus)) {
    return call_off(
        fmt::format("{} is not what its keeper has said before, as after a restart or with other "
                    "processors; nothing was started. apctl hosts asks it anew; then try again",
                    node.name));
  }
  node.hello = *std::move(hello);
  compare_layouts(process);
  if (!was_foretold) node.stage = Stage::here;
  node.connection->trust();
  if (starter != nullptr) starter->arrived(process);
  for (const std::string& line : std::exchange(node.early_lines, {})) say_of(process, line);
  if (!was_foretold) advance();
}

bool Coordinator::Impl::all_at(Stage stage) {
  return all_nodes([stage](const KnownNode& node) { return node.stage == stage; });
}

/// Goes on to the next phase when all nodes are that far.
void Coordinator::Impl::advance() {
  if (phase >= Phase::running) return;
  deadline.start(phase == Phase::calling ? arrival_patience : start_patience, [this] { too_late(); });
  if (phase == Phase::preparing && keeps_any()) deadline.cancel();  // a process may call MPI whenever it likes
  try {
    if (phase == Phase::calling && all_at(Stage::here)) {
      std::vector<cluster::CpuUser> users;
      for (std::uint32_t process = 0; process < nodes.size(); ++process) {
        const std::string& threads = job.cluster.hosts[process].threads;
        const wire::Hello& hello = nodes[process]->hello;
        users.push_back({hello.host_id, hello.cpus, threads.empty() ? job.cluster.options.get("threads") : threads});
      }
      cpu_shares = cluster::share_cpus(users);
      phase = Phase::measuring;
      measure_all();
    }
    if (phase == Phase::measuring && all_at(Stage::measured)) prepare_all();
    if (phase == Phase::preparing && all_at(Stage::prepared)) {
      if (job.dry_run) {
        describe_plan();
      } else if (!any_apart()) {
        plan_all();
      } else if (!probe_all()) {
        return;
      }
    }
    if (phase == Phase::preparing && all_at(Stage::probed)) plan_all();
    if (phase == Phase::loading && all_at(Stage::ready)) go();
  } catch (const Error& error) {
    call_off(error.what());
  }
}

/// Whether some host's number of cells is not given.
bool Coordinator::Impl::any_auto() const {
  return std::ranges::any_of(job.cluster.hosts,
                             [](const cluster::ClusterHost& host) { return !host.cells.has_value(); });
}

void Coordinator::Impl::measure_all() {
  if (!any_auto() && !job.dry_run) {
    for (const auto& node : nodes) node->stage = Stage::measured;
    return;
  }
  for (std::uint32_t process = 0; process < nodes.size(); ++process)
    unmeasured[nodes[process]->hello.host_id].push_back(process);
  for (const auto& [computer, processes] : unmeasured) measure_next(computer);
}

/// Processes of one computer are measured one after the other, because they would slow each other down.
void Coordinator::Impl::measure_next(const std::string& computer) {
  std::deque<std::uint32_t>& processes = unmeasured[computer];
  if (processes.empty()) return;
  const std::uint32_t process = processes.front();
  processes.pop_front();
  const cluster::ClusterHost& host = job.cluster.hosts[process];
  nodes[process]->stage = Stage::measuring;
  tell(process, wire::MeasureSpeed{.kind = static_cast<std::uint8_t>(host.speed.kind),
                                   .number = host.speed.number,
                                   .command = host.speed.command,
                                   .threads = options_of(process).get("threads"),
                                   .needed = !host.cells.has_value() && needs_speeds,
                                   .cpus = cpu_shares[process].cpus});
}

Options Coordinator::Impl::options_of(std::uint32_t process) const {
  Options options = job.cluster.options;
  options.cells = shares.grid;
  if (const std::string& threads = job.cluster.hosts[process].threads; !threads.empty())
    options.set("threads", threads);
  cluster::apply_share(options, cpu_shares[process]);
  return options;
}

namespace {

/// A node loads all programs of the machine, but no cell of it runs one that is for ordinary processes.
void use_loadable_files(std::vector<wire::ProgramText>& programs) {
  const auto loadable = std::ranges::find(programs, false, &wire::ProgramText::is_process);
  if (loadable == programs.end()) return;
  for (wire::ProgramText& program : programs) {
    if (program.is_process) program.file = loadable->file;
  }
}

}  // namespace

void Coordinator::Impl::prepare_all() {
  std::vector<cluster::HostSpeed> speeds;
  for (const auto& node : nodes) speeds.push_back(node->speed);
  shares = cluster::share_cells(job.cluster, speeds);
  cells = CellMap::consecutive(shares.cells);
  job.text.grid = shares.grid;
  say_shares();
  phase = Phase::preparing;
  if (keeps_any()) {
    deadline.cancel();
    if (!job.dry_run) output.prepare(shares.grid.count(), job.with_host);  // processes write as soon as they run
  }
  if (!job.dry_run) expect_files();
  const std::vector<std::string> others = known_addresses();
  const auto host_of = [this](std::uint32_t process) {
    const wire::Hello& hello = nodes[process]->hello;
    return std::pair(hello.host_id, hello.host);  // containers of one computer are hosts of their own
  };
  std::map<std::pair<std::string, std::string>, std::vector<std::uint32_t>> cells_on;
  for (std::uint32_t process = 0; process < nodes.size(); ++process) {
    std::vector<std::uint32_t>& there = cells_on[host_of(process)];
    const auto own = cells.cells_of(process);
    there.insert(there.end(), own.begin(), own.end());
  }
  for (std::uint32_t process = 0; process < nodes.size(); ++process) {
    if (keeps(process) && job.dry_run) {
      nodes[process]->stage = Stage::prepared;
      continue;
    }
    wire::Prepare prepare;
    const Options options = options_of(process);
    for (const OptionInfo& info : option_table())
      prepare.options.push_back({std::string(info.name), options.get(info.name)});
    prepare.address = data_address(process);
    if (prepare.address.empty()) prepare.others = others;
    prepare.files = job.files;
    prepare.programs = job.text.programs;
    prepare.entry = job.text.entry;
    prepare.entry_arguments = job.text.entry_arguments;
    prepare.expand = job.text.expand;
    prepare.input_for_all = job.input_for_all;
    prepare.cpus = cpu_shares[process].cpus;
    prepare.host_cells = cells_on[host_of(process)];
    prepare.keeps = keeps(process);
    if (prepare.keeps) {
      prepare.cell = cells.cells_of(process).front();
    } else {
      use_loadable_files(prepare.programs);
    }
    if (!job.dry_run) prepare.transfers = transfers_of(process);
    nodes[process]->stage = Stage::preparing;
    tell(process, prepare);
    if (!job.dry_run) send_files(process);
  }
}

void Coordinator::Impl::say_shares() {
  if (!any_auto() || job.dry_run || !cluster::needs_speeds(job.cluster)) return;
  std::string text;
  for (std::uint32_t process = 0; process < nodes.size(); ++process)
    text += fmt::format("{}{} {}", process == 0 ? "" : ", ", nodes[process]->name, cells.cells_of(process).size());
  actions.say(fmt::format("grid {}x{}, cells by speed: {}; {:.0f} % of the sum of the speeds is used", shares.grid.nx,
                          shares.grid.ny, text, 100 * shares.efficiency));
}

void Coordinator::Impl::describe_plan() {
  result.shares = shares;
  result.planned_cells = cells;
  for (std::uint32_t process = 0; process < nodes.size(); ++process) {
    const KnownNode& node = *nodes[process];
    const cluster::ClusterHost& host = job.cluster.hosts[process];
    PlannedHost& planned = result.plan.emplace_back();
    planned.name = node.name;
    planned.launch = host.launch;
    const auto endpoint = wire::parse_endpoint(wire::address_of(node.endpoint));
    planned.address = endpoint ? endpoint->host : data_address(process);
    planned.address_why = address_why(process, planned.address);
    for (const comm::mixed::NamedEndpoint& each : comm::mixed::split_endpoints(node.endpoint))
      planned.modules.push_back(each.module);
    for (const wire::LeftOutModule& left : node.left_out)
      planned.left_out.push_back(one_line(left.module + ": " + left.why));
    planned.threads = std::min<std::uint32_t>(node.speed.threads, cells.cells_of(process).size());
    planned.speed = node.speed.speed;
    tell(process, wire::Refused{"a dry run"});
  }
  phase = Phase::ending;
  begin_to_end();
}

void Coordinator::Impl::plan_all() {
  wire::Plan plan;
  plan.machine = machine_id;
  plan.cells = cells;
  for (const auto& node : nodes) {
    plan.endpoints.push_back(node->endpoint);
    plan.names.push_back(node->name);
  }
  Ways ways;
  if (all_at(Stage::probed)) ways = find_ways();
  OverseerActions to_do;
  to_do.send = [this](std::uint32_t part, std::vector<std::byte> note) { send_note(part, note); };
  to_do.failed = [this](int status, const std::string& text) { fail(status, text); };
  to_do.failed_too = [this](const std::string& text) { say_debug(text); };
  to_do.over = [this] {
    all_ended = true;
    end_well();
    if (!keeps_any())
      deadline.start(end_patience, [this] { too_late(); });  // a process may do more behind MPI_Finalize
  };
  to_do.suspect = [this](std::uint32_t part, const std::string& why) { suspect(part, why); };
  overseer.emplace(plan.names, cells, job.cluster.options.deadlock_report, std::move(to_do));
  phase = Phase::loading;
  // It tells of each process, to each: one copy for all, unless they have ways of their own.
  const auto body = ways.of.empty() ? std::make_shared<const wire::Bytes>(wire::encode(plan)) : nullptr;
  for (std::uint32_t process = 0; process < nodes.size(); ++process) {
    KnownNode& node = *nodes[process];
    node.stage = Stage::loading;
    if (body == nullptr) {
      plan.ways = std::move(ways.of[process]);
      tell(process, plan);
    } else if (node.connection != nullptr) {
      node.connection->send_shared(wire::Plan::type, body);
    }
  }
  for (const Chain& chain : ways.chains) relays->join(chain);
  if (relays) relays->keep_up(job.cluster.options.resume_time);
}

void Coordinator::Impl::go() {
  if (!keeps_any()) output.prepare(shares.grid.count(), job.with_host);
  phase = Phase::running;
  ran = true;
  deadline.cancel();
  for (std::uint32_t process = 0; process < nodes.size(); ++process) {
    nodes[process]->stage = Stage::running;
    tell(process, wire::Go{});
  }
}

// ---- the end ----

/// Ends a start before anything has run.
void Coordinator::Impl::call_off(const std::string& text, int status) {
  if (phase >= Phase::ending) return;
  if (phase == Phase::running) return stop_running(failed_status, text);
  failure = text;
  result.status = status;
  actions.say(text);
  phase = Phase::ending;
  for (std::uint32_t process = 0; process < nodes.size(); ++process) tell(process, wire::Refused{text});
  begin_to_end();
}

void Coordinator::Impl::stop_running(int status, const std::string& text) {
  if (all_ended && keeps_any()) return fail(status, text);
  if (overseer && phase == Phase::running) overseer->stop(status, text);
}

/// The overseer says that the run has failed. All nodes know it already.
void Coordinator::Impl::fail(int status, const std::string& text) {
  if (phase >= Phase::ending) return;
  if (phase != Phase::running) return call_off(text, status);
  failure = text;
  result.status = status;
  actions.say(text);
  phase = Phase::ending;
  for (std::uint32_t process = 0; process < nodes.size(); ++process) tell(process, wire::Stop{});
  begin_to_end();
}

void Coordinator::Impl::begin_to_end() {
  deadline.cancel();
  ending.start(grace, [this] { end_by_force(); });
  loop.post([this] { check_over(); });
}

/// Gives up whoever has not ended by now. Those that have may still send their files.
void Coordinator::Impl::end_by_force() {
  if (!fetches()) return loop.stop();
  by_force = true;
  for (std::uint32_t process = 0; process < nodes.size(); ++process)
    if (nodes[process]->stage < Stage::finished) lose(process, "it did not end in time");
  fetch_moves();
}

/// Ends the loop when every node has gone or was never here.
void Coordinator::Impl::check_over() {
  const bool all = all_nodes([this](const KnownNode& node) {
    return node.stage == Stage::gone || (phase == Phase::ending && node.connection == nullptr);
  });
  if (!all) return;
  phase = Phase::over;
  loop.stop();
}

void Coordinator::Impl::take_finished(std::uint32_t process, const wire::Finished& finished) {
  KnownNode& node = *nodes[process];
  node.stage = Stage::finished;
  node.finished = finished;
  if (finished.status != 0 && first_part_status == 0) first_part_status = finished.status;
  let_go(process);
  if (keeps(process) && finished.reason.empty() && phase == Phase::preparing) return check_all_come();
  if (all_ended && keeps(process) && !finished.reason.empty())
    return fail(finished.status, early_end(process, finished.reason));
  if (all_ended) return;
  const std::string why = finished.reason.empty() ? "its run has ended before the machine's" : finished.reason;
  end_early(process, why, finished.status != 0 ? finished.status : static_cast<int>(ExitStatus::peer_lost));
}

/// A process that has ended without having called MPI is nobody's rank. That matters if others have called, which wait
/// until all have.
void Coordinator::Impl::check_all_come() {
  if (!keeps_any()) return;
  const auto ended = std::ranges::find_if(nodes, [](const auto& node) { return node->stage >= Stage::finished; });
  const auto waits = std::ranges::find(nodes, Stage::prepared, &KnownNode::stage);
  if (phase != Phase::preparing || ended == nodes.end() || waits == nodes.end()) return;
  const auto process = static_cast<std::uint32_t>(ended - nodes.begin());
  const int status = (*ended)->finished.status;
  call_off(early_end(process, fmt::format("its process has ended with status {} and never called MPI_Init, where {} "
                                          "waits",
                                          status, cells.text(static_cast<std::uint32_t>(waits - nodes.begin())))),
           status != 0 ? status : static_cast<int>(ExitStatus::peer_lost));
}

/// A node ends before the machine runs, or when all cells have ended.
std::string Coordinator::Impl::early_end(std::uint32_t process, const std::string& why) const {
  return keeps(process) && cells.processes() == nodes.size()
             ? fmt::format("{} ({}) is lost: {}; the machine stops", nodes[process]->name, cells.text(process), why)
             : fmt::format("{} is not ready: {}; nothing was started", nodes[process]->name, why);
}

/// A node has got a signal from outside, for example because its host shuts down. It ends by itself.
void Coordinator::Impl::told_to_end(std::uint32_t process, int signal) {
  if (signal == 0) {
    return end_early(process, "its standard input has ended, as when what has started it is killed or cut off",
                     static_cast<int>(phase < Phase::running ? ExitStatus::usage : ExitStatus::peer_lost));
  }
  const char* name = ::sigabbrev_np(signal);
  end_early(process, fmt::format("it was told to end by signal {} (SIG{})", signal, name == nullptr ? "?" : name),
            128 + signal);
}

/// A node ends while the machine runs. All others stop, and the user is told why.
void Coordinator::Impl::end_early(std::uint32_t process, const std::string& why, int status) {
  blame(process);
  if (phase < Phase::running) return call_off(early_end(process, why), status);
  if (phase == Phase::running) fail_by(process, [this, process, why, status] { overseer->lost(process, why, status); });
}

/// A process fails, and `tell` tells the overseer. If another one has told of a fault before, that one's end is a
/// moment away, and is what the user hears of.
void Coordinator::Impl::fail_by(std::uint32_t process, std::function<void()> tell) {
  const bool is_first = !first_to_fail || first_to_fail == process || nodes[*first_to_fail]->stage >= Stage::finished;
  if (phase == Phase::running && !is_first) {
    if (held_failure) return;
    held_failure = std::move(tell);
    held_for.start(moment, [this, process] {
      first_to_fail = process;
      std::exchange(held_failure, nullptr)();
    });
    return;
  }
  if (!first_to_fail) first_to_fail = process;
  held_for.cancel();
  tell();
  if (held_failure) std::exchange(held_failure, nullptr)();  // told at debug level
}

int Coordinator::Impl::status_of_cells() const {
  if (host_status != 0) return host_status;
  return first_failure != 0 ? first_failure : first_part_status;
}

/// The message about processes that have not come in time.
std::string Coordinator::Impl::not_there(const std::vector<std::uint32_t>& late, const std::string& names) const {
  const bool some_call = std::ranges::any_of(
      late, [this](std::uint32_t process) { return !cluster::speaks_by_streams(job.cluster.hosts[process].launch); });
  if (some_call) {
    return fmt::format(
        "{} did not call back within {} s; nothing was started. It must reach one of {}: does a firewall "
        "stand between? ports = \"FIRST-LAST\" in [comm] names ports to open",
        names, arrival_patience.count(), fmt::join(acceptor->endpoints(), ", "));
  }
  return fmt::format(
      "{} did not answer within {} s{}; nothing was started. Does ssh, or the login shell there, wait for "
      "something?",
      names, arrival_patience.count(), start::in_quotes(nodes[late.front()]->early_lines));
}

void Coordinator::Impl::too_late() {
  std::vector<std::uint32_t> late;
  std::string names;
  const bool ends = phase == Phase::running;
  for (std::uint32_t process = 0; process < nodes.size(); ++process) {
    const Stage stage = nodes[process]->stage;
    const bool done = ends ? stage >= Stage::finished
                           : stage == Stage::here || stage == Stage::measured || stage == Stage::prepared ||
                                 stage == Stage::probed || stage == Stage::ready;
    if (done) continue;
    names += (late.empty() ? "" : ", ") + nodes[process]->name;
    late.push_back(process);
  }
  if (ends) {
    failure = fmt::format("{} does not end, though all its cells have: it is ended by force", names);
    result.status = failed_status;
    actions.say(failure);
    phase = Phase::ending;
    for (std::uint32_t process = 0; process < nodes.size(); ++process) tell(process, wire::Stop{});
    return begin_to_end();
  }
  for (const std::uint32_t process : late) blame(process);
  if (phase == Phase::calling) return call_off(not_there(late, names));
  if (late.empty() && relays) names = "a relay on a gateway";
  call_off(fmt::format("{} is not ready after {} s of {}; nothing was started", names, start_patience.count(),
                       phase_text(phase)));
}

// ---- nodes that are lost ----

void Coordinator::Impl::start_failed(std::uint32_t process, const std::string& text) {
  KnownNode& node = *nodes[process];
  if (!node.has_come()) {
    blame(process);
    return call_off(fmt::format("{}; nothing was started", text));
  }
  if (node.stage < Stage::finished) lose(process, text);
}

void Coordinator::Impl::process_ended(std::uint32_t process, int status, const std::string& words) {
  KnownNode& node = *nodes[process];
  if (node.stage >= Stage::finished) return;
  constexpr int without_launcher = static_cast<int>(ExitStatus::peer_lost);
  if (status == without_launcher && node.connection != nullptr) {
    // The node does not hear this process. Its connection will end here as well, and tell the cause.
    node.patience.start(job.cluster.options.peer_timeout + cause_patience,
                        [this, process] { lose(process, "it does not hear aprun any more"); });
    return;
  }
  node.cause = fmt::format("its process {}", start::how_it_ended(status));
  if (!node.has_come() && !words.empty()) node.cause += fmt::format(": {}", words);
  constexpr int killed = 128 + 9;
  if (status != 0 && status != killed && status != 128 + 15) node.own_status = status;
  // The node's last words may still be under way.
  if (node.connection == nullptr || node.closed) return lose(process, node.cause);
  node.patience.start(words_patience, [this, process] { lose(process, nodes[process]->cause); });
}

void Coordinator::Impl::connection_closed(std::uint32_t process, wire::ConnectionEnd end, const std::string& why) {
  KnownNode& node = *nodes[process];
  node.newcomer.reset();
  node.connection.reset();
  node.closed = true;
  if (node.stage == Stage::finished || phase >= Phase::ending) {
    node.lost = why;
    file_carrier.lose(process);
    node.stage = Stage::gone;
    node.patience.cancel();
    return check_over();
  }
  if (end == wire::ConnectionEnd::silent || (node.cause.empty() && starter == nullptr)) return lose(process, why);
  if (!node.cause.empty()) return lose(process, node.cause);
  node.patience.start(cause_patience, [this, process, why] { lose(process, why); });
}

/// The kernel suspects a process. Its starter may know the cause in a moment.
void Coordinator::Impl::suspect(std::uint32_t process, const std::string& why) {
  if (process >= nodes.size()) return;
  KnownNode& node = *nodes[process];
  if (node.stage >= Stage::finished || node.closed || !node.cause.empty()) return;
  node.patience.start(cause_patience, [this, process, why] { lose(process, why); });
}

/// Notes whether this process stood still for so long that nodes may have given it up: it was stopped, or a debugger
/// held it. The note lapses after some time without a standstill.
void Coordinator::Impl::pulse() {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::nanoseconds period = job.cluster.options.peer_timeout / 5;
  const std::chrono::nanoseconds late = now - std::exchange(last_pulse, now) - period;
  if (late >= period * 4) {
    stood_still = late;
    last_standstill = now;
  } else if (now - last_standstill > standstill_note) {
    stood_still = 0s;
  }
  pulse_timer.start(period, [this] { pulse(); });
}

/// Notes whom the failure is about, until it is told.
void Coordinator::Impl::blame(std::uint32_t process) {
  const bool is_known = std::ranges::find(result.lost, process) != result.lost.end();
  if (phase < Phase::ending && !is_known) result.lost.push_back(process);
}

void Coordinator::Impl::lose(std::uint32_t process, const std::string& why) {
  KnownNode& node = *nodes[process];
  if (node.stage >= Stage::finished) return;
  pulse();
  blame(process);
  node.stage = Stage::gone;
  node.patience.cancel();
  node.lost = why;
  file_carrier.lose(process);
  if (node.newcomer != nullptr) std::exchange(node.newcomer, nullptr)->drop();
  if (node.connection != nullptr) std::exchange(node.connection, nullptr)->close();
  if (phase == Phase::running) {
    if (stood_still > 0s) {
      const std::chrono::duration<double> time = stood_still;
      overseer->lost(process,
                     fmt::format("aprun itself stood still for {:.1f} s, longer than peer-timeout, so that its "
                                 "nodes gave it up",
                                 time.count()));
    } else {
      const int status = node.own_status != 0 ? node.own_status : static_cast<int>(ExitStatus::peer_lost);
      fail_by(process, [this, process, why, status] { overseer->lost(process, why, status); });
    }
  } else if (phase < Phase::running) {
    call_off(early_end(process, why), static_cast<int>(keeps(process) ? ExitStatus::peer_lost : ExitStatus::usage));
  } else {
    say_debug(fmt::format("{} ends: {}", node.name, why));
  }
  check_over();
}

void Coordinator::Impl::misspoken(std::uint32_t process) {
  lose(process, "what it says is not this version's control protocol");
}

// ---- the coordinator, for its caller ----

Coordinator::Coordinator(Job job, Output& output, std::unique_ptr<start::Starter> starter, Actions actions)
    : impl_(std::make_unique<Impl>(std::move(job), output, std::move(starter), std::move(actions), *this)) {}
Coordinator::~Coordinator() = default;

JobResult Coordinator::run() { return impl_->run(); }

void Coordinator::stop(int status, const std::string& text) {
  impl_->loop.post([impl = impl_.get(), status, text] {
    impl->phase == Phase::running ? impl->stop_running(status, text) : impl->call_off(text, status);
  });
}

void Coordinator::post(std::function<void()> what) { impl_->loop.post(std::move(what)); }

wire::MachineStatus Coordinator::status() const { return impl_->status(); }

void Coordinator::ask_nodes(const std::string& question,
                            std::function<void(const std::vector<std::optional<wire::Bytes>>& answers)> answer) {
  impl_->ask_nodes(question, std::move(answer), std::chrono::seconds(1));  // for people
}

void Coordinator::ask_tasks(std::function<void(std::string)> answer) {
  if (impl_->overseer) impl_->overseer->ask_tasks(std::move(answer));
}

}  // namespace aplib::launch::coordinator
