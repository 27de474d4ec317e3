# Sourced by tools/quickstart and tools/test: brings a Debian or Ubuntu machine to the point where the tree is built.
# Assumes only GCC, git and a network to package registries. Everything else is installed (distribution packages, as
# root or through sudo) or put into the build folder. Quick when nothing is missing. Every way to fail is one sentence.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${FRAGSCOPE_BUILD:-$repo/build}

# What is built with, then what only the tests and benchmarks need.
packages=(meson ninja-build pkg-config g++ python3 python3-pip
          libboost-dev libprotobuf-dev protobuf-compiler libcli11-dev libfmt-dev libzstd-dev zlib1g-dev libxxhash-dev libdw-dev libelf-dev
          libsqlite3-dev
          doctest-dev liblttng-ust-dev lttng-tools libspdlog-dev)

# Pinned, so that every machine without a toolkit compiles against the same headers.
header_wheels=(nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 nvidia-cuda-crt==13.0.88
               nvidia-cuda-profiler-api==13.0.85)
# For tests only: the runtime that PyTorch 2.9's CUDA 12 wheel is linked with (1 MB).
cuda12_wheels=(nvidia-cuda-runtime-cu12==12.8.90)

say() { printf '== %s\n' "$*"; }
fail() { printf 'fragscope: %s\n' "$*" >&2; exit 1; }

check_disk() {
    mkdir -p "$build" 2>/dev/null || fail "cannot create the build folder $build."
    local free_kib
    free_kib=$(df -Pk "$build" | awk 'NR == 2 { print $4 }')
    [ "${free_kib:-0}" -ge 1048576 ] ||
        fail "building needs 1 GiB of disk space at $build, and $((${free_kib:-0} / 1024)) MiB are available."
}

check_compiler() {
    command -v g++ >/dev/null || return 0  # it is installed with the packages; checked again afterwards
    local major
    major=$(g++ -dumpversion | cut -d. -f1)
    [ "$major" -ge 12 ] || fail "GCC 12 or newer is needed, and g++ here is version $major."
}

install_packages() {
    command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
        fail "this sets itself up on Debian and Ubuntu only (no apt-get here): install the equivalents of: ${packages[*]}."
    local missing=() name
    for name in "${packages[@]}"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail "these packages are missing and need root to install: ${missing[*]}."
        as_root=(sudo)
    fi
    say "installing ${missing[*]}"
    local log=$build/apt.log
    {
        "${as_root[@]}" apt-get update -q &&
            "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
    } >"$log" 2>&1 || fail "apt-get could not install ${missing[*]} (no network, or no such package here); see $log."
}

# Prints the folder with cuda.h of CUDA 13 or newer: an installed toolkit's, else NVIDIA's header wheels.
cuda_version_of() {
    [ -f "$1/cuda.h" ] || return 0
    sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$1/cuda.h" | head -n 1
}
find_cuda_headers() {
    local dir version
    for dir in ${CUDA_HOME:+"$CUDA_HOME/include"} /usr/local/cuda/include /usr/include; do
        version=$(cuda_version_of "$dir")
        if [ "${version:-0}" -ge 13000 ] && [ -f "$dir/cuda_runtime_api.h" ] && [ -f "$dir/cupti.h" ]; then
            cuda_include=$dir
            return
        fi
    done
    cuda_include=$build/cuda-headers/include
    fetch_headers "$build/cuda-headers" "no CUDA 13 toolkit here: fetching NVIDIA's header wheels" "${header_wheels[@]}"
    [ "$(cuda_version_of "$cuda_include")" -ge 13000 ] 2>/dev/null ||
        fail "the header wheels hold no cuda.h of CUDA 13 where it was expected ($cuda_include)."
}

