#!/bin/sh
# The manifest against the known symbols; and that the check fails for each way in which a driver may gain one.
# manifest-test.sh LIBWEFT [EMULATED_LIBRARY...]
set -u
cd "$(dirname "$0")/.." || exit 1
library=$1
shift
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
check() { test/manifest.py src/manifest.def test/symbols-cuda.txt test/symbols-nvml.txt emu/symbols.txt "$@"; }

for emulated; do
    nm -D --defined-only "$emulated" | awk '$2 == "T" && $3 ~ /^(cu[A-Z]|nvml.*(DeviceGetCount|Handle|Process|MemoryInfo|GetIndex))/ {print $3}' >"$temp/$(basename "$emulated").txt"
done
check --library "$library" $(ls "$temp"/*.txt 2>/dev/null) || exit 1

for symbol in cuMemAlloc_v3 cuMemAllocAsync_v2_ptsz cuLaunchKernelEx_v2 cuMemsetD64Async cuCtxCreate_v5 cuMemFreeLater \
    cuStreamBeginCapture_v3 cuGraphLaunch_v2 cuArrayCreate_v3 cuIpcOpenMemHandle_v3 cuMemcpyDtoDAsync_v3 cuGetProcAddress_v3 \
    cuStreamSynchronize_v2 cuMemCreate_v2 nvmlDeviceGetMemoryInfo_v3 nvmlDeviceGetComputeRunningProcesses_v4; do
    echo $symbol >"$temp/new"
    if check "$temp/new" >/dev/null; then
        echo "a new symbol $symbol goes unnoticed"
        exit 1
    fi
done
