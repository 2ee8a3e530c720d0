#!/usr/bin/env python3
"""Checks that the manifest knows every symbol of the drivers.

    manifest.py MANIFEST SYMBOLS... [--library PATH]

Each SYMBOLS file lists exported symbols, one a line. A symbol that is neither hooked, exempted nor of a foreign prefix fails
the check, as does a line of the manifest that says nothing new, and, with --library, a hook that libweft.so does not export.
"""
import argparse
import re
import subprocess
import sys

LINE = re.compile(r'^(HOOK|EXEMPT|CALL|FOREIGN)\((.*)\)$')


def read_manifest(path):
    """Returns the hooked symbols, the other known symbols, and the foreign prefixes."""
    hooked, known, foreign, wrong = set(), set(), [], []
    for number, line in enumerate(open(path), 1):
        match = LINE.match(line.strip())
        if not match:
            if line.strip() and not line.lstrip().startswith(('/*', '*')):
                wrong.append(f'{path}:{number}: not a line of the manifest')
            continue
        kind, fields = match[1], [f.strip() for f in match[2].split(',', 1 if match[1] == 'FOREIGN' else 2)]
        if kind != 'HOOK' and len(fields[-1].strip('"')) < 5:
            wrong.append(f'{path}:{number}: {fields[-2]} needs a reason')
        if kind == 'FOREIGN':
            foreign.append(fields[0])
            continue
        if fields[1] in hooked | known:
            wrong.append(f'{path}:{number}: {fields[1]} is there twice')
        (hooked if kind == 'HOOK' else known).add(fields[1])
    for symbol in sorted(hooked | known):
        if any(symbol.startswith(prefix) for prefix in foreign):
            wrong.append(f'{path}: {symbol} has a foreign prefix too')
    return hooked, known, foreign, wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('manifest')
    parser.add_argument('symbols', nargs='+')
    parser.add_argument('--library')
    options = parser.parse_intermixed_args()
    hooked, known, foreign, wrong = read_manifest(options.manifest)
    for path in options.symbols:
        for symbol in open(path).read().split():
            if symbol not in hooked | known and not any(symbol.startswith(p) for p in foreign):
                wrong.append(f'{path}: {symbol} is neither hooked nor exempted; add it to {options.manifest}')
    if options.library:
        lines = subprocess.run(['nm', '-D', '--defined-only', options.library], text=True, check=True,
                               capture_output=True).stdout.splitlines()
        exported = {line.split()[-1].split('@')[0] for line in lines}
        wrong += [f'{options.library}: {symbol} is hooked and not exported' for symbol in sorted(hooked - exported)]
        wrong += [f'{options.library}: {symbol} is exported and not in the manifest'
                  for symbol in sorted(exported - hooked) if re.match(r'cu[A-Z]|nvml', symbol)]
    print('\n'.join(wrong) if wrong else f'{len(hooked)} hooked, {len(known)} exempted')
    return bool(wrong)


if __name__ == '__main__':
    sys.exit(main())
