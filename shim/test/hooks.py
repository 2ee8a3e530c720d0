#!/usr/bin/env python3
"""Runs the scenario of each hook, with the hook and without it.

    hooks.py PROGRAM LIBWEFT MUTANT DRIVERS [SYMBOL...]

With the hook its scenario must succeed; in the mutant, which forgets the hook that WEFT_WITHOUT names, it must fail. A hook
of the manifest that has no scenario is a failure too. DRIVERS is the folder of the driver that does nothing.
"""
import os
import subprocess
import sys
import tempfile

import manifest
import stub_agent

LATE = ('Synchronize', 'StreamQuery', 'DtoH', 'AtoH')  # scenarios that watch the token leave


def absolute(paths):
    """Absolute forms of the paths of a list as LD_PRELOAD has them."""
    return ':'.join(os.path.abspath(p) for p in paths.split(':'))


def main():
    program, library, mutant, drivers = (absolute(p) for p in sys.argv[1:5])
    hooked = manifest.read_manifest(os.path.join(os.path.dirname(__file__), '../src/manifest.def'))[0]
    known = subprocess.run([program], text=True, check=True, capture_output=True).stdout.split()
    wrong = [f'{symbol}: no scenario' for symbol in sorted(hooked - set(known))]
    wrong += [f'{symbol}: not hooked' for symbol in sorted(set(known) - hooked)]
    symbols = sys.argv[5:] or known
    plain = {k: v for k, v in os.environ.items() if not k.startswith('WEFT')} | {'LD_LIBRARY_PATH': drivers}
    with tempfile.TemporaryDirectory() as folder:
        def scenario(symbol, **environment):
            command = ['timeout', '60', 'env', *(f'{k}={v}' for k, v in environment.items()), program, symbol]
            late = any(part in symbol for part in LATE)
            return stub_agent.run(f'{folder}/agent', command, plain, [bytes(range(16))], 1 << 30, late)

        for symbol in symbols:
            status, agent = scenario(symbol, LD_PRELOAD=library)
            if status or agent.faults or any(agent.used):
                wrong.append(f'{symbol}: status {status}, still charged {agent.used}, faults {agent.faults}')
            sys.stderr.flush()
            saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            status, _ = scenario(symbol, LD_PRELOAD=mutant, WEFT_WITHOUT=symbol)
            os.dup2(saved, 2)
            os.close(saved), os.close(null)
            if status == 0:
                wrong.append(f'{symbol}: its scenario does not need it')
    print('\n'.join(wrong) if wrong else f'{len(symbols)} hooks do what they are for, and nothing without them')
    return bool(wrong)


if __name__ == '__main__':
    sys.exit(main())
