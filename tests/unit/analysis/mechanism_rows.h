// Rows of a comparison of mechanisms by their names, for the tests that look at them.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "proto/report.pb.h"

namespace fragscope::test {

inline const report::Mechanism& mechanism(const report::Explanation& e, const std::string& id) {
    for (const report::Mechanism& m : e.mechanisms().mechanisms()) {
        if (m.id() == id) return m;
    }
    FAIL("no mechanism " << id);
    return e.mechanisms().mechanisms(0);
}

inline const report::Prerequisite& need(const report::Mechanism& m, const std::string& id) {
    for (const report::Prerequisite& p : m.prerequisites()) {
        if (p.id() == id) return p;
    }
    FAIL("no prerequisite " << id);
    return m.prerequisites(0);
}

inline bool has(const google::protobuf::RepeatedPtrField<std::string>& texts, const std::string& part) {
    return std::any_of(texts.begin(), texts.end(),
                       [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

}  // namespace fragscope::test
