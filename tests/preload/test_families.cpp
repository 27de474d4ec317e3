// What arrives of the calls of each family: made well, with nowhere to store results, and failing. The values
// expected are the arguments in families.cpp and what fake_families.cpp hands out; which field has which,
// proto/wire.h says.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <iomanip>
#include <sstream>

#include "session.h"

using namespace fragscope;
using namespace fragscope::preload_test;
using wire::Advice;
using wire::Kind;
using wire::pack_advice;
using wire::pack_array;
using wire::pack_location;

namespace {

constexpr std::uint64_t kContext = 0xc0000, kStream = 0x60;
constexpr std::uint8_t kNoDevice = wire::kDeviceUnknown;
constexpr std::uint32_t kDevice = 1, kHost = 2;  // CU_MEM_LOCATION_TYPE_…

// Fields that the call handed out: of these nothing is told when it failed or had nowhere to store them.
enum Outs : unsigned { kNone = 0, kAddress = 1, kBytes = 2, kObject = 4, kExtra = 8 };

struct Expected {
    const char* function;
    Kind kind;
    std::uint64_t address, bytes, object, extra;
    std::uint8_t device = kNoDevice;
    unsigned outs = kNone;
    unsigned read = kNone;  // fields out of what is read only when the call succeeded: lists, images
    std::uint16_t flags = 0;
};

std::uint64_t identity(unsigned char byte) {
    unsigned char description[64];
    for (unsigned char& each : description) each = byte;
    return wire::identity_of(description, sizeof description);
}

std::string shown(const std::string& function, const Expected& what, unsigned result) {
    std::ostringstream text;
    text << function << ": kind " << static_cast<int>(what.kind) << std::hex << " address " << what.address
         << " bytes " << what.bytes << " object " << what.object << " extra " << what.extra << " device "
         << int{what.device} << " flags " << what.flags << " result " << result;
    return text.str();
}

// Of the program's own records those that are about memory.
std::string told(const Sent& sent) {
    std::string all;
    constexpr std::uint16_t kCompared = wire::kContinued | wire::kPerThreadStream | wire::kCaptured;
    for (const wire::Record& record : sent.records) {
        const std::string& function = sent.functions.at(record.function);
        const bool start = function == "cuInit" || record.kind == Kind::kHookMissing;
        if (start || (record.flags & wire::kByShim) != 0) continue;
        all += shown(function,
                     {"", record.kind, record.address, record.bytes, record.object, record.extra,
                      record.device, 0, 0, static_cast<std::uint16_t>(record.flags & kCompared)},
                     record.result) +
               '\n';
    }
    return all;
}

std::string expected(const std::vector<Expected>& all, bool null, bool failing) {
    std::string text;
    for (Expected each : all) {
        if (failing && (each.flags & wire::kContinued) != 0) continue;
        const unsigned zero = (null || failing ? each.outs : 0u) | (failing ? each.read : 0u);
        if ((zero & kAddress) != 0) each.address = 0;
        if ((zero & kBytes) != 0) each.bytes = 0;
        if ((zero & kObject) != 0) each.object = 0;
        if ((zero & kExtra) != 0) each.extra = 0;
        if (failing && (each.read & (kObject | kExtra)) != 0)
            each.device = kNoDevice;  // it stands in the list, too
        text += shown(each.function, each, failing ? 2 : 0) + '\n';
    }
    return text;
}

Sent run(const std::string& family, const std::string& way, const Options& options = {}) {
    Session session(options);
    const Outcome outcome = session.run({paths().families, family, way});
    CHECK(outcome.output == "");
    REQUIRE(outcome.status == 0);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    return sent[0];
}

void check(const std::string& family, const std::vector<Expected>& all) {
    for (const std::string way : {"", "null", "failing"}) {
        CAPTURE(way);
        const Sent sent = run(family, way);
        CHECK(told(sent) == expected(all, way == "null", way == "failing"));
        // What failed for want of memory is explained, as far as a burst of failures is.
        CHECK(sent.of(Kind::kFailureSnapshotEnd).empty() == (way != "failing"));
    }
}

std::uint64_t size_of_file(const std::string& path) {
    struct stat status {};
    REQUIRE(stat(path.c_str(), &status) == 0);
    return static_cast<std::uint64_t>(status.st_size);
}

}  // namespace

