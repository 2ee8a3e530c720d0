#!/usr/bin/env bash
# Tests of the programs on the driver that is in LD_LIBRARY_PATH. run.sh FOLDER, where the programs are.
set -euo pipefail
out=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
faults=0

fail() { echo "not ok: $*" >&2; faults=$((faults + 1)); }

# number KEY FILE: the last value of a member in lines of JSON.
number() { sed -n "s/.*\"$1\": \(-\{0,1\}[0-9.]*\).*/\1/p" "$2" | tail -1; }

# holds EXPRESSION: by awk.
holds() { awk "BEGIN { exit !($1) }"; }

# expect CODE COMMAND...: its exit code; what it prints is in $work/out and $work/err.
expect() {
  local want=$1 got=0
  shift
  "$@" >"$work/out" 2>"$work/err" || got=$?
  [[ $got == "$want" ]] || fail "exit $got, not $want: $* ($(tail -1 "$work/err"))"
}

# attempt CONDITION COMMAND...: up to five tries, for what all else that the machine does can only make worse.
attempt() {
  local condition=$1
  shift
  for ((try = 0; try < 5; try++)); do
    expect 0 "$@"
    if "$condition"; then return; fi
  done
  fail "$condition: $(cat "$work/out")"
}

train=$out/weft-train probe=$out/weft-probe

# weft-train: so many iterations, of the length that was asked for.
expect 0 "$train" --iterations 20 --kernels 20 --kernel-us 200 --gap-ms 5 --ephemeral 256MiB --name x
[[ $(number iterations "$work/out") == 20 ]] || fail "not 20 iterations: $(tail -1 "$work/out")"
holds "$(number rate_per_s "$work/out") < 1000 / 9" || fail "iterations of 9 ms at a rate of $(number rate_per_s "$work/out")"
grep -q '"type": "start"' "$work/out" && grep -q '"type": "final"' "$work/out" || fail "no start or final line"

# Several streams run beside each other, a graph does the same work as its kernels, and all devices are used.
expect 0 "$train" --iterations 5 --streams 4
expect 0 "$train" --iterations 5 --graph --ephemeral 64MiB
expect 0 "$train" --seconds 0.2 --no-cooperate
expect 0 "$train" --model resnet50 --batch 50 --gpu p100 --iterations 1

# A checkpoint on SIGTERM, and the way on from it.
"$train" --checkpoint "$work/checkpoint" --kernels 5 --gap-ms 1 >"$work/first" &
pid=$!
for ((i = 0; i < 400; i++)); do grep -qs '"type": "start"' "$work/first" && break; sleep 0.05; done
sleep 0.3
kill -TERM $pid
code=0
wait $pid || code=$?
[[ $code == 143 ]] || fail "ended by SIGTERM with $code, not 143"
done_=$(number iterations "$work/first")
[[ $(cat "$work/checkpoint") == "iterations $done_" && $done_ -gt 0 ]] || fail "checkpoint '$(cat "$work/checkpoint")' after $done_ iterations"
expect 0 "$train" --checkpoint "$work/checkpoint" --resume --iterations $((done_ + 3)) --kernels 5 --gap-ms 1
[[ $(number resumed "$work/out") == "$done_" && $(number iterations "$work/out") == $((done_ + 3)) ]] || fail "resumed: $(tail -1 "$work/out")"
echo garbage >"$work/checkpoint"
expect 1 "$train" --checkpoint "$work/checkpoint" --resume --iterations 1

# Ranks keep step; one that stands still is noticed and named.
expect 0 "$train" --devices 0,0 --ranks --iterations 10 --kernels 5
"$train" --devices 0,0 --ranks --stall-s 1 --kernels 5 >"$work/gang" 2>"$work/gang.err" &
pid=$!
for ((i = 0; i < 400; i++)); do grep -qs '"type": "start"' "$work/gang" && break; sleep 0.05; done
first=$(sed -n 's/.*"type": "start".*"pid": \([0-9]*\).*/\1/p' "$work/gang")
second=$(pgrep -P $pid | grep -vx "$first")
kill -STOP "$second"
for ((i = 0; i < 400; i++)); do grep -q '"type": "stall"' "$work/gang" && break; sleep 0.05; done
kill -CONT "$second"
code=0
wait $pid || code=$?
[[ $code == 1 ]] && grep -q '"type": "stall", "rank": 0, "peer": 1' "$work/gang" || fail "a stalled rank: exit $code, $(tail -1 "$work/gang")"

