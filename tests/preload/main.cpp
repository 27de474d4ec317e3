// Runs the tests; the build passes the paths of what is tested in the environment.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

#include "session.h"

int main(int count, char** arguments) {
    auto& paths = fragscope::preload_test::paths();
    const std::pair<const char*, std::string*> needed[] = {
        {"SHIM", &paths.shim},
        {"VICTIM", &paths.victim},
        {"FAMILIES", &paths.families},
        {"PROBE", &paths.probe},
        {"LOOKUPS", &paths.lookups},
        {"MARKS", &paths.marks},
        {"BLOCKS", &paths.blocks},
        {"FRAMEWORK", &paths.framework},
        {"MOMENTS", &paths.moments},
        {"NVTX_TOOL", &paths.nvtx_tool},
        {"RIVAL", &paths.rival},
        {"RIVAL_WITHOUT_DLSYM", &paths.rival_without_dlsym},
        {"SIMULATED_DRIVER", &paths.simulated_driver},
        {"DRIVER", &paths.driver},
        {"OLD_DRIVER", &paths.old_driver}};
    for (const auto& [name, path] : needed) {
        const char* value = std::getenv(name);
        if (value == nullptr) {
            std::fprintf(stderr, "%s is not set: run this test by meson test\n", name);
            return 2;
        }
        *path = value;
    }
    return doctest::Context(count, arguments).run();
}
