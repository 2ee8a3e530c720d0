#!/usr/bin/env bash
# Checks the page in web/: types, tests, that internal/web/dist is what it builds to, and the page in a browser. Without
# Node.js 20.19 or newer it says so and is no failure: the bundle is committed, and internal/box tests what it reads.
#
#   scripts/web.sh           all of it
#   scripts/web.sh quick     without the browser
set -euo pipefail
cd "$(dirname "$0")/../web"

loud() {
  echo "==================================================================" >&2
  printf '%s\n' "$@" >&2
  echo "==================================================================" >&2
}
if ! command -v npm >/dev/null || ! node -e '
    const [major, minor] = process.versions.node.split(".").map(Number)
    process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1)'; then
  loud "THE PAGE IS NOT TESTED: no npm with Node.js 20.19 or newer here." "What is committed in internal/web/dist is used as it is."
  exit 0
fi

# Installed once per lock file.
lock=$(cksum <package-lock.json)
if [[ "$(cat node_modules/.weft-lock 2>/dev/null)" != "$lock" ]]; then
  if ! npm ci --no-audit --no-fund --loglevel=error; then
    loud "THE PAGE IS NOT TESTED: npm ci did not succeed (no network?)."
    [[ ${CI:-} == true ]] && exit 1
    exit 0
  fi
  echo "$lock" >node_modules/.weft-lock
fi

npm run -s check
npm test --silent

built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
WEFT_PAGE_OUT=$built npm run -s build
if ! diff -rq "$built" ../internal/web/dist; then
  echo "internal/web/dist is not what web/ builds to: run make web, and commit it" >&2
  exit 1
fi
size=$(cat "$built"/index.html "$built"/assets/* | gzip -9 | wc -c)
echo "page: $size bytes gzipped"
if ((size > 120000)); then
  echo "the page is larger than 120,000 bytes gzipped" >&2
  exit 1
fi

[[ ${1:-} == quick ]] || npm run -s test:browser