# Out of memory, and bad arguments.
expect 3 "$train" --persistent 100TiB --iterations 1
grep -q 'cuMemAlloc_v2 failed with code 2' "$work/err" || fail "out of memory says: $(cat "$work/err")"
expect 1 "$train" --devices 99 --iterations 1
grep -q 'cuDeviceGet failed with code 101' "$work/err" || fail "a device that is not there says: $(cat "$work/err")"
expect 2 "$train" --model nosuch
expect 2 "$train" --kernels 0
expect 2 "$train" --resume
expect 2 "$probe" nosuch
expect 2 "$probe" load --graph --streams 2
expect 2 "$probe" load --iteration-ms 1 --kernels 10 --kernel-us 200

# weft-probe: each measurement measures what it says.
expect 0 "$probe" launch-cost --launches 1000 --rounds 3 --threads 2
holds "$(number launch_min_ns "$work/out") > 0" || fail "launch cost: $(cat "$work/out")"
saturated() { holds "$(number busy_fraction "$work/out") > 0.5 && $(number busy_fraction "$work/out") < 1.05"; }
attempt saturated "$probe" stream --kernel-us 100 --seconds 0.5
expect 0 "$probe" load --kernels 10 --kernel-us 100 --iteration-ms 5 --seconds 0.5
holds "$(number rate_per_s "$work/out") <= 200 && $(number iteration_p50_ms "$work/out") >= 0.9" || fail "load: $(cat "$work/out")"
expect 0 "$probe" load --graph --iterations 3 --cooperate
[[ $(number iterations "$work/out") == 3 ]] || fail "load of a graph: $(cat "$work/out")"
pinged() { holds "$(number count "$work/out") >= 10 && $(number done_p50_us "$work/out") >= 190"; }
attempt pinged "$probe" ping --gap-ms 5 --kernel-us 200 --seconds 0.3 --stamps
expect 0 "$probe" memory --most 256MiB
[[ $(number allocated_bytes "$work/out") == 268435456 && $(number free_bytes "$work/out") == $(number free_after_bytes "$work/out") ]] ||
  fail "memory: $(cat "$work/out")"

expect 0 "$probe" churn --schedules 50 --peak 512MiB
[[ $(number out_of_memory "$work/out") == 0 && $(number schedules "$work/out") == 50 && $(number highest_bytes "$work/out") -le 536870912 ]] ||
  fail "churn alone: $(cat "$work/out")"
expect 0 "$probe" churn --schedules 50 --peak 30GiB
holds "$(number out_of_memory "$work/out") > 0" || fail "churn beyond the GPU: $(cat "$work/out")"
expect 0 "$probe" storm --processes 8 --hold-s 0.5
[[ $(number failed "$work/out") == 0 ]] && holds "$(number open_p50_ms "$work/out") > 0" || fail "storm: $(cat "$work/out")"

# conformance: all is well here, and the checks of a limit fail where nobody enforces one.
expect 0 "$out/conformance"
grep '^not ok' "$work/out" >&2 || true
expect 1 "$out/conformance" --only limit --expect-limit 1GiB
if grep -E '^ok [0-9]+ - limit\.(path|reported|shared|two|free)' "$work/out" | grep -v '# skip'; then fail "checks of a limit pass without one"; fi
expect 1 "$out/conformance" --only gate --expect-gated --gated-ms 10000
if grep -E '^ok' "$work/out" | grep -v '# skip'; then fail "checks of the gate pass without one"; fi

[[ $faults == 0 ]] && echo "programs: ok"
