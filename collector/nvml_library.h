// NVIDIA's management library, loaded at run time, and what it says of the devices at one moment. Whatever it
// lacks, does not tell or tells in a form that is not known is said in words and left out of the numbers.
//
// Its functions may take long, and may hang with the driver: they are called by a thread that nobody waits
// for (management.h). No exceptions come from here but of memory that is not to be had.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collector/nvml_abi.h"
#include "proto/trace.pb.h"

namespace fragscope::collector {

// One entry of a list of processes, whatever form it came in.
struct ProcessEntry {
    std::int64_t pid = 0;
    bool bytes_known = false;
    std::uint64_t bytes = 0;
    bool instances_known = false;
    std::uint32_t gpu_instance = 0;
    std::uint32_t compute_instance = 0;
};

// How a list of `count` processes lies in `buffer`, which held `untouched` in every byte before the library
// wrote there; `documented`: bytes of an entry as the function is documented. False: it cannot be a list.
bool read_process_list(const std::vector<unsigned char>& buffer, unsigned char untouched, unsigned count,
                       std::size_t documented, std::vector<ProcessEntry>& entries);

// The 16 bytes of "GPU-…" or "MIG-…" followed by a UUID; empty where it is none.
std::string uuid_bytes(const std::string& text);

class NvmlLibrary {
  public:
    struct Opened {
        std::unique_ptr<NvmlLibrary> library;  // null: `problem` says why
        std::string problem;
    };
    // Loads the library; nothing of it runs but its constructors.
    static Opened open(const std::string& file);
    NvmlLibrary(const NvmlLibrary&) = delete;
    NvmlLibrary& operator=(const NvmlLibrary&) = delete;
    // The library stays loaded and initialised: giving it back may hang where it hung before.
    ~NvmlLibrary() = default;

    // Initialises it. Empty, or why that failed, in one sentence; then it can be tried again.
    std::string start();
    // Fills in all but the times; what processes are called and which ones they are here is not known to the
    // library. `first`: with its versions and what it lacks.
    void read(trace::Readings& readings, bool first);

  private:
    struct Functions;
    class Untold;
    explicit NvmlLibrary(std::shared_ptr<Functions> functions) : functions_(std::move(functions)) {}

    std::string error_text(nvml::Return error) const;
    void read_device(nvml::Device device, const std::string& parent, trace::Readings& readings,
                     Untold& untold);
    void read_memory(nvml::Device device, trace::DeviceReading& reading, Untold& untold);
    // False: it could not be told which processes of that kind there are.
    bool read_processes(nvml::Device device, const std::string& kind, trace::DeviceReading& reading,
                        Untold& untold);

    std::shared_ptr<Functions> functions_;
};

}  // namespace fragscope::collector
