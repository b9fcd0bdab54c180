// SPDX-License-Identifier: MIT
// Users, groups, hosts, services: the answer lies in the instance's own buffer, one for each function as in libc.
// What setpwent() and its kin move, the place in the list, is the process's: two cells that enumerate at once each
// see a part (docs/privatization.md).
#include <grp.h>
#include <mntent.h>
#include <netdb.h>
#include <pwd.h>
#include <rpc/netdb.h>
#include <shadow.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/static_buffers.hpp"

namespace aplib::loader::libc {
namespace {

template <class Record>
struct Lookup {
  Record record{};
  std::vector<char> text;
};

}  // namespace

struct Lookups {
  Lookup<passwd> user_by_name, user_by_id, next_user, user_of_file;
  Lookup<group> group_by_name, group_by_id, next_group, group_of_file;
  Lookup<spwd> shadow_by_name, next_shadow, shadow_of_file;
  Lookup<hostent> host_by_name, host_by_name2, host_by_address, next_host;
  Lookup<netent> net_by_name, net_by_address, next_net;
  Lookup<servent> service_by_name, service_by_port, next_service;
  Lookup<protoent> protocol_by_name, protocol_by_number, next_protocol;
  Lookup<rpcent> rpc_by_name, rpc_by_number, next_rpc;
  Lookup<mntent> next_mount;
};

namespace {

// Asks `query(record, text, bytes, result)`, a function of the ..._r kind, with a larger buffer until the answer fits.
template <class Record, class Query>
Record* ask(Lookup<Record>& lookup, const Query& query) {
  constexpr std::size_t bytes_max = 64U << 20;
  if (lookup.text.empty()) lookup.text.resize(1024);
  for (;;) {
    Record* result = nullptr;
    const int error = query(&lookup.record, lookup.text.data(), lookup.text.size(), &result);
    if (error == ERANGE && lookup.text.size() < bytes_max) {
      lookup.text.resize(lookup.text.size() * 2);
      continue;
    }
    if (error != 0) errno = error;
    return result;
  }
}

Lookups& lookups_of(LibcState& state) { return shared_part(shared_part(state.buffers).lookups); }

// --- users

passwd* own_getpwnam(const char* name) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getpwnam(name);
  return ask(lookups_of(*state).user_by_name, [=](auto... rest) { return ::getpwnam_r(name, rest...); });
}

passwd* own_getpwuid(uid_t id) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getpwuid(id);
  return ask(lookups_of(*state).user_by_id, [=](auto... rest) { return ::getpwuid_r(id, rest...); });
}

passwd* own_getpwent() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getpwent();
  return ask(lookups_of(*state).next_user, ::getpwent_r);
}

passwd* own_fgetpwent(std::FILE* file) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::fgetpwent(file);
  return ask(lookups_of(*state).user_of_file, [=](auto... rest) { return ::fgetpwent_r(file, rest...); });
}

group* own_getgrnam(const char* name) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getgrnam(name);
  return ask(lookups_of(*state).group_by_name, [=](auto... rest) { return ::getgrnam_r(name, rest...); });
}

group* own_getgrgid(gid_t id) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getgrgid(id);
  return ask(lookups_of(*state).group_by_id, [=](auto... rest) { return ::getgrgid_r(id, rest...); });
}

group* own_getgrent() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getgrent();
  return ask(lookups_of(*state).next_group, ::getgrent_r);
}

group* own_fgetgrent(std::FILE* file) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::fgetgrent(file);
  return ask(lookups_of(*state).group_of_file, [=](auto... rest) { return ::fgetgrent_r(file, rest...); });
}

spwd* own_getspnam(const char* name) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getspnam(name);
  return ask(lookups_of(*state).shadow_by_name, [=](auto... rest) { return ::getspnam_r(name, rest...); });
}

spwd* own_getspent() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getspent();
  return ask(lookups_of(*state).next_shadow, ::getspent_r);
}

spwd* own_fgetspent(std::FILE* file) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::fgetspent(file);
  return ask(lookups_of(*state).shadow_of_file, [=](auto... rest) { return ::fgetspent_r(file, rest...); });
}

// --- the network's names

hostent* own_gethostbyname(const char* name) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::gethostbyname(name);
  return ask(lookups_of(*state).host_by_name, [=](auto... rest) { return ::gethostbyname_r(name, rest..., &h_errno); });
}

hostent* own_gethostbyname2(const char* name, int family) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::gethostbyname2(name, family);
  return ask(lookups_of(*state).host_by_name2,
             [=](auto... rest) { return ::gethostbyname2_r(name, family, rest..., &h_errno); });
}

hostent* own_gethostbyaddr(const void* address, socklen_t bytes, int family) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::gethostbyaddr(address, bytes, family);
  return ask(lookups_of(*state).host_by_address,
             [=](auto... rest) { return ::gethostbyaddr_r(address, bytes, family, rest..., &h_errno); });
}

