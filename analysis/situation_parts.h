// What situations are put together from; for situation*.cpp only. Each function fills in one part, in the
// order in which `situation_at` calls them, and stands on the parts before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/situation.h"

namespace fragscope::analysis::situation_parts {

inline std::uint64_t less(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

// Whether the call asks for memory of the request's kind, in the same place.
bool is_alike(const Situation& s, const Event& event);

// A quantity that is put together from parts of one scope.
Quantity sum_of(const std::vector<Quantity>& parts, Definition definition, const Scope& scope,
                const std::string& reason);

// situation.cpp
// Of a situation that has its trace, failure, place, snapshot and request: where that is, and all that is not
// about the device's bytes. `at`: the record that its numbers are said to be of.
void place_the_request(Situation& s, SessionWalk& walk, Sequence at);
// And then the rest.
void fill_in(Situation& s, SessionWalk& walk);

// situation_word.cpp
std::string why_not_asked(const Situation& s);
void ask_the_program(FailureSnapshot& snapshot, const EventLog& events, std::size_t gave_up,
                     std::size_t after);
void word_of_the_device(Situation& s);

// situation_framework.cpp
void name_the_domains(FrameworkAtFailure& own, const Trace& trace, ProcessIndex process);
void book_the_refusal(Situation& s, const FrameworkState& books);
void need_handles(Situation& s);
// What was tried, or granted, for one handle says nothing of the block that needs several.
bool one_handle_of_many(const Situation& s);

// situation_books.cpp, situation_pools.cpp
void books_of_activity(Situation& s, SessionWalk& walk);
void books_of_the_device(Situation& s, const ProcessState& state, SessionWalk& walk);
void books_of_pools(Situation& s, const ProcessState& state);
void books_of_payload(Situation& s, const ProcessState& state);
void books_of_unmapped(Situation& s, const ProcessState& state);

// situation_around.cpp
void look_ahead(Situation& s);
void look_at_trials(Situation& s);
void look_around(Situation& s, const ProcessState& state);

}  // namespace fragscope::analysis::situation_parts
