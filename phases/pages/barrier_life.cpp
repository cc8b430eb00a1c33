// barrier_life.cpp: see barrier_life.hpp. Compiled once, since several pages draw such a picture.
// A step of the recording that has to do with one of the mbarriers is a column; a wait ends at its column's left edge,
// and arrivals lie in its middle. Use: linked with flash_common.
#include "phases/pages/barrier_life.hpp"

#include <algorithm>

namespace flash::svg {

namespace {

std::size_t index_in(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

struct Bar {
  std::size_t row;
  double from, to;
  const char* colour;
  std::string label = {};
};

}  // namespace

std::vector<int> arrived_at(const Recording& recording, const std::string& mbarrier) {
  std::vector<int> warps;
  for (const Recording::Step& step : recording.steps)
    for (const Recording::Arrival& a : step.arrivals)
      if (step.block == 0 && recording.launches[step.launch].mbarriers[a.mbarrier].name == mbarrier)
        warps.insert(warps.end(), a.count, step.warp);
  return warps;
}

std::string barrier_life(const std::string& title, const Recording& recording, const std::vector<StageOf>& stages,
                         const std::vector<RoleOf>& roles) {
  static constexpr const char *way = "#f2b96b", *there = "#7fc8a9", *waits = "#d5d5d5", *reads = "#9ec9e6";
  std::vector<std::string> names;  // of stage i: 2 i is full, 2 i + 1 empty
  for (const StageOf& stage : stages) names.push_back(stage.full), names.push_back(stage.empty);
  const std::vector<Recording::Mbarrier>& known = recording.launches[0].mbarriers;
  const auto arrivals_of = [&](std::size_t name) {
    for (const Recording::Mbarrier& m : known)
      if (m.name == names[name]) return m.arrivals;
    return 0u;
  };

  struct Stage {
    std::size_t filled = 0;
    double begun = 0, come = -1;
    unsigned left = 0;
  };
  struct Role {
    std::size_t waits_for;
    double since = -1;
    std::vector<double> read, left;  // by stage: since when, and its last arrival
  };
  const std::vector<double> none(stages.size(), -1);
  std::vector<Stage> of_stage(stages.size());
  std::vector<Role> of_role(roles.size(), Role{names.size(), -1, none, none});
  std::vector<Bar> bars;
  std::vector<std::array<double, 2>> dots;  // column, row
  const auto fills_beyond = [&](const Recording::Step& step) {
    for (const auto& a : step.arrivals) {
      const std::size_t name = index_in(names, known[a.mbarrier].name), s = name / 2;
      if (a.expected > 0 && s < stages.size() && of_stage[s].filled == stages[s].fillings.size()) return true;
    }
    return false;
  };
  double column = 0;
  for (const Recording::Step& step : recording.steps) {
    if (step.block != 0 || step.launch != 0) continue;
    if (fills_beyond(step)) break;
    bool ours = index_in(names, step.waits) < names.size();
    for (const auto& w : step.waited) ours = ours || index_in(names, known[w.mbarrier].name) < names.size();
    for (const auto& a : step.arrivals) ours = ours || index_in(names, known[a.mbarrier].name) < names.size();
    if (!ours) continue;
    const auto has = [&](std::size_t role, int warp) { return warp >= roles[role].first && warp <= roles[role].last; };
    std::vector<bool> takes_part(roles.size());  // `also`: warps that did nothing but wait as this one did
    std::size_t role = roles.size();             // the one that acts
    for (std::size_t r = 0; r < roles.size(); ++r) {
      takes_part[r] = has(r, step.warp);
      if (takes_part[r]) role = r;
      for (const int warp : step.also) takes_part[r] = takes_part[r] || has(r, warp);
    }
    for (const auto& w : step.waited)
      for (std::size_t r = 0; r < roles.size(); ++r) {
        const std::size_t name = index_in(names, known[w.mbarrier].name);
        if (name == names.size() || !takes_part[r]) continue;
        if (of_role[r].waits_for == name) bars.push_back({stages.size() + r, of_role[r].since, column, waits});
        if (of_role[r].waits_for == name) of_role[r].waits_for = names.size();
        if (double& since = of_role[r].read[name / 2]; name % 2 == 0 && since < 0) since = column;
      }
    for (const auto& a : step.arrivals) {
      const std::size_t name = index_in(names, known[a.mbarrier].name), s = name / 2;
      if (name == names.size()) continue;
      Stage& stage = of_stage[s];
      if (name % 2 == 0) {
        if (a.expected > 0) {
          ++stage.filled, stage.begun = column + 0.5, stage.left = 0;
          dots.push_back({column + 0.5, double(stages.size() + role)});
        }
        if (a.come > 0) bars.push_back({s, stage.begun, stage.come = column + 0.5, way});
      } else if (role < roles.size()) {
        dots.push_back({column + 0.5, double(stages.size() + role)});
        of_role[role].left[s] = column + 0.5;
        if (++stage.left < arrivals_of(name)) continue;
        bars.push_back({s, stage.come, column + 0.5, there, stages[s].fillings[stage.filled - 1]});
        for (std::size_t reader = 0; reader < roles.size(); ++reader)
          if (double& since = of_role[reader].read[s]; since >= 0)
            bars.push_back({stages.size() + reader, since, of_role[reader].left[s], reads}), since = -1;
      }
    }
    const std::size_t waited_for = index_in(names, step.waits);
    for (std::size_t r = 0; r < roles.size(); ++r)
      if (waited_for < names.size() && takes_part[r] && of_role[r].waits_for == names.size())
        of_role[r].waits_for = waited_for, of_role[r].since = column + 1;
    ++column;
  }
  const double left = 130, width = 614, row = 34, top = 44, scale = width / column;
  const double rows = double(stages.size() + roles.size()), bottom = top + row * rows;
  Canvas canvas(760, bottom + 58, title);
  const auto y_of = [&](std::size_t r) { return top + row * double(r) + (r < stages.size() ? 0 : 8); };
  for (std::size_t r = 0; r < stages.size() + roles.size(); ++r) {
    canvas.text(16, y_of(r) + 20, r < stages.size() ? stages[r].label : roles[r - stages.size()].label);
    canvas.rect(left, y_of(r), width, row - 6,
                r < stages.size() ? "fill=\"none\" stroke=\"#999\"" : "fill=\"#f6f6f6\"");
  }
  for (const Bar& bar : bars) {
    canvas.rect(left + scale * bar.from, y_of(bar.row), scale * (bar.to - bar.from), row - 6,
                std::string("fill=\"") + bar.colour + "\"");
    if (!bar.label.empty())
      canvas.text(left + scale * (bar.from + bar.to) / 2, y_of(bar.row) + 19, bar.label, "text-anchor=\"middle\"");
  }
  for (const auto& [x, r] : dots) {
    const double y = y_of(static_cast<std::size_t>(r)) + 14;
    canvas.raw("<circle cx=\"" + num(left + scale * x) + "\" cy=\"" + num(y) + "\" r=\"3\" fill=\"#222\"/>");
  }
  double x = left;
  for (const auto& [colour, what] :
       {std::pair{way, "bytes on their way"}, {there, "there"}, {waits, "waits"}, {reads, "reads"}, {"", "arrives"}}) {
    if (*colour)
      canvas.rect(x, bottom + 22, 14, 14, std::string("fill=\"") + colour + "\"");
    else
      canvas.raw("<circle cx=\"" + num(x + 7) + "\" cy=\"" + num(bottom + 29) + "\" r=\"3\" fill=\"#222\"/>");
    canvas.text(x + 20, bottom + 33, what);
    x += 48 + 7.6 * double(std::string(what).size());
  }
  canvas.text(left, bottom + 53, "From left to right: the order of a recorded run, not its time.", "fill=\"#666\"");
  return canvas.str();
}

}  // namespace flash::svg