hostent* own_gethostent() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::gethostent();
  return ask(lookups_of(*state).next_host, [](auto... rest) { return ::gethostent_r(rest..., &h_errno); });
}

netent* own_getnetbyname(const char* name) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getnetbyname(name);
  return ask(lookups_of(*state).net_by_name, [=](auto... rest) { return ::getnetbyname_r(name, rest..., &h_errno); });
}

netent* own_getnetbyaddr(std::uint32_t net, int type) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getnetbyaddr(net, type);
  return ask(lookups_of(*state).net_by_address,
             [=](auto... rest) { return ::getnetbyaddr_r(net, type, rest..., &h_errno); });
}

netent* own_getnetent() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getnetent();
  return ask(lookups_of(*state).next_net, [](auto... rest) { return ::getnetent_r(rest..., &h_errno); });
}

servent* own_getservbyname(const char* name, const char* protocol) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getservbyname(name, protocol);
  return ask(lookups_of(*state).service_by_name,
             [=](auto... rest) { return ::getservbyname_r(name, protocol, rest...); });
}

servent* own_getservbyport(int port, const char* protocol) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getservbyport(port, protocol);
  return ask(lookups_of(*state).service_by_port,
             [=](auto... rest) { return ::getservbyport_r(port, protocol, rest...); });
}

servent* own_getservent() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getservent();
  return ask(lookups_of(*state).next_service, ::getservent_r);
}

protoent* own_getprotobyname(const char* name) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getprotobyname(name);
  return ask(lookups_of(*state).protocol_by_name, [=](auto... rest) { return ::getprotobyname_r(name, rest...); });
}

protoent* own_getprotobynumber(int number) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getprotobynumber(number);
  return ask(lookups_of(*state).protocol_by_number,
             [=](auto... rest) { return ::getprotobynumber_r(number, rest...); });
}

protoent* own_getprotoent() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getprotoent();
  return ask(lookups_of(*state).next_protocol, ::getprotoent_r);
}

rpcent* own_getrpcbyname(const char* name) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getrpcbyname(name);
  return ask(lookups_of(*state).rpc_by_name, [=](auto... rest) { return ::getrpcbyname_r(name, rest...); });
}

rpcent* own_getrpcbynumber(int number) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getrpcbynumber(number);
  return ask(lookups_of(*state).rpc_by_number, [=](auto... rest) { return ::getrpcbynumber_r(number, rest...); });
}

rpcent* own_getrpcent() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getrpcent();
  return ask(lookups_of(*state).next_rpc, ::getrpcent_r);
}

// --- mounts

mntent* own_getmntent(std::FILE* file) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getmntent(file);
  Lookup<mntent>& lookup = lookups_of(*state).next_mount;
  lookup.text.resize(4096);  // as in libc; longer lines are cut
  return ::getmntent_r(file, &lookup.record, lookup.text.data(), static_cast<int>(lookup.text.size()));
}

}  // namespace

std::span<const Binding> databases_bindings() {
  static const std::array table{
      Binding::of("getpwnam", &own_getpwnam),
      Binding::of("getpwuid", &own_getpwuid),
      Binding::of("getpwent", &own_getpwent),
      Binding::of("fgetpwent", &own_fgetpwent),
      Binding::of("getgrnam", &own_getgrnam),
      Binding::of("getgrgid", &own_getgrgid),
      Binding::of("getgrent", &own_getgrent),
      Binding::of("fgetgrent", &own_fgetgrent),
      Binding::of("getspnam", &own_getspnam),
      Binding::of("getspent", &own_getspent),
      Binding::of("fgetspent", &own_fgetspent),
      Binding::of("gethostbyname", &own_gethostbyname),
      Binding::of("gethostbyname2", &own_gethostbyname2),
      Binding::of("gethostbyaddr", &own_gethostbyaddr),
      Binding::of("gethostent", &own_gethostent),
      Binding::of("getnetbyname", &own_getnetbyname),
      Binding::of("getnetbyaddr", &own_getnetbyaddr),
      Binding::of("getnetent", &own_getnetent),
      Binding::of("getservbyname", &own_getservbyname),
      Binding::of("getservbyport", &own_getservbyport),
      Binding::of("getservent", &own_getservent),
      Binding::of("getprotobyname", &own_getprotobyname),
      Binding::of("getprotobynumber", &own_getprotobynumber),
      Binding::of("getprotoent", &own_getprotoent),
      Binding::of("getrpcbyname", &own_getrpcbyname),
      Binding::of("getrpcbynumber", &own_getrpcbynumber),
      Binding::of("getrpcent", &own_getrpcent),
      Binding::of("getmntent", &own_getmntent),
  };
  return table;
}

}  // namespace aplib::loader::libc
