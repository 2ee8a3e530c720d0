#!/usr/bin/env bash
# Fails when `go generate` changes a file: what is generated is committed, and up to date.
set -euo pipefail
cd "$(dirname "$0")/.."

sums() { find api charts cmd internal docs shim -type f -exec cksum {} + | sort -k3; }
before=$(sums)
${GO:-go} generate ./...
after=$(sums)
if [[ $before != "$after" ]]; then
  echo "go generate changed:" >&2
  diff <(echo "$before") <(echo "$after") >&2 || true
  exit 1
fi