TEST_CASE("arrays") {
    check(
        "arrays",
        {
            // Width, height, layers and bytes of an element multiplied.
            {"cuArrayCreate_v2", Kind::kArrayCreated, kContext, 8000, 0xa1, pack_array(0, 0), 0, kObject},
            {"cuArray3DCreate_v2", Kind::kArrayCreated, kContext, 49152, 0xa2, pack_array(1, 0), 0, kObject},
            // A format whose size the shim does not know.
            {"cuArray3DCreate_v2", Kind::kArrayCreated, kContext, 0, 0xa2, pack_array(1, 0), 0, kObject},
            {"cuArray3DCreate", Kind::kArrayCreated, kContext, 256, 0xa9, pack_array(2, 0), 0, kObject},
            // Levels of 16*8, 8*4, 4*2, 2*1 and 1*1 elements of two bytes.
            {"cuMipmappedArrayCreate", Kind::kArrayCreated, kContext, 342, 0xa3, pack_array(0x40, 5), 0,
             kObject},
            {"cuMipmappedArrayGetLevel", Kind::kArrayAliased, 0xa3, 0, 0xa4, 0, kNoDevice, kObject},
            {"cuArrayGetPlane", Kind::kArrayAliased, 0xa2, 0, 0xa5, 0, kNoDevice, kObject},
            {"cuMemMapArrayAsync", Kind::kArrayMapped, 0xa2, 0, 0x77, kStream, kNoDevice, 0,
             kAddress | kBytes | kObject},
            {"cuMemMapArrayAsync", Kind::kArrayMapped, 0xa3, 65536, 0, kStream, kNoDevice, 0, 0,
             wire::kContinued},
            {"cuMemMapArrayAsync_ptsz", Kind::kArrayMapped, 0, 0, 0, 0, kNoDevice, 0, 0,
             wire::kPerThreadStream},
            {"cuArrayDestroy", Kind::kArrayReleased, 0, 0, 0xa1, 0},
            {"cuMipmappedArrayDestroy", Kind::kArrayReleased, 0, 0, 0xa3, 0},
        });
}

TEST_CASE("memory shared between processes") {
    check(
        "sharing",
        {
            {"cuIpcGetMemHandle", Kind::kIpcExported, 0x7000000, 0, 0, identity(0x11), kNoDevice, kExtra},
            {"cuIpcOpenMemHandle_v2", Kind::kIpcOpened, 0x7100000, 0, kContext, identity(0x33), 0, kAddress},
            {"cuIpcCloseMemHandle", Kind::kIpcClosed, 0x7100000, 0, 0, 0},
            {"cuMemGetHandleForAddressRange", Kind::kRangeExported, 0x7000000, 4096, 0, 1},
            {"cuMemPoolExportToShareableHandle", Kind::kPoolExported, 0, 0, 0xb0, 1},
            {"cuMemPoolImportFromShareableHandle", Kind::kPoolImported, 0, 0, 0xb1, 8, kNoDevice, kObject},
            {"cuMemPoolExportPointer", Kind::kPoolPointerExported, 0x7000000, 0, 0, identity(0x22), kNoDevice,
             kExtra},
            {"cuMemPoolImportPointer", Kind::kPoolPointerImported, 0x7200000, 0, 0xb1, identity(0x44),
             kNoDevice, kAddress, kExtra},
        });
}

TEST_CASE("memory of other programming interfaces") {
    check("interfaces",
          {
              {"cuImportExternalMemory", Kind::kExternalImported, 0, 1u << 20, 0xe1, 1, 0, kObject},
              {"cuExternalMemoryGetMappedBuffer", Kind::kExternalMapped, 0x7300000, 8192, 0xe1, 4096, 0,
               kAddress},
              {"cuExternalMemoryGetMappedMipmappedArray", Kind::kArrayAliased, 0xe1, 0, 0xa6, 0, kNoDevice,
               kObject},
              {"cuDestroyExternalMemory", Kind::kExternalReleased, 0, 0, 0xe1, 0},
              {"cuGraphicsMapResources", Kind::kGraphicsMapped, 0, 0, 0x51, kStream, kNoDevice, 0, kObject},
              {"cuGraphicsMapResources", Kind::kGraphicsMapped, 0, 0, 0x52, kStream, kNoDevice, 0, 0,
               wire::kContinued},
              {"cuGraphicsResourceGetMappedPointer_v2", Kind::kGraphicsPointer, 0x7400000, 256, 0x51, 0, 0,
               kAddress | kBytes},
              {"cuGraphicsSubResourceGetMappedArray", Kind::kArrayAliased, 0x52, 0, 0xa7, 0, kNoDevice,
               kObject},
              {"cuGraphicsResourceGetMappedMipmappedArray", Kind::kArrayAliased, 0x52, 0, 0xa8, 0, kNoDevice,
               kObject},
              {"cuGraphicsUnmapResources_ptsz", Kind::kGraphicsUnmapped, 0, 0, 0x51, 0, kNoDevice, 0, kObject,
               wire::kPerThreadStream},
              {"cuGraphicsUnmapResources_ptsz", Kind::kGraphicsUnmapped, 0, 0, 0x52, 0, kNoDevice, 0, 0,
               wire::kPerThreadStream | wire::kContinued},
              {"cuGraphicsUnregisterResource", Kind::kGraphicsReleased, 0, 0, 0x51, 0},
          });
}

