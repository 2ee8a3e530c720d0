#!/usr/bin/env bash
# Prints the packages, of those named, whose code or tests start goroutines: what the race detector is for.
set -euo pipefail
go list -f '{{.Dir}} {{.ImportPath}}' "$@" | while read -r dir package; do
  if grep -qE '(^|[[:space:]])go (func\(|[A-Za-z_][A-Za-z0-9_.]*\()|\.Go\(|t\.Parallel\(' "$dir"/*.go; then
    echo "$package"
  fi
done
