// Phase 30: what the ranks of a ring did, as steps of the player: a launch whose blocks are the ranks. Which rows lie
// in the memory of each, who sends what to whom, whose keys a rank's rows see, m and l of each row after each merge.
// Use: RingSteps(recording, whole, split, ranks).write(run_written_down(split, local, phase, limit));
#pragma once
#include <filesystem>

#include "phases/ring/recording.hpp"
#include "sim/report/lines.hpp"

namespace flash::phase30 {

class RingSteps {
 public:
  RingSteps(Recording& out, const AnyProblem& whole, const Split& split, int ranks)
      : out_(out),
        whole_(whole),
        split_(split),
        s_(whole.shape()),
        n_(ranks),
        last_(size(ranks)),
        coming_(size(ranks)) {
    const unsigned n = static_cast<unsigned>(ranks);
    out_.launches.push_back({.kernel = "ring_forward", .grid = {n, 1, 1}, .cluster = {n, 1, 1}, .ranks = true});
    std::int64_t rows = 0, keys = 0;  // of the rank that has most
    for (int rank = 0; rank < n_; ++rank)
      rows = std::max(rows, split.rows(rank).size()), keys = std::max(keys, split.keys(rank).size());
    const auto of_operands = [&](bool written) {
      for (const Operand& operand : operands)
        if (is_given(operand, whole) && is_written(operand, whole) == written)
          add(operand.name, whole.*operand.view, operand.shape[2] == Length::Sq ? rows : keys,
              bytes_of(type_of_elements(operand.element, whole)));
    };
    of_operands(false);
    for (const char* room : {"[0]", "[1]"}) {
      add(std::string("K") + room, whole.k, keys, bytes_of(whole.type));
      add(std::string("V") + room, whole.v, keys, bytes_of(whole.type));
    }
    // O in fp32; m and l, or RowSum's three numbers.
    const auto numbers = [&](std::int64_t columns) { return AnyView{nullptr, {s_.B, s_.H, rows, columns}, {}}; };
    add("set.O", numbers(s_.Dv), rows, 4), add("set.m,l", numbers(2), rows, 4);
    add("sum.O", numbers(s_.Dv), rows, 4), add("sum.m,l", numbers(3), rows, 4);
    of_operands(true);
  }

  void write(const RingRun& run) {
    std::vector<const void*> sums(size(n_));  // the first set of all rows leaves its O there
    for (const Deed& d : run.deeds)
      if (d.what == Deed::Finishes) sums[size(d.rank)] = d.o;
    for (int rank = 0; rank < n_; ++rank) moves(rank, false);
    for (const Deed& d : run.deeds) {
      const std::int64_t R = split_.rows(d.rank).size();
      const bool in_sum = d.o == sums[size(d.rank)];
      const std::int64_t of = in_sum ? R : d.part.rows;  // rows of each head where the set's O is
      const std::string set = in_sum ? "sum.O" : "set.O";
      switch (d.what) {
        case Deed::Begins:
          begins(d);
          break;
        case Deed::Calls: {
          const std::int64_t keys = split_.keys(d.whose).size();
          next(d.rank, "ring.hpp", "worker.call(part);").parts = {
              part(Kind::chip_read, "Q", d.rank, R, d.part.q0, d.part.rows),
              part(Kind::chip_read, keys_at("K", d.keys), d.rank, keys, d.part.k0, d.part.keys),
              part(Kind::chip_read, keys_at("V", d.keys), d.rank, keys, d.part.k0, d.part.keys),
              part(Kind::chip_write, set, d.rank, of, 0, d.part.rows),
              part(Kind::chip_write, "set.m,l", d.rank, d.part.rows, 0, d.part.rows)};
          break;
        }
        case Deed::Merges: {
          Recording::Step& step = next(d.rank, "ring.hpp", d.round + 1 < n_ ? "worker.merge(merged, *set);" : finish);
          step.parts = {part(Kind::chip_read, set, d.rank, of, 0, d.part.rows),
                        part(Kind::chip_read, "set.m,l", d.rank, d.part.rows, 0, d.part.rows)};
          for (const char* name : {"sum.O", "sum.m,l"})
            for (const Kind kind : {Kind::chip_read, Kind::chip_write})
              step.parts.push_back(part(kind, name, d.rank, R, d.part.q0, d.part.rows));
          const Share rows = split_.rows(d.rank);
          for (std::size_t r = 0; r < d.m.size(); ++r) {
            const auto [head, i] = std::div(static_cast<std::int64_t>(r), d.part.rows);
            const long row = static_cast<long>(head * s_.Sq + rows[d.part.q0 + i]);
            step.values.push_back({"m", row, d.m[r]}), step.values.push_back({"l", row, d.l[r]});
          }
          break;
        }
        case Deed::Waits:
          out_.steps[last_[size(d.rank)]].waits = "step " + std::to_string(d.round);
          next(d.rank, "ring.hpp", "exchange.wait(comm, ").parts = std::exchange(coming_[size(d.rank)], {});
          break;
        case Deed::Finishes: {
          Recording::Step& step = next(d.rank, "ring.hpp", finish);
          for (const char* name : {"sum.O", "sum.m,l"})
            step.parts.push_back(part(Kind::chip_read, name, d.rank, R, 0, R));
          for (const Operand& operand : operands)
            if (is_written(operand, whole_))
              step.parts.push_back(part(Kind::chip_write, operand.name, d.rank, R, 0, R));
        }
      }
      if (d.what != Deed::Finishes) out_.steps.back().label = "rank " + std::to_string(d.whose);
    }
    for (int rank = 0; rank < n_; ++rank) moves(rank, true);
    out_.sort_lines();
  }

