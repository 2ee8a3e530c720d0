#!/bin/sh
# Look-ups in a process with the library: alone, beside other preloaded libraries in both orders, under both generations of
# symbol versions. lookup-test.sh LIBWEFT OBJECTS
set -u
library=$(realpath "$1")
objects=$(realpath "$2")
here=$(dirname "$0")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
wrong=0

# expect NAME PRELOAD ARGUMENT...: runs lookups under an agent.
expect() {
    name=$1
    preload=$2
    shift 2
    if ! timeout 60 "$here/stub_agent.py" "$temp/agent" -- env LD_PRELOAD="$preload" LD_LIBRARY_PATH="$drivers" \
        "$program" "$@" >"$temp/out" 2>"$temp/errors"; then
        echo "$name: failed"
        sed 's/^/    /' "$temp/errors"
        wrong=1
    fi
}

for program in "$objects/lookups" "$objects/lookups-old"; do
    kind=$(basename "$program")
    drivers=/nonexistent
    expect "$kind, no driver" "$library" absent
    drivers=$objects/fake
    expect "$kind, driver" "$library:$objects/libwrapper.so" present
    expect "$kind, limit" "$library" limit
    expect "$kind, behind a neighbour" "$objects/libneighbour.so:$library" limit
    [ "$(cat "$temp/out")" -gt 0 ] || { echo "$kind: the neighbour before us was passed by"; wrong=1; }
    expect "$kind, before a neighbour" "$library:$objects/libneighbour.so" limit
done
[ $wrong = 0 ] && echo "look-ups: alone, behind and before a neighbour, by both versions"
exit $wrong
