// SPDX-License-Identifier: MIT
// What a rank waits for in a meeting, and does then. A brief pending call (pending_call.hpp) leaves that for later.
#pragma once

#include <type_traits>

#include "mpi/meeting.hpp"

namespace aplib::mpi {

/// What a rank waits for at the board.
class Meeting::Awaited : public AwaitedRanks {
 public:
  explicit Awaited(const Meeting& meeting, const void* subject = nullptr) noexcept
      : AwaitedRanks(meeting.collective_.comm(), subject), meeting_(meeting) {}

  [[nodiscard]] std::string missing() const final { return AwaitedRanks::missing() + meeting_.collective_.where(); }
  void let_go() noexcept final { meeting_.close(meeting_.collective_.rank()); }

 protected:
  ~Awaited() = default;

  const Meeting& meeting_;
};

/// All ranks have arrived in an episode.
class Meeting::AllArrived : public Awaited {
 public:
  // Nobody waits for two episodes of the same parity at the same time.
  AllArrived(const Meeting& meeting, std::uint64_t episode) noexcept
      : AllArrived(meeting, episode, &meeting.board_.lines_[0].episode[episode & 1U]) {}

  [[nodiscard]] bool holds() const noexcept override { return meeting_.board_.is_complete(episode_); }

 protected:
  AllArrived(const Meeting& meeting, std::uint64_t episode, const void* subject) noexcept
      : Awaited(meeting, subject), episode_(episode) {}

 private:
  [[nodiscard]] bool is_missing(int rank) const noexcept override {
    return meeting_.slot(rank).progress.load(std::memory_order_acquire) <  // acquire: what it did before
           Board::arrived_in(episode_);
  }

  std::uint64_t episode_;
};

/// One rank's count has reached a number.
class Meeting::Reached final : public Awaited {
 public:
  Reached(const Meeting& meeting, int rank, const std::atomic<std::uint64_t>& count, std::uint64_t wanted) noexcept
      : Awaited(meeting), rank_(rank), count_(count), wanted_(wanted) {}

  // acquire: what it did before
  [[nodiscard]] bool holds() const noexcept override { return count_.load(std::memory_order_acquire) >= wanted_; }

 private:
  [[nodiscard]] bool is_missing(int rank) const noexcept override { return rank == rank_; }

  int rank_;
  const std::atomic<std::uint64_t>& count_;
  std::uint64_t wanted_;
};

/// The rest of a brief call: a copy of the meeting, what it waits for, and what it does then.
template <class AwaitedKind, class End>
class Meeting::Rest final : public PendingCall::Rest {
 public:
  template <class... Awaiting>
  Rest(PendingCall& pending, const Meeting& begun, const End& end, const Awaiting&... awaiting) noexcept
      : call_(pending.again()),
        collective_(call_, begun.collective_),
        meeting_(collective_, begun),
        awaited_(meeting_, awaiting...),
        end_(end) {
    static_assert(std::is_trivially_copyable_v<End>);  // so it refers to nothing that ends with the call's beginning
  }

  [[nodiscard]] Condition& awaited() noexcept override { return awaited_; }
  void carry_out(Wake how) override {
    meeting_.resume(how, awaited_);
    end_(meeting_);
  }

 private:
  Call call_;
  Collective collective_;
  Meeting meeting_;
  AwaitedKind awaited_;
  End end_;
};

template <class End>
void Meeting::end_when_complete(const End& end) {
  if (collective_.is_brief() && !seems_complete(episode_)) {
    api::stir(*self_, true);  // the caller does something else first
    const auto agree_first = [end](Meeting& meeting) {
      meeting.agree(meeting.note_complete(meeting.episode_));
      end(meeting);
    };
    using Kind = Rest<AllArrived, decltype(agree_first)>;
    return collective_.pending()->leave<Kind>(*this, agree_first, episode_);
  }
  wait_for_all();
  end(*this);
}

template <class End>
void Meeting::end_when_shown_by(int rank, const End& end) {
  const std::atomic<std::uint64_t>& progress = slot(rank).progress;
  const std::uint64_t shown = Board::shown_in(episode_);
  if (collective_.is_brief() && progress.load(std::memory_order_acquire) < shown) {  // acquire: as Reached
    const auto look_first = [end, rank](Meeting& meeting) {
      meeting.wait_for(rank);
      end(meeting);
    };
    using Kind = Rest<Reached, decltype(look_first)>;
    return collective_.pending()->leave<Kind>(*this, look_first, rank, progress, shown);
  }
  wait_for(rank);
  end(*this);
}

}  // namespace aplib::mpi