TEST_CASE("memory shared between devices") {
    check("devices",
          {
              {"cuMemPoolSetAccess", Kind::kPoolAccessSet, 3, 0, 0xb0, pack_location(kDevice, 0, 0), 0, 0,
               kAddress | kExtra},
              {"cuMemPoolSetAccess", Kind::kPoolAccessSet, 0, 0, 0xb0, pack_location(kDevice, 1, 0), 1, 0, 0,
               wire::kContinued},
              {"cuMulticastCreate", Kind::kMulticastCreated, 2, 4u << 20, 0xc1, 1, kNoDevice, kObject},
              {"cuMulticastAddDevice", Kind::kMulticastDeviceAdded, 0, 0, 0xc1, 0, 1},
              {"cuMulticastBindMem", Kind::kMulticastBound, 2u << 20, 1u << 20, 0xc1, 0x77},
              {"cuMulticastBindAddr", Kind::kMulticastBound, 0, 1u << 20, 0xc1, 0x7000000},
              {"cuMulticastUnbind", Kind::kMulticastUnbound, 2u << 20, 1u << 20, 0xc1, 0, 1},
              {"cuCtxEnablePeerAccess", Kind::kPeerAccessSet, 1, 0, kContext, 0xc0001, 0},
              {"cuCtxDisablePeerAccess", Kind::kPeerAccessSet, 0, 0, kContext, 0xc0001, 0},
          });
}

TEST_CASE("graphs that allocate") {
    const std::vector<Expected> made = {
        {"cuGraphAddMemAllocNode", Kind::kGraphAllocNode, 0x7500000, 1000, 0xd0, 0xd1, 1, kExtra},
        {"cuGraphAddNode", Kind::kGraphAllocNode, 0x7600000, 2000, 0xd0, 0xd3, 0, kExtra},
        {"cuGraphAddNode", Kind::kGraphFreeNode, 0x7500000, 0, 0xd0, 0xd3, kNoDevice, kExtra},
        {"cuGraphAddMemFreeNode", Kind::kGraphFreeNode, 0x7600000, 0, 0xd0, 0xd2, kNoDevice, kExtra},
        {"cuGraphInstantiateWithFlags", Kind::kGraphInstantiated, 0, 1, 0xd4, 0xd0, 0, kObject},
        {"cuGraphInstantiateWithParams", Kind::kGraphInstantiated, 0, 2, 0xd5, 0xd0, 0, kObject},
    };
    const std::vector<Expected> launched = {
        {"cuGraphUpload", Kind::kCalled, 0, 0, 0, 0, 0},
        {"cuGraphLaunch", Kind::kGraphLaunched, 0, 0, 0xd4, kStream, 0},
        {"cuGraphLaunch_ptsz", Kind::kGraphLaunched, 0, 0, 0xd4, 0, 0, 0, 0, wire::kPerThreadStream},
    };
    const std::vector<Expected> released = {
        {"cuGraphExecDestroy", Kind::kGraphExecReleased, 0, 0, 0xd4, 0},
        {"cuGraphDestroy", Kind::kGraphReleased, 0, 0, 0xd0, 0},
        {"cuDeviceGraphMemTrim", Kind::kGraphMemoryTrimmed, 0, 0, 0, 0, 1},
    };
    for (const std::string way : {"", "null"}) {
        CAPTURE(way);
        const Sent sent = run("graphs", way);
        CHECK(told(sent) == expected(made, way == "null", false) + expected(launched, false, false) +
                                expected(released, false, false));
        CHECK(sent.launches == 3);
    }
    // No node was made then, and yet launches that failed for want of memory are told.
    std::vector<Expected> refused = made;
    for (Expected& each : refused)
        if (each.kind == Kind::kGraphAllocNode) each.outs |= kAddress;
    const std::vector<Expected> plain = {{"cuGraphLaunch", Kind::kCalled, 0, 0, 0, 0, 0},
                                         {"cuGraphUpload", Kind::kCalled, 0, 0, 0, 0, 0}};
    const std::vector<Expected> again = {
        {"cuGraphUpload", Kind::kCalled, 0, 0, 0, 0, 0},
        {"cuGraphLaunch", Kind::kCalled, 0, 0, 0, 0, 0},
        {"cuGraphLaunch_ptsz", Kind::kCalled, 0, 0, 0, 0, 0, 0, 0, wire::kPerThreadStream}};
    const Sent sent = run("graphs", "failing");
    CHECK(told(sent) == expected(plain, false, true) + expected(refused, false, true) +
                            expected(again, false, true) + expected(released, false, true));
    CHECK(sent.launches == 0);
}

