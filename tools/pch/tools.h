// Compiled once for the command's files: what they all include and what costs most to read. No file relies on it.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include "proto/report.pb.h"
#include "proto/trace.pb.h"
