// Events of memory that several processes, devices or programming interfaces have in common.
#include "interpose/call.h"
#include "interpose/hot.h"

namespace fragscope::interpose {

namespace {

// Of what was passed from one process to the other, so that its two ends can be told to be the same.
template <typename Description>
std::uint64_t identity(const Description& description) {
    return wire::identity_of(reinterpret_cast<const unsigned char*>(&description), sizeof description);
}

}  // namespace

// ------------------------------------------------------------------------- between processes

void Call::ipc_exported(const CUipcMemHandle* out, CUdeviceptr address) {
    unplaced_inline(Kind::kIpcExported, address, 0, 0, succeeded() && out != nullptr ? identity(*out) : 0);
}

void Call::ipc_opened(const CUdeviceptr* out, const CUipcMemHandle& handle) {
    const Place at = place();
    record(Kind::kIpcOpened, succeeded() && out != nullptr ? *out : 0, 0, at.context, identity(handle));
}

void Call::range_exported(CUdeviceptr address, std::size_t bytes, CUmemRangeHandleType type) {
    unplaced_inline(Kind::kRangeExported, address, bytes, 0, type);
}

void Call::pool_exported(CUmemoryPool pool, CUmemAllocationHandleType type) {
    unplaced_inline(Kind::kPoolExported, 0, 0, number_of(pool), type);
}

void Call::pool_imported(const CUmemoryPool* out, CUmemAllocationHandleType type) {
    const std::uint64_t pool = succeeded() && out != nullptr ? number_of(*out) : 0;
    remember_pool(pool);
    unplaced_inline(Kind::kPoolImported, 0, 0, pool, type);
}

void Call::pool_pointer_exported(const CUmemPoolPtrExportData* out, CUdeviceptr address) {
    unplaced_inline(Kind::kPoolPointerExported, address, 0, 0,
                    succeeded() && out != nullptr ? identity(*out) : 0);
}

void Call::pool_pointer_imported(const CUdeviceptr* out, CUmemoryPool pool,
                                 const CUmemPoolPtrExportData* shared) {
    unplaced_inline(Kind::kPoolPointerImported, succeeded() && out != nullptr ? *out : 0, 0, number_of(pool),
                    succeeded() && shared != nullptr ? identity(*shared) : 0);
}

// ----------------------------------------------------------- of other programming interfaces

void Call::external_imported(const CUexternalMemory* out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* wanted) {
    place();
    record(Kind::kExternalImported, 0, wanted != nullptr ? wanted->size : 0,
           succeeded() && out != nullptr ? number_of(*out) : 0,
           wanted != nullptr ? static_cast<std::uint64_t>(wanted->type) : 0);
}

void Call::external_mapped(const CUdeviceptr* out, CUexternalMemory external,
                           const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* wanted) {
    place();
    const std::uint64_t address = succeeded() && out != nullptr ? *out : 0;
    const std::uint64_t bytes = wanted != nullptr ? wanted->size : 0;
    if (succeeded()) renew(address, bytes);
    record(Kind::kExternalMapped, address, bytes, number_of(external),
           wanted != nullptr ? wanted->offset : 0);
}

void Call::graphics_mapped(Kind kind, unsigned count, const CUgraphicsResource* resources, CUstream stream) {
    at_device(wire::kDeviceUnknown);
    const std::size_t told = resources != nullptr ? parts_of(kind, count) : 0;
    for (std::size_t i = 0; i < told; ++i)
        record_part(i, kind, 0, 0, number_of(resources[i]), number_of(stream));
    if (told == 0) record(kind, 0, 0, 0, number_of(stream));
}

void Call::graphics_pointer(const CUdeviceptr* out, const std::size_t* bytes, CUgraphicsResource resource) {
    place();
    const std::uint64_t address = succeeded() && out != nullptr ? *out : 0;
    const std::uint64_t size = succeeded() && bytes != nullptr ? *bytes : 0;
    if (succeeded()) renew(address, size);
    record(Kind::kGraphicsPointer, address, size, number_of(resource), 0);
}

// --------------------------------------------------------------------------- between devices

void Call::pool_access_set(CUmemoryPool pool, const CUmemAccessDesc* descriptors, std::size_t count) {
    const std::size_t told = descriptors != nullptr ? parts_of(Kind::kPoolAccessSet, count) : 0;
    const std::uint16_t flags = flags_;
    for (std::size_t i = 0; i < told; ++i) {
        flags_ = flags;
        const CUmemLocation& location = descriptors[i].location;
        at_location(location);
        record_part(i, Kind::kPoolAccessSet, descriptors[i].flags, 0, number_of(pool),
                    wire::pack_location(static_cast<std::uint32_t>(location.type), location.id, 0));
    }
    if (told == 0) unplaced_inline(Kind::kPoolAccessSet, 0, 0, number_of(pool), 0);
}

void Call::multicast_created(const CUmemGenericAllocationHandle* out, const CUmulticastObjectProp* wanted) {
    const CUmulticastObjectProp none{};
    const CUmulticastObjectProp& properties = wanted != nullptr ? *wanted : none;
    unplaced_inline(Kind::kMulticastCreated, properties.numDevices, properties.size,
                    succeeded() && out != nullptr ? *out : 0, properties.handleTypes);
}

void Call::multicast_device_added(CUmemGenericAllocationHandle handle, CUdevice device) {
    at_ordinal(device);
    record(Kind::kMulticastDeviceAdded, 0, 0, handle, 0);
}

void Call::multicast_bound(CUmemGenericAllocationHandle handle, std::size_t offset, std::size_t bytes,
                           std::uint64_t source) {
    unplaced_inline(Kind::kMulticastBound, offset, bytes, handle, source);
}

void Call::multicast_unbound(CUmemGenericAllocationHandle handle, CUdevice device, std::size_t offset,
                             std::size_t bytes) {
    at_ordinal(device);
    record(Kind::kMulticastUnbound, offset, bytes, handle, 0);
}

void Call::peer_access_set(bool on, CUcontext peer) {
    const Place at = place();
    record(Kind::kPeerAccessSet, on ? 1 : 0, 0, at.context, number_of(peer));
}

}  // namespace fragscope::interpose