TEST_CASE("a captured allocation makes launches of graphs worth telling, and what is captured is marked") {
    const Sent sent = run("captured", "");
    const auto launched = sent.of(Kind::kGraphLaunched);
    REQUIRE(launched.size() == 2);
    CHECK(launched[0].sequence > sent.of(Kind::kPoolAcquired).at(0).sequence);
    CHECK((launched[0].flags & wire::kCaptured) != 0);
    CHECK((launched[1].flags & wire::kCaptured) == 0);
    CHECK((sent.of(Kind::kAdvised).at(0).flags & wire::kCaptured) != 0);
    CHECK(sent.launches == 3);
    CHECK(sent.of(Kind::kGraphAllocNode).empty());
}

TEST_CASE("code") {
    const std::uint64_t file = size_of_file(paths().families);
    const auto loaded = [](const char* function, std::uint64_t bytes, std::uint64_t object) {
        return Expected{function, Kind::kModuleLoaded, 0, bytes, object, kContext, 0, kObject, kBytes};
    };
    auto library = loaded("cuLibraryLoadData", 1016, 0xf3);
    auto library_file = loaded("cuLibraryLoadFromFile", 0, 0xf4);
    for (Expected* each : {&library, &library_file}) {
        each->address = 1;
        each->extra = 0;
    }
    std::vector<Expected> all = {
        loaded("cuModuleLoad", file, 0xf1),
        loaded("cuModuleLoad", 0, 0xf1),
        loaded("cuModuleLoadData", file, 0xf2),
        loaded("cuModuleLoadData", 27, 0xf2),
        loaded("cuModuleLoadData", 1016, 0xf2),
        loaded("cuModuleLoadData", 0, 0xf2),
        library,
        library_file,
        {"cuModuleGetGlobal_v2", Kind::kGlobalFound, 0x7700000, 256, 0xf1, 0, 0, kAddress | kBytes},
        {"cuLibraryGetManaged", Kind::kGlobalFound, 0x7800000, 256, 0xf3, 1, 0, kAddress | kBytes},
        {"cuModuleUnload", Kind::kModuleUnloaded, 0, 0, 0xf1, 0},
        {"cuLibraryUnload", Kind::kModuleUnloaded, 1, 0, 0xf3, 0},
    };
    check("code", all);
}

TEST_CASE("streams, limits, green contexts, checkpoints") {
    check("streams",
          {
              {"cuCtxSetLimit", Kind::kLimitSet, 2, 64u << 20, kContext, 0, 0},
              {"cuStreamCreate", Kind::kStreamCreated, 0, 0, 0x91, kContext, 0, kObject},
              {"cuStreamCreateWithPriority", Kind::kStreamCreated, 0, 0, 0x92, kContext, 0, kObject},
              {"cuGreenCtxCreate", Kind::kGreenContextCreated, 0, 1, 0x94, 0, 1, kObject},
              {"cuGreenCtxStreamCreate", Kind::kStreamCreated, 0, 0, 0x93, 0, kNoDevice, kObject},
              {"cuStreamDestroy_v2", Kind::kStreamDestroyed, 0, 0, 0x91, 0},
              {"cuGreenCtxDestroy", Kind::kGreenContextDestroyed, 0, 0, 0x94, 0},
              {"cuCheckpointProcessLock", Kind::kCheckpoint, 1, 0, 77, 0},
              {"cuCheckpointProcessCheckpoint", Kind::kCheckpoint, 2, 0, 77, 0},
              {"cuCheckpointProcessRestore", Kind::kCheckpoint, 3, 0, 77, 0},
              {"cuCheckpointProcessUnlock", Kind::kCheckpoint, 4, 0, 77, 0},
          });
}

TEST_CASE("the last to detach from a context ends it") {
    const Sent sent = run("contexts", "");
    CHECK(told(sent) == expected({{"cuCtxAttach", Kind::kCalled, 0, 0, 0, 0},
                                  {"cuCtxDetach", Kind::kCalled, 0, 0, 0, 0},
                                  {"cuCtxDetach", Kind::kContextDestroyed, 0, 0, kContext, 0, 0}},
                                 false, false));
}

