// The contiguity contract of a request: whether those who will use its memory need one physical extent, one
// range of addresses, or can follow pieces.
//
// It is inferred from the call and from what the program did with other memory of that kind; a person may
// declare another one. It never demands less than the evidence without naming everybody who would have to be
// checked first. What a consumer demands follows from the interfaces' documentation, not from this trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/consumers.h"
#include "analysis/request.h"
#include "analysis/trace.h"
#include "proto/contract.pb.h"

namespace fragscope::analysis {

using Shape = report::Contract::Shape;

struct Consumer {
    std::string id;
    std::string what;
    std::uint64_t count = 0;
    Shape demands = report::Contract::virtual_only;
    std::string why;
    bool one_allocation = false;
    std::vector<std::string> functions;
};

struct Contract {
    Shape shape = report::Contract::shape_unspecified;
    Shape inferred = report::Contract::shape_unspecified;
    std::string reasoning;
    bool declared = false;
    std::vector<Consumer> consumers;
    std::vector<std::string> not_visible;

    // Whether it may be in pieces behind one range of addresses, and whether also in pieces of addresses.
    bool allows_stitching() const { return shape != report::Contract::physical; }
    bool allows_pieces() const { return shape == report::Contract::segmented; }
};

// "physical", "virtual", "segmented"; nothing: none of them.
std::optional<Shape> shape_named(const std::string& name);

// From the request alone. `declared`: what a person said.
Contract contract_of(const RequestFacts& request, std::optional<Shape> declared);
// The same, with those who used memory of its kind until then.
Contract contract_of(const RequestFacts& request, std::optional<Shape> declared, const ConsumerRecorder& seen,
                     const Trace& trace, ProcessIndex process);

// Whom somebody would have to ask before the memory may be `weaker` than the contract says, in words.
std::vector<std::string> to_be_checked(const Contract& contract, Shape weaker);

report::Contract message_of(const Contract& contract);

}  // namespace fragscope::analysis
