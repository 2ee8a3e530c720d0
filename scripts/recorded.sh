#!/usr/bin/env bash
# Says whether the tests that replay recorded clusters had their data: `go test` shows no skipped test.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$PWD
until [[ -d $dir/shared/data ]]; do
  if [[ $dir == / ]]; then
    echo "note: no folder shared/data beside this checkout or above it. The tests that read recorded traces were SKIPPED;"
    echo "      'go test -v ./... | grep -A1 SKIP' names each with the file it wants."
    exit 0
  fi
  dir=$(dirname "$dir")
done
echo "The recorded traces in shared/data were there for the tests that read them."
