// Compiled once for the analysis: what most of its files include and what costs most to read. No file relies on it.
#include <fmt/format.h>

#include "proto/report.pb.h"
#include "proto/trace.pb.h"
