#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time (default 10s), one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-10s}
count=0
while IFS=: read -r file target; do
  echo "== $target in $(dirname "$file")"
  ${GO:-go} test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -timeout 10m "./$(dirname "$file")"
  count=$((count + 1))
done < <(find cmd internal -name '*_test.go' -exec grep -oHE '^func Fuzz[A-Za-z0-9_]+' {} + | sed 's/func //' | sort)
[[ $count -gt 0 ]] || { echo "no fuzz target found" >&2; exit 1; }
echo "$count fuzz targets ran for $time each"
