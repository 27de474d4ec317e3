// Runs the tests; the build passes the paths of what is tested in the environment.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>
#include <initializer_list>

#include "../preload/session.h"

int main(int count, char** arguments) {
    for (const char* name : {"SHIM", "HOST", "ORIGINS", "SIMULATED_DRIVER", "STAND_IN_RUNTIME",
                             "NVIDIA_RUNTIME", "SHAPES", "LINES", "PYTHONS", "DRIVER"})
        if (std::getenv(name) == nullptr) {
            std::fprintf(stderr, "%s is not set: run this test by meson test\n", name);
            return 2;
        }
    fragscope::preload_test::paths().shim = std::getenv("SHIM");
    fragscope::preload_test::paths().driver = std::getenv("DRIVER");
    return doctest::Context(count, arguments).run();
}
