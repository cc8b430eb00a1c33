// causes.cpp: see causes.hpp.
// Use: see causes.hpp.
#include "sim/report/causes.hpp"

#include <algorithm>
#include <string>

namespace flash {
namespace {

constexpr std::size_t kMostPlaces = 6;  // that are named

void add_new(std::vector<std::string>& all, const std::string& one) {
  if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
}

std::string listed(const std::vector<std::string>& all) {
  std::string text;
  for (std::size_t i = 0; i < all.size() && i < kMostPlaces; ++i) text += (i ? ", " : "") + all[i];
  if (all.size() > kMostPlaces) text += " and " + std::to_string(all.size() - kMostPlaces) + " more";
  return text;
}

Finding joined(const std::vector<const Finding*>& same) {
  const auto nearer = [](const Finding* a, const Finding* b) { return a->distance < b->distance; };
  Finding all = **std::max_element(same.begin(), same.end(), nearer);  // of several the first
  if (same.size() == 1) return all;
  std::vector<std::string> what{all.what}, places = all.places;
  const std::size_t own_places = places.size();
  all.count = 0;
  for (const Finding* one : same) {
    all.count += one->count;
    add_new(what, one->what);
    for (const std::string& place : one->places) add_new(places, place);
  }
  what.erase(what.begin()), places.erase(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(own_places));
  all.text.resize(std::min(all.text.size(), all.text.find("\n  seen ")));
  if (!what.empty()) all.text += "\n  also: " + listed(what);
  if (!places.empty()) all.text += "\n  also at: " + listed(places);
  all.text += "\n  seen " + std::to_string(all.count) + " times";
  return all;
}

}  // namespace

std::vector<Finding> by_cause(const std::vector<Finding>& findings) {
  std::vector<std::vector<const Finding*>> groups;
  for (const Finding& finding : findings) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return !finding.cause.empty() && group.front()->cause == finding.cause;
    });
    if (same == groups.end())
      groups.push_back({&finding});
    else
      same->push_back(&finding);
  }
  std::vector<Finding> result;
  for (const auto& group : groups) result.push_back(joined(group));
  return result;
}

}  // namespace flash