# The headers and the runtime library of CUDA 12, always from a wheel: what is built from them is compared with that
# library name by name. The wheel leaves out one header of macros and one of two functions, which are CUDA 13's too.
find_cuda12_headers() {
    cuda12_include=$build/cuda12-headers/include
    fetch_headers "$build/cuda12-headers" "fetching NVIDIA's headers of CUDA 12" "${cuda12_wheels[@]}"
    [ "$(cuda_version_of "$cuda12_include")" -lt 13000 ] 2>/dev/null ||
        fail "the wheel holds no cuda.h of CUDA 12 where it was expected ($cuda12_include)."
    mkdir -p "$cuda12_include/crt"
    local name
    for name in crt/host_defines.h cuda_profiler_api.h; do
        [ -f "$cuda12_include/$name" ] || cp "$cuda_include/$name" "$cuda12_include/$name" ||
            fail "$cuda_include holds no $name."
    done
}

# fetch_headers DIR WHY WHEEL…: unpacks the headers of NVIDIA's wheels into DIR/include and the runtime's libraries into
# DIR/lib. The list of what was fetched stands in `complete`: another list is fetched anew.
fetch_headers() {
    local dir=$1 why=$2 log=$build/wheels.log
    shift 2
    [ "$(cat "$dir/complete" 2>/dev/null)" = "$*" ] && return
    say "$why into $dir"
    rm -rf "$dir" && mkdir -p "$dir/wheels"
    python3 -m pip download -q --no-deps --only-binary=:all: -d "$dir/wheels" "$@" >"$log" 2>&1 ||
        fail "pip could not fetch $* (no network?); see $log."
    python3 - "$dir" >"$log" 2>&1 <<'PY' || fail "the header wheels could not be unpacked; see $log."
import pathlib, sys, zipfile
target = pathlib.Path(sys.argv[1])
for wheel in sorted((target / "wheels").glob("*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            # nvidia/cu13/include/… and nvidia/cu13/lib/…; in the wheels of CUDA 12 cuda_runtime is in the place of cu13
            parts = pathlib.PurePosixPath(name).parts
            if len(parts) > 3 and parts[0] == "nvidia" and parts[2] in ("include", "lib") and not name.endswith("/"):
                if parts[2] == "lib" and not parts[-1].startswith("libcudart"):
                    continue
                out = target.joinpath(*parts[2:])
                out.parent.mkdir(parents=True, exist_ok=True)
                out.write_bytes(archive.read(name))
PY
    printf '%s\n' "$*" >"$dir/complete"
}

# configure DIR [meson options…]
configure() {
    local dir=$1 log=$build/configure.log
    shift
    mkdir -p "$dir"
    [ -f "$dir/build.ninja" ] && return 0
    say "configuring $dir"
    (cd "$repo" && meson setup "$dir" -Dtoolkit_include="$cuda_include" "$@") >"$log" 2>&1 ||
        fail "meson could not configure the build; see the end of $log."
}

# Adds CUDA 12's stand-in runtime to a build folder that was configured, perhaps without it.
configure_cuda12() {
    local dir=$1 log=$build/configure.log
    find_cuda12_headers
    python3 - "$dir" "$cuda12_include" <<'PY' && return
import json, subprocess, sys
options = json.loads(subprocess.check_output(["meson", "introspect", sys.argv[1], "--buildoptions"]))
sys.exit(not any(option["name"] == "toolkit12_include" and option["value"] == sys.argv[2] for option in options))
PY
    (cd "$repo" && meson setup --reconfigure "$dir" -Dtoolkit12_include="$cuda12_include") >"$log" 2>&1 ||
        fail "meson could not configure the build; see the end of $log."
}

# compile DIR [targets…]
compile() {
    local dir=$1 log=$build/build.log
    ninja -C "$dir" -n "${@:2}" 2>/dev/null | grep -q 'no work to do' && return 0
    say "building in $dir (a few minutes the first time)"
    ninja -C "$dir" "${@:2}" >"$log" 2>&1 && return 0
    grep -m1 -A12 'FAILED:' "$log" >&2 || true
    fail "the build failed; see $log."
}

prepare() {
    check_disk
    check_compiler
    install_packages
    check_compiler
    find_cuda_headers
}
