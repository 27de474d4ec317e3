// What the report messages' enumerations and quantities mean, in words for a person who has never seen the
// tool. Every term is explained where it is first used; these are the explanations. No text here says "free"
// without saying of what.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/report.pb.h"

namespace fragscope::tools {

struct Term {
    std::string_view name;
    std::string_view meaning;  // a few words, no full stop
};

// All of them have an entry for numbers that a newer writer may have used: its name says that it is not known
// here.
Term definition_term(report::Quantity::Definition definition);
Term evidence_term(report::Quantity::Evidence evidence);
Term cause_term(report::Verdict::Cause cause);  // name: a heading; meaning: what such a failure is
// The heading of a verdict: the cause, and what `constraint` says in words where the cause is another limit.
std::string cause_words(const report::Verdict& verdict);
std::string_view outcome_words(report::Counterfactual::Outcome outcome);
std::string_view contiguity_words(report::Request::Contiguity contiguity);
// "one plain allocation (cuMemAlloc)"; a mechanism without an entry stands as it is.
std::string mechanism_words(const std::string& mechanism);

// Short, for a table cell: "2 MiB", "1 GiB to 2 GiB", "at least 1 GiB", "not known".
std::string quantity_cell(const report::Quantity& quantity);
// The same with exact byte counts.
std::string quantity_exact_cell(const report::Quantity& quantity);
// For running text: "between 1 GiB and 2 GiB", "not known: no record of it". A quantity that was never filled
// in is not known.
std::string quantity_words(const report::Quantity& quantity);
// Two amounts that differ so little that they must be written out exactly to be told apart.
bool read_alike(std::uint64_t a, std::uint64_t b);
bool is_known(const report::Quantity& quantity);
// A margin of a counterfactual, as a cell.
std::string margin_cell(const report::Counterfactual& counterfactual);
// Whether the upper end stands one byte below `limit`: then "less than LIMIT" says it best.
bool just_below(const report::Quantity& quantity, std::uint64_t limit);
// What was available against what was needed, for a table cell and for running text: an upper end one byte
// below the need reads "less than NEED".
std::string available_cell(const report::Quantity& available, const report::Quantity& needed);
std::string available_words(const report::Quantity& available, const report::Quantity& needed);
// The interval of a Bound: the low end was seen to fit; nothing above the high end fits, which may fit
// itself.
std::string bound_words(const report::Quantity& largest);

// "physical" and "virtual" in words; other names of domains stand as they are.
std::string domain_words(const std::string& domain);
// "process 0, device GPU-…, physical, at call 4,711 (1.2 s after the start)"; empty when nothing is said.
std::string scope_words(const report::Scope& scope);

std::string shown_version(std::uint32_t version);  // 13000: "13.0"

// What is missing from the trace, as sentences; empty when nothing is known to be missing.
std::vector<std::string> health_warnings(const report::Health& health);

// "device GPU-…"; a name that says so itself, where no UUID is known ("device 0"), stays as it is.
std::string named_device(const std::string& device);

}  // namespace fragscope::tools
