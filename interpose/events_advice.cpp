// Events of what the program says of where managed memory should lie.
#include "interpose/call.h"
#include "interpose/hot.h"

namespace fragscope::interpose {

namespace {

std::uint64_t packed(const CUmemLocation& location) {
    return wire::pack_location(static_cast<std::uint32_t>(location.type), location.id, 0);
}

}  // namespace

CUmemLocation location_of(CUdevice device) {
    CUmemLocation location{};
    location.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device == CU_DEVICE_CPU ? 0 : device;
    return location;
}

void Call::advised(CUdeviceptr address, std::size_t bytes, CUmemLocation location, Advice what,
                   unsigned value) {
    at_location(location);
    record(Kind::kAdvised, address, bytes, packed(location), wire::pack_advice(what, value));
}

void Call::advised(CUdeviceptr address, std::size_t bytes, CUmemLocation location, Advice what,
                   unsigned value, CUstream stream) {
    mark_capture(stream);
    advised(address, bytes, location, what, value);
}

void Call::advised_each(Advice what, const Extents& extents, CUstream stream) {
    mark_capture(stream);
    const bool given = extents.addresses != nullptr && extents.sizes != nullptr;
    const std::size_t told = given ? parts_of(Kind::kAdvised, extents.count) : 0;
    const bool placed = extents.locations != nullptr && extents.indices != nullptr;
    const std::uint16_t flags = flags_;
    std::size_t reached = 0;
    CUmemLocation location{};
    for (std::size_t i = 0; i < told; ++i) {
        while (placed && reached < extents.location_count && extents.indices[reached] <= i)
            location = extents.locations[reached++];
        flags_ = flags;
        at_location(location);
        record_part(i, Kind::kAdvised, extents.addresses[i], extents.sizes[i], packed(location),
                    wire::pack_advice(what, 0));
    }
    if (told == 0) unplaced_inline(Kind::kAdvised, 0, 0, 0, wire::pack_advice(what, 0));
}

}  // namespace fragscope::interpose
