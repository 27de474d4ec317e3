"""cuda.core's memory resources, as JSON lines of each buffer that one gave."""
from cuda.core import (Device, DeviceMemoryResource, DeviceMemoryResourceOptions, LegacyPinnedMemoryResource,
                       VirtualMemoryResource)

from claims import got, say


def given(kind, buffer):
    got(kind, buffer.handle, buffer.size)
    return buffer


def main():
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    # The device's current pool, behind Device.allocate; then a pool of our own with a limit.
    held = [given("pool_acquired", device.allocate(size, stream=stream)) for size in (100, 1 << 20, 33 << 20)]
    held.pop(1).close(stream)
    stream.sync()
    own = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=256 << 20))
    first = given("pool_acquired", own.allocate(10 << 20, stream=stream))
    second = given("pool_acquired", own.allocate(1 << 20, stream=stream))
    try:
        own.allocate(512 << 20, stream=stream)
    except Exception as refused:  # noqa: BLE001 - what it is called is part of the result
        say(refused=512 << 20, why=type(refused).__name__)
    for buffer in (first, second):
        buffer.close(stream)
    stream.sync()
    say(used=own.attributes.used_mem_current, reserved=own.attributes.reserved_mem_current)
    own.close()

    # Grows by moving to a larger reservation, also where the addresses behind it are free; then frees the old place
    # once more and warns that the driver refused: cuda.core 1.2.2 on any driver.
    virtual = VirtualMemoryResource(device)
    small = given("mapped", virtual.allocate(3 << 20, stream=stream))  # told in whole granules: 4 MiB
    grown = virtual.modify_allocation(small, 10 << 20)
    say(grown=int(grown.handle), bytes=grown.size)
    grown.close(stream)

    pinned = LegacyPinnedMemoryResource()
    page = given("host_acquired", pinned.allocate(5 << 20, stream=stream))
    page.close(stream)
    for buffer in held:
        buffer.close(stream)
    stream.sync()  # Device.sync asks NVIDIA's runtime, which ends at its authentication of the driver


main()
