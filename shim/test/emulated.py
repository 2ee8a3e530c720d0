#!/usr/bin/env python3
"""Runs the tests that need GPUs on emulated ones, under an agent.

    emulated.py WEFT LIBWEFT EMULATED MEMORY [CONFORMANCE]

starts a broker with three GPUs of different models, and checks in jobs that have one or two of them: the books (the program
MEMORY), that no way of allocating passes the limit and no way of launching the gate (the program CONFORMANCE), which GPUs a
job sees whatever its script does to the environment, and that CUDA and NVML say the same.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile

import hooks
import stub_agent

MIB = 1 << 20
LIMIT = 2048 * MIB
VIEW = r'''
import ctypes, json, os, sys
how, libraries = sys.argv[1], {}
settings = {'zero': ('CUDA_VISIBLE_DEVICES', '0'), 'two': ('CUDA_VISIBLE_DEVICES', '2'), 'all': ('CUDA_VISIBLE_DEVICES', '0,1,2'),
            'empty': ('CUDA_VISIBLE_DEVICES', ''), 'order': ('CUDA_DEVICE_ORDER', 'FASTEST_FIRST')}
if how in settings:
    os.environ[settings[how][0]] = settings[how][1]
cuda, nvml = ctypes.CDLL('libcuda.so.1'), ctypes.CDLL('libnvidia-ml.so.1')
def number(call, *arguments, kind=ctypes.c_uint):
    out = kind()
    result = call(*arguments, ctypes.byref(out))
    return out.value if result == 0 else -result
seen = {'nvml': [], 'cuda': []}
def monitor():
    assert nvml.nvmlInit_v2() == 0
    for i in range(number(nvml.nvmlDeviceGetCount_v2)):
        device, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        assert nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(device)) == 0
        assert nvml.nvmlDeviceGetUUID(device, text, 96) == 0
        one, two = (ctypes.c_ulonglong * 3)(), (ctypes.c_ulonglong * 5)()
        ctypes.cast(two, ctypes.POINTER(ctypes.c_uint))[0] = 40 | 2 << 24
        assert nvml.nvmlDeviceGetMemoryInfo(device, one) == 0 and nvml.nvmlDeviceGetMemoryInfo_v2(device, two) == 0
        lists = []
        for name, size in ('', 16), ('_v2', 24), ('_v3', 24):
            count, room = ctypes.c_uint(8), (ctypes.c_ubyte * 256)()
            assert getattr(nvml, 'nvmlDeviceGetComputeRunningProcesses' + name)(device, ctypes.byref(count), room) == 0
            lists.append([int.from_bytes(bytes(room[j * size:j * size + 4]), 'little') for j in range(count.value)])
        seen['nvml'].append({'uuid': text.value.decode()[4:].replace('-', ''), 'index': number(nvml.nvmlDeviceGetIndex, device),
                             'old': [one[0], one[2], one[1]], 'new': [two[1], two[4], two[3]], 'processes': lists})
if how == 'monitor':
    monitor()
    print(json.dumps(seen))
    sys.exit()
assert cuda.cuInit(0) == 0
for i in range(number(cuda.cuDeviceGetCount)):
    uuid, context, total = (ctypes.c_ubyte * 16)(), ctypes.c_void_p(), ctypes.c_size_t()
    assert cuda.cuDeviceGetUuid_v2(ctypes.byref(uuid), i) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), i) == 0 and cuda.cuCtxSetCurrent(context) == 0
    address, available = ctypes.c_ulonglong(), ctypes.c_size_t()
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(100 << 20)) == 0
    assert cuda.cuMemGetInfo_v2(ctypes.byref(available), ctypes.byref(total)) == 0
    seen['cuda'].append({'uuid': bytes(uuid).hex(), 'total': total.value, 'free': available.value})
monitor()
seen['pid'] = os.getpid()
print(json.dumps(seen))
'''


class Broker:
    """Emulated GPUs for as long as the object lives."""

    def __init__(self, weft, folder):
        self.socket = f'{folder}/emu'
        self.process = subprocess.Popen([weft, 'emugpu', '--socket', self.socket, '--gpus', '3'], stdout=subprocess.PIPE)
        if not self.process.stdout.readline():  # it says that it serves
            raise SystemExit('the broker does not start')

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate()


def uuids(library):
    """The GPUs' UUIDs as the driver tells them without the shim, but with a sanitiser's runtime where there is one."""
    code = '''import ctypes
c = ctypes.CDLL('libcuda.so.1'); c.cuInit(0); n = ctypes.c_int(); c.cuDeviceGetCount(ctypes.byref(n))
for i in range(n.value):
    u = (ctypes.c_ubyte * 16)(); c.cuDeviceGetUuid_v2(u, i); print(bytes(u).hex())'''
    runtime = library.rpartition(':')[0]
    return subprocess.run(['env', f'LD_PRELOAD={runtime}', sys.executable, '-c', code], text=True, check=True,
                          stdout=subprocess.PIPE).stdout.split()


def view(path, library, how, gpus):
    """What a job of these GPUs sees; its output."""
    with tempfile.TemporaryFile('w+') as out:
        saved = os.dup(1)
        os.dup2(out.fileno(), 1)
        status, agent = stub_agent.run(path, ['env', f'LD_PRELOAD={library}', sys.executable, '-c', VIEW, how], os.environ,
                                       [bytes.fromhex(u) for u in gpus], 1024 * MIB)
        os.dup2(saved, 1)
        os.close(saved)
        out.seek(0)
        assert status == 0 and not agent.faults, (how, status, agent.faults)
        return json.loads(out.read())


def check_views(path, library, all_gpus):
    """The placed GPUs and no others, by every way of asking; one limit, one use, one process, on all surfaces."""
    for gpus in [all_gpus[1]], [all_gpus[2], all_gpus[0]]:
        for how in 'nothing', 'zero', 'two', 'all', 'empty', 'order':
            seen = view(path, library, how, gpus)
            assert [d['uuid'] for d in seen['cuda']] == gpus, (how, gpus, seen)
            assert [d['uuid'] for d in seen['nvml']] == gpus, (how, gpus, seen)
            for position, (cuda, nvml) in enumerate(zip(seen['cuda'], seen['nvml'])):
                used = 356 * MIB
                assert cuda['total'] == 1024 * MIB and cuda['free'] == 1024 * MIB - used, (how, cuda)
                assert nvml['old'] == nvml['new'] == [1024 * MIB, used, 1024 * MIB - used], (how, nvml)
                assert nvml['index'] == position and nvml['processes'] == [[seen['pid']]] * 3, (how, nvml, seen['pid'])
        seen = view(path, library, 'monitor', gpus)
        assert [d['uuid'] for d in seen['nvml']] == gpus and not any(any(d['processes']) for d in seen['nvml']), seen
        assert all(d['old'] == [1024 * MIB, 0, 1024 * MIB] for d in seen['nvml']), seen


def check_program(path, library, uuid, command, **options):
    """Runs a program that checks the driver in a job of one GPU with 2 GiB; ends what hangs, however slow the machine."""
    command = ['timeout', '600', 'env', f'LD_PRELOAD={library}', *command]
    with tempfile.TemporaryFile('w+') as out:
        saved = os.dup(1)
        os.dup2(out.fileno(), 1)
        status, agent = stub_agent.run(path, command, os.environ, [bytes.fromhex(uuid)], LIMIT, **options)
        os.dup2(saved, 1)
        os.close(saved)
        out.seek(0)
        failed = [line for line in out if line.startswith('not ok')]
    if status or agent.faults or any(agent.used):
        raise SystemExit(f'{command[4:]}: status {status}, still charged {agent.used}, faults {agent.faults}\n{"".join(failed)}')


def main():
    weft, library, emulated, memory, *conformance = (hooks.absolute(p) for p in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(weft, folder)
        try:
            os.environ |= {'WEFT_EMU_SOCKET': broker.socket, 'LD_LIBRARY_PATH': emulated}
            gpus, path = uuids(library), f'{folder}/agent'
            check_program(path, library, gpus[0], [memory])
            if conformance:  # not sanitised: it judges what a start costs, which a sanitiser's runtime adds to
                check_program(path, library, gpus[0], conformance + ['--expect-limit', str(LIMIT)])
                check_program(path, library, gpus[0], conformance + ['--expect-gated', '--gated-ms', '100'], never=True)
            check_views(path, library, gpus)
        finally:
            broker.stop()
    print('memory: books exact, nothing left; no path passes limit or gate; the same GPUs by CUDA and NVML')


if __name__ == '__main__':
    main()