 private:
  using Kind = Recording::Kind;
  static constexpr const char* finish = "worker.finish(merged, set, mine);";
  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
  std::vector<Recording::Place>& chip() { return out_.launches.back().chip; }

  // A place for so many rows of each head of `like`.
  void add(const std::string& name, const AnyView& like, std::int64_t rows, std::int64_t element_bytes) {
    Recording::Launch& launch = out_.launches.back();
    heads_.push_back(like.B() * like.H());
    const std::uint64_t bytes = size(heads_.back() * rows * like.D() * element_bytes);
    launch.chip.push_back({name, launch.chip_bytes, bytes, size(element_bytes), size(like.D())});
    launch.chip_bytes += (bytes + 15) / 16 * 16;
  }
  static std::string keys_at(const char* name, int where) {
    return where ? name + ("[" + std::to_string(where - 1) + "]") : name;
  }
  // Rows first … first + count - 1 of the `of` rows that each head has there.
  Recording::Part part(Kind kind, const std::string& name, int rank, std::int64_t of, std::int64_t first,
                       std::int64_t count) {
    const auto at =
        std::find_if(chip().begin(), chip().end(), [&](const Recording::Place& p) { return p.name == name; });
    Recording::Part made{.kind = kind, .place = size(at - chip().begin()), .rank = static_cast<unsigned>(rank)};
    const std::uint64_t row = at->element_bytes * at->columns;
    const std::int64_t heads = heads_[made.place];
    made.bytes = size(heads * count) * row;
    for (std::int64_t head = 0; count > 0 && head < heads; ++head)
      add_span(made.spans, at->at + size(head * of + first) * row, at->at + size(head * of + first + count) * row);
    return made;
  }
  // A step at the first line of this file of phase 30 that says so.
  Recording::Step& next(int rank, const char* file, const char* text) {
    last_[size(rank)] = out_.steps.size();
    Recording::Step& step = out_.steps.emplace_back();
    step.block = size(rank), step.rank = static_cast<unsigned>(rank), step.warp = 0;
    const std::filesystem::path phases = std::filesystem::path(__FILE__).parent_path().parent_path();
    const std::string path = (phases / "30-ring" / file).string();
    const std::vector<std::string>& lines = lines_of_file(path);
    for (unsigned i = 0; i < lines.size() && step.at.empty(); ++i)
      if (lines[i].find(text) != std::string::npos) step.at = {out_.line(path, i + 1)};
    return step;
  }
  // A rank's rows of the sequence come into its memory, or go back.
  void moves(int rank, bool back) {
    Recording::Step& step = next(rank, "phase.cpp", back ? "mine.put_back(p);" : "local.emplace_back(p, split, rank);");
    for (const Operand& operand : operands) {
      if (!is_given(operand, whole_) || is_written(operand, whole_) != back) continue;
      const AnyView& view = whole_.*operand.view;
      const Share share = operand.shape[2] == Length::Sq ? split_.rows(rank) : split_.keys(rank);
      Recording::Part here =
          part(back ? Kind::chip_read : Kind::chip_write, operand.name, rank, share.size(), 0, share.size());
      const Recording::Place& place = chip()[here.place];
      const std::uint64_t row = place.element_bytes * place.columns;
      const std::size_t array =
          out_.array(operand.name, size(view.elements()) * place.element_bytes, place.element_bytes, place.columns);
      Recording::Part there{.kind = back ? Kind::write : Kind::read, .place = array, .bytes = here.bytes};
      for (std::int64_t head = 0; head < view.B() * view.H(); ++head)
        for (std::int64_t i = 0; i < share.size(); ++i) {
          const std::uint64_t at = size(head * view.S() + share[i]) * row;
          add_span(there.spans, at, at + row);
        }
      if (!back) here.source = static_cast<std::ptrdiff_t>(array), here.from = there.spans;
      step.parts.push_back(there), step.parts.push_back(here);
    }
  }
  // K and V go to the next rank's room, where they have come when that one has waited.
  void begins(const Deed& d) {
    const std::int64_t keys = split_.keys(d.whose).size();
    Recording::Step& step = next(d.rank, "ring.hpp", "exchange.begin(comm);");
    std::uint64_t bytes = 0;
    for (const char* name : {"K", "V"}) {
      const Recording::Part from = part(Kind::chip_read, keys_at(name, d.keys), d.rank, keys, 0, keys);
      Recording::Part copy = part(Kind::copy, keys_at(name, 1 + d.round % 2), d.to, keys, 0, keys);
      copy.source = static_cast<std::ptrdiff_t>(from.place), copy.from = from.spans, copy.from_rank = d.rank;
      bytes += copy.bytes;
      step.parts.push_back(copy);
      copy.kind = Kind::landed, coming_[size(d.to)].push_back(copy);
    }
    const std::size_t all = out_.array("messages", sent_ + bytes, size(bytes_of(whole_.type)), size(s_.D));
    Recording::Part message{.kind = Kind::write, .place = all, .bytes = bytes, .spans = {{sent_, sent_ + bytes}}};
    step.parts.push_back(message);
    message.kind = Kind::read, coming_[size(d.to)].push_back(message);
    sent_ += bytes;
  }

  Recording& out_;
  const AnyProblem& whole_;
  const Split& split_;
  const Shape s_;
  const int n_;
  std::vector<std::int64_t> heads_;                   // of each place
  std::vector<std::size_t> last_;                     // the last step of each rank
  std::vector<std::vector<Recording::Part>> coming_;  // to each rank
  std::uint64_t sent_ = 0;
};

}  // namespace flash::phase30
