"""Says which GPUs a program really has, after it did to its environment what careless scripts do. Argument: what that is."""

import ctypes
import json
import os
import sys

CARELESS = {
    "nothing": {},
    "zero": {"CUDA_VISIBLE_DEVICES": "0"},
    "three": {"CUDA_VISIBLE_DEVICES": "3"},
    "all": {"CUDA_VISIBLE_DEVICES": "0,1,2,3"},
    "order": {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"},
    "empty": {"CUDA_VISIBLE_DEVICES": ""},
    "nvall": {"NVIDIA_VISIBLE_DEVICES": "all"},
}


def cuda():
    """The UUIDs of the devices, in CUDA's order."""
    lib = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int()
    lib.cuInit(0)
    lib.cuDeviceGetCount(ctypes.byref(count))
    found = []
    for i in range(count.value):
        device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        lib.cuDeviceGet(ctypes.byref(device), i)
        lib.cuDeviceGetUuid_v2(ctypes.byref(uuid), device)
        found.append(bytes(uuid).hex())
    return found


def nvml():
    """The UUIDs of the devices, in the order of the management library."""
    lib = ctypes.CDLL("libnvidia-ml.so.1")
    count = ctypes.c_uint()
    lib.nvmlInit_v2()
    lib.nvmlDeviceGetCount_v2(ctypes.byref(count))
    found = []
    for i in range(count.value):
        device, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        lib.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(device))
        lib.nvmlDeviceGetUUID(device, text, 96)
        found.append(text.value.decode().removeprefix("GPU-").replace("-", ""))
    return found


os.environ.update(CARELESS[sys.argv[1]])  # which calls setenv, as CUDA sees it
print(json.dumps({"cuda": cuda(), "nvml": nvml()}))
