#!/bin/sh
# What the library asks of an image: the C library and nothing else, nothing newer than glibc 2.17, no executable stack, no
# thread-local storage that a late loader could not place. abi-test.sh LIBWEFT
set -u
library=$1
wrong=0
fault() {
    echo "$library: $1"
    wrong=1
}

needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' ')
[ "$needed" = "libc.so.6 " ] || fault "needs $needed; libc.so.6 alone may be"

newer=$(objdump -T "$library" | awk '/\*UND\*/ {
    version = $(NF - 1); gsub(/[()]/, "", version)
    if (split(version, v, /[_.]/) >= 3 && v[1] == "GLIBC" && (v[2] > 2 || v[3] + 0 > 17)) print $NF "@" version }')
[ -z "$newer" ] || fault "refers to what glibc 2.17 lacks:
$newer"

for symbol in dlsym dlvsym; do
    for version in GLIBC_2.2.5 GLIBC_2.34; do
        objdump -T "$library" | grep -v UND | tr -d '()' | grep -q " $version *$symbol\$" ||
            fault "does not define $symbol@$version"
    done
done
readelf -lW "$library" | grep GNU_STACK | grep -q RWE && fault "wants an executable stack"
readelf -rW "$library" | grep -q DTPMOD && fault "has thread-local storage of a dynamic model"
[ -z "$(readelf -d "$library" | grep TEXTREL)" ] || fault "has relocations in its code"
exit $wrong
