// Names of results and kinds.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "analysis/read/kind_name.h"
#include "analysis/read/payload_name.h"
#include "analysis/read/result_name.h"

using namespace fragscope;

TEST_CASE("every CUresult of the cuda.h at hand is known by its name") {
    const char* path = std::getenv("CUDA_HEADER");
    REQUIRE(path != nullptr);
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::size_t begin = text.find("typedef enum cudaError_enum {");
    const std::size_t end = text.find("} CUresult;", begin);
    REQUIRE(end != std::string::npos);
    const std::string body = text.substr(begin, end - begin);
    const std::regex row("\\n\\s+(CUDA_[A-Z0-9_]+)\\s*=\\s*([0-9]+)");
    int found = 0;
    for (std::sregex_iterator it(body.begin(), body.end(), row), none; it != none; ++it, ++found)
        CHECK(analysis::result_name(static_cast<std::uint16_t>(std::stoi((*it)[2]))) == (*it)[1]);
    CHECK(found > 50);
    CHECK(analysis::result_name(2) == "CUDA_ERROR_OUT_OF_MEMORY");
    CHECK(analysis::result_name(12345) == "CUresult 12345");
}

TEST_CASE("every kind has a name of its own, and is found by it") {
    std::set<std::string_view> ids;
    for (int k = 1; k <= static_cast<int>(wire::kLastKind); ++k) {
        const auto kind = static_cast<wire::Kind>(k);
        const analysis::KindName& name = analysis::kind_name(kind);
        CHECK(name.kind == kind);
        CHECK(ids.insert(name.id).second);
        CHECK(analysis::kind_from_id(name.id) == kind);
    }
    CHECK(analysis::kind_name(wire::Kind::kNone).id == "unknown");
    CHECK_FALSE(analysis::kind_from_id("unknown"));
}

TEST_CASE("payload fields have different names, and amounts say that they are bytes") {
    using analysis::PayloadForm;
    for (int k = 1; k <= static_cast<int>(wire::kLastKind); ++k) {
        const analysis::PayloadNames names = analysis::payload_names(static_cast<wire::Kind>(k));
        std::set<std::string_view> different;
        for (const analysis::PayloadField& field : {names.address, names.bytes, names.object, names.extra}) {
            CAPTURE(std::string(field.name));
            CHECK(different.insert(field.name).second);
            const bool says_bytes =
                field.name.size() >= 5 && field.name.substr(field.name.size() - 5) == "bytes";
            CHECK(says_bytes ==
                  (field.form == PayloadForm::kBytes || field.form == PayloadForm::kTotal));
        }
    }
    const analysis::PayloadNames memory = analysis::payload_names(wire::Kind::kDeviceMemory);
    CHECK(memory.address.name == "device_free_bytes");
    CHECK(memory.bytes.name == "total_bytes");
    CHECK(memory.object.form == PayloadForm::kAddress);
    CHECK(analysis::payload_names(wire::Kind::kPoolState).extra.name == "release_threshold_bytes");
    CHECK(analysis::payload_names(wire::Kind::kMapped).address.name == "address");
}
