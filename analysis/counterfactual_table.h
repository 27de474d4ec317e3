// Builds the rows of one request over one domain's base; for counterfactuals*.cpp only.
#pragma once

#include <string>
#include <vector>

#include "analysis/counterfactuals.h"
#include "analysis/situation.h"

namespace fragscope::analysis {

class CounterfactualTable {
  public:
    CounterfactualTable(const Situation& situation, Quantity base, Quantity needed);

    // The failure shows that what was available to this request was less than what it needed; for a domain in
    // which bytes may be in pieces.
    void bound_by_the_failure();
    // One more thing given back to the domain.
    void add(const char* id, const std::string& removed, Blame blame, const Quantity& freed,
             const std::string& call);
    // Another change; `speaks_of`: how many bytes it is about, unknown where it is about none.
    void change(const std::string& id, const std::string& removed, Blame blame, Change change,
                const std::string& reason, const std::string& call = "", const Quantity& speaks_of = {});
    void lift(const Limit& limit);
    // Another amount instead of the base.
    void instead(const char* id, const std::string& removed, Blame blame, const Quantity& available,
                 const std::string& call = "");
    void not_applicable(const char* id, const std::string& removed, Blame blame, const std::string& reason);
    // Everything that could go, gone: the live set is what is left.
    void all_removed(const char* id, const std::string& removed, const std::string& reason);

    const Quantity& base() const { return base_; }
    const Quantity& needed() const { return needed_; }
    Counterfactual& last() { return rows_.back(); }
    std::vector<Counterfactual> take() { return std::move(rows_); }

  private:
    Counterfactual& start(const std::string& id, const std::string& removed, Blame blame);
    void decide(Counterfactual& row, Quantity as_known, const std::vector<const Counterfactual*>& removed);

    const Situation& situation_;
    Quantity base_;
    Quantity needed_;
    std::vector<Counterfactual> rows_;
};

}  // namespace fragscope::analysis