TEST_CASE("where managed memory should lie") {
    const auto batch = [](const char* function, Advice what, std::uint64_t address, std::uint64_t bytes,
                          int device) {
        const bool placed = device >= 0;
        return Expected{function,
                        Kind::kAdvised,
                        address,
                        bytes,
                        placed ? pack_location(kDevice, device, 0) : 0,
                        pack_advice(what, 0),
                        placed ? static_cast<std::uint8_t>(device) : kNoDevice,
                        0,
                        kAddress | kBytes | kObject,
                        static_cast<std::uint16_t>(address == 0x7000000 ? 0 : wire::kContinued)};
    };
    check("advice",
          {
              {"cuMemAdvise", Kind::kAdvised, 0x7000000, 4096, pack_location(kHost, 0, 0),
               pack_advice(Advice::kAdvise, 3)},
              {"cuMemAdvise_v2", Kind::kAdvised, 0x7000000, 4096, pack_location(kDevice, 1, 0),
               pack_advice(Advice::kAdvise, 1), 1},
              {"cuMemPrefetchAsync", Kind::kAdvised, 0x7000000, 8192, pack_location(kDevice, 1, 0),
               pack_advice(Advice::kPrefetch, 0), 1},
              {"cuMemPrefetchAsync_v2_ptsz", Kind::kAdvised, 0x7000000, 8192, pack_location(kDevice, 0, 0),
               pack_advice(Advice::kPrefetch, 0), 0, 0, 0, wire::kPerThreadStream},
              batch("cuMemPrefetchBatchAsync", Advice::kPrefetch, 0x7000000, 4096, 0),
              batch("cuMemPrefetchBatchAsync", Advice::kPrefetch, 0x7100000, 8192, 0),
              batch("cuMemPrefetchBatchAsync", Advice::kPrefetch, 0x7200000, 12288, 1),
              batch("cuMemDiscardBatchAsync", Advice::kDiscard, 0x7000000, 4096, -1),
              batch("cuMemDiscardBatchAsync", Advice::kDiscard, 0x7100000, 8192, -1),
              batch("cuMemDiscardAndPrefetchBatchAsync", Advice::kDiscardAndPrefetch, 0x7000000, 4096, 0),
              {"cuStreamAttachMemAsync", Kind::kAdvised, 0x7000000, 0, 0, pack_advice(Advice::kAttach, 4)},
          });
}

TEST_CASE("of a long list a part is told, and the rest counted") {
    Session session;
    REQUIRE(session.run({paths().families, "long_list"}).status == 0);
    session.drain();
    const std::uint32_t counted =
        session.process(0).lost_kinds[static_cast<std::uint32_t>(Kind::kAdvised)].load();
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    const auto advised = sent[0].of(Kind::kAdvised);
    CHECK(advised.size() == 256);
    CHECK(counted == 1000 - advised.size());
    CHECK(sent[0].lost_others == counted);
}

TEST_CASE("questions, copies and launches are told where all calls are wanted, or when memory was short") {
    const auto called = [](const char* function) { return Expected{function, Kind::kCalled, 0, 0, 0, 0}; };
    const std::vector<Expected> all = {
        called("cuMemGetAddressRange_v2"), called("cuPointerGetAttribute"), called("cuDeviceGetAttribute"),
        called("cuMemcpyDtoH_v2"),         called("cuMemcpyHtoD_v2"),       called("cuMemcpy2D_v2"),
        called("cuLaunchKernel"),          called("cuEventCreate"),         called("cuMemGetMemPool"),
        called("cuModuleGetFunction"),
    };
    Options quiet;
    quiet.touches = false;
    Sent sent = run("questions", "", quiet);
    CHECK(told(sent) == "");
    CHECK(sent.launches == 1);
    CHECK(sent.opaque_writes == 1);

    Options talkative = quiet;
    talkative.calls = true;
    sent = run("questions", "", talkative);
    CHECK(told(sent) == expected(all, false, false));
    CHECK(sent.launches == 1);
    CHECK(sent.opaque_writes == 1);
    for (const wire::Record& record : sent.of(Kind::kCalled)) CHECK(record.start != 0);

    std::vector<Expected> failed = all;
    for (Expected& each : failed) each.device = 0;
    sent = run("questions", "failing", quiet);
    CHECK(told(sent) == expected(failed, false, true));
    CHECK(sent.of(Kind::kFailureSnapshotEnd).size() == all.size());
    CHECK(sent.launches == 0);
}
