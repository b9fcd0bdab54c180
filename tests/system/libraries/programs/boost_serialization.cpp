// SPDX-License-Identifier: MIT
// Boost.Serialization: its registry of types, which all of a process share, and objects that go to a neighbour.
#include <boost/archive/binary_iarchive.hpp>
#include <boost/archive/binary_oarchive.hpp>
#include <boost/serialization/base_object.hpp>
#include <boost/serialization/export.hpp>
#include <boost/serialization/map.hpp>
#include <boost/serialization/shared_ptr.hpp>
#include <boost/serialization/string.hpp>
#include <boost/serialization/vector.hpp>
#include <sstream>
#include <utility>

#include "stress.h"

struct Base {
  virtual ~Base() = default;
  virtual int number() const { return -1; }
  template <class Archive>
  void serialize(Archive&, unsigned) {}
};

template <int N>
struct Derived : Base {
  std::map<int, std::vector<int>> values{{N, {rank}}, {N + 1, {rank, N}}};
  int number() const override { return N + values.at(N)[0]; }
  template <class Archive>
  void serialize(Archive& archive, unsigned) {
    archive& boost::serialization::base_object<Base>(*this) & values;
  }
};
BOOST_CLASS_EXPORT(Base)
BOOST_CLASS_EXPORT(Derived<0>)
BOOST_CLASS_EXPORT(Derived<1>)
BOOST_CLASS_EXPORT(Derived<2>)
BOOST_CLASS_EXPORT(Derived<3>)

template <int... N>
static void pass(int round, std::integer_sequence<int, N...>) {
  std::vector<std::shared_ptr<Base>> sent{std::make_shared<Derived<N>>()...}, got;
  sent.push_back(sent.front());
  std::ostringstream out;
  boost::archive::binary_oarchive(out) << sent;
  std::string text = out.str();
  const int left = (rank + ranks - 1) % ranks;
  MPI_Sendrecv_replace(text.data(), static_cast<int>(text.size()), MPI_CHAR, (rank + 1) % ranks, round, left, round,
                       MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  std::istringstream in(text);
  boost::archive::binary_iarchive(in) >> got;
  check(got.size() == sizeof...(N) + 1 && got.back() == got.front() && ((got[N]->number() == N + left) && ...),
        "objects");
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  for (int round = 0; round < 50; ++round) {
    pass(round, std::make_integer_sequence<int, 4>());
    meet(round);
  }
  return end();
}
