#!/usr/bin/env bash
# Checks weft on a machine with a GPU, in under 12 minutes, and prints one table. Exit: 0 all within limits, 1 not, 2 there is no
# GPU here, or something to run it with is missing. Logs are kept in $OUT, or in a temporary folder that is named at the end.
#
# Where there is no Go or no C compiler, it uses what lies in bin/. With WEFT_EMU_SOCKET and LD_LIBRARY_PATH set as for any program on
# emulated GPUs it runs on those, to try the script itself.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly BIN=$PWD/bin LIB=$PWD/bin/lib
readonly LIMIT=4GiB        # of the jobs whose memory is checked
readonly SECONDS_EACH=6    # of a measurement of rate
logs=${OUT:-$(mktemp -d)}
socket=$(mktemp -d)        # short: the path of a socket has 107 bytes at most
agent=
began=$SECONDS
failed=0

refuse() { echo "test/gpu/run.sh: $*" >&2; exit 2; }

finish() {
  local pids
  pids=$(jobs -p)
  [[ -z $pids$agent ]] || kill -9 $pids $agent 2>/dev/null || true
  rm -rf "$socket"
  echo "logs: $logs" >&2
}

# Whether there is a driver that programs would find, before anything is built for it.
has_driver() {
  local folder
  while IFS= read -r -d : folder; do
    [[ -e $folder/libcuda.so.1 ]] && return
  done <<<"${LD_LIBRARY_PATH:-}:"
  ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'
}

build() {
  if command -v go >/dev/null; then
    make build >"$logs/build.log" 2>&1 || refuse "make build failed, see $logs/build.log"
  fi
  if command -v "${CC:-cc}" >/dev/null && command -v make >/dev/null; then
    make -C shim >>"$logs/build.log" 2>&1 || refuse "make -C shim failed, see $logs/build.log"
  fi
  local file
  for file in "$BIN/weft" "$LIB/libweft.so" "$LIB/weft-probe" "$LIB/weft-train" "$LIB/conformance"; do
    [[ -x $file ]] || refuse "$file is missing and cannot be built here: bring bin/ from a machine with Go and a C compiler"
  done
}

# number KEY FILE: a member of a JSON object in a file, 0 if it is not there.
number() { local v; v=$(sed -n "s/.*\"$1\": \(-\{0,1\}[0-9.]*\).*/\1/p" "$2" 2>/dev/null | tail -1); echo "${v:-0}"; }

# calc EXPRESSION: its value to three digits.
calc() { awk "BEGIN { printf \"%.3f\", $1 }"; }

# row NAME RESULT UNIT OPERATOR LIMIT: prints a line of the table. Without a limit it only reports.
row() {
  local verdict=-
  if [[ -n ${5:-} ]]; then
    verdict=ok
    awk "BEGIN { exit !($2 $4 $5) }" || { verdict='FAILED'; failed=1; }
  fi
  printf '%-34s %14s %-5s %10s  %s\n' "$1" "$2" "$3" "${5:+$4 $5}" "$verdict"
}

start_agent() {
  "$BIN/weft" agent --local --dir "$socket" >>"$logs/agent.log" 2>&1 &
  agent=$!
  disown "$agent" # so that nobody comments on its end
  local i
  for ((i = 0; i < 100; i++)); do
    [[ -n $(find "$socket" -type s 2>/dev/null) ]] && return
    kill -0 "$agent" 2>/dev/null || refuse "the agent ended, see $logs/agent.log"
    sleep 0.1
  done
  refuse "the agent made no socket in 10 s, see $logs/agent.log"
}

# managed NAME CLASS COMMAND...: runs a job under weft; its stdout is in NAME.json.
managed() {
  local name=$1 class=$2
  shift 2
  timeout 60 "$BIN/weft" exec --socket "$socket" --name "$name" --class "$class" --reserved 2GiB -- "$@" \
    >"$logs/$name.json" 2>"$logs/$name.log"
}

# alone NAME COMMAND...: the same without weft.
alone() {
  local name=$1
  shift
  timeout 60 "$@" >"$logs/$name.json" 2>"$logs/$name.log"
}

conform() { # NAME COMMAND...: counts what failed
  local name=$1
  shift
  timeout 180 "$@" >"$logs/$name.tap" 2>"$logs/$name.log" || true
  local all bad
  all=$(sed -n 's/^1\.\.//p' "$logs/$name.tap")
  bad=$(grep -c '^not ok' "$logs/$name.tap" || true)
  local done_
  done_=$(grep -cE '^(not )?ok' "$logs/$name.tap" || true)
  row "$name: not ok of ${all:-0}" "$((bad + ${all:-1} - done_))" - '<=' 0
  grep '^not ok' "$logs/$name.tap" | sed 's/^/  /' || true
}

# A job of 20 ms iterations that leaves a quarter of them idle, one that never pauses, and one that wakes up now and then.
high=("$LIB/weft-probe" load --kernels 75 --kernel-us 200 --gap-ms 5 --seconds "$SECONDS_EACH")
low=("$LIB/weft-probe" stream --kernel-us 200 --seconds "$SECONDS_EACH")
ping=("$LIB/weft-probe" ping --gap-ms 20 --kernel-us 100 --seconds "$SECONDS_EACH")

launch_cost() {
  local threads
  for threads in 1 4; do
    alone "launch-alone-$threads" "$LIB/weft-probe" launch-cost --threads "$threads" || true
    managed "launch-weft-$threads" guaranteed "$LIB/weft-probe" launch-cost --threads "$threads" || true
    local before after
    before=$(number launch_min_ns "$logs/launch-alone-$threads.json")
    after=$(number launch_min_ns "$logs/launch-weft-$threads.json")
    row "launch, $threads thread(s), alone" "$before" ns '>' 0
    row "launch, $threads thread(s), added by weft" "$(calc "$after - $before")" ns '<=' 60
  done
}

stream_cost() {
  alone stream-alone "$LIB/weft-probe" stream --kernel-us 10 --seconds 3 || true
  managed stream-weft guaranteed "$LIB/weft-probe" stream --kernel-us 10 --seconds 3 || true
  row 'stream of 10 us kernels, lost' \
    "$(calc "100 * (1 - $(number kernels_per_s "$logs/stream-weft.json") / ($(number kernels_per_s "$logs/stream-alone.json") + 1e-9))")" % '<=' 1
}

# pair SUFFIX RUN_HIGH RUN_LOW: both at once, and what they keep of their rates alone.
pair() {
  local suffix=$1 loss_limit=${2:-} rate_limit=${3:-}
  row "$suffix: high loses" "$(calc "100 * (1 - $(number rate_per_s "$logs/high-$suffix.json") / ($(number rate_per_s "$logs/high-alone.json") + 1e-9))")" \
    % '<=' "$loss_limit"
  row "$suffix: low keeps" "$(calc "100 * $(number kernels_per_s "$logs/low-$suffix.json") / ($(number kernels_per_s "$logs/low-alone.json") + 1e-9)")" \
    % '>=' "$rate_limit"
}

sharing() {
  alone high-alone "${high[@]}" || true
  alone low-alone "${low[@]}" || true
  row 'high alone' "$(number rate_per_s "$logs/high-alone.json")" /s '>' 0
  row 'low alone' "$(number kernels_per_s "$logs/low-alone.json")" /s '>' 0
  alone low-unmanaged "${low[@]}" &
  local other=$!
  alone high-unmanaged "${high[@]}" || true
  wait "$other" || true
  pair unmanaged
  managed low-weft besteffort "${low[@]}" &
  other=$!
  managed high-weft guaranteed "${high[@]}" || true
  wait "$other" || true
  pair weft 5 15
}

graphs() {
  alone graph-alone "${high[@]}" --graph || true
  managed graph-weft guaranteed "${high[@]}" --graph || true
  row 'graph replay, lost' "$(calc "100 * (1 - $(number rate_per_s "$logs/graph-weft.json") / ($(number rate_per_s "$logs/graph-alone.json") + 1e-9))")" \
    % '<=' 2
}

preemption() {
  managed low-ping besteffort "${low[@]}" &
  local other=$!
  sleep 1
  managed ping guaranteed "${ping[@]}" --seconds 4 || true
  wait "$other" || true
  row 'high wakes beside low, p99' "$(calc "$(number launch_p99_us "$logs/ping.json") / 1000")" ms '<=' 2
}

# The low job holds the token almost always; it is killed as a whole while the high one goes on.
kill_holder() {
  managed ping-killed guaranteed "${ping[@]}" --seconds 4 &
  local pinger=$!
  setsid "$BIN/weft" exec --socket "$socket" --name victim --class besteffort --reserved 1GiB -- \
    "$LIB/weft-probe" stream --kernel-us 200 --seconds 30 >/dev/null 2>"$logs/victim.log" &
  local victim=$!
  sleep 2
  { kill -9 -- "-$victim" && wait "$victim"; } 2>/dev/null || true
  wait "$pinger" || true
  row 'holder killed: longest wait' "$(calc "$(number launch_max_us "$logs/ping-killed.json") / 1000")" ms '<=' 100
}

# The agent is killed and started again while a job runs: it must neither end nor stand still.
kill_agent() {
  managed orphan guaranteed "${high[@]}" &
  local orphan=$! code=0
  sleep 2
  kill -9 "$agent"
  sleep 1
  start_agent
  wait "$orphan" || code=$?
  row 'agent killed: exit of the job' "$code" - '==' 0
  row 'agent killed: longest iteration' "$(number iteration_max_ms "$logs/orphan.json")" ms '<=' 1000
}

has_driver || refuse "no GPU here: the CUDA driver, libcuda.so.1, is not installed"
build
"$LIB/weft-probe" memory --most 1MiB --piece 1MiB >"$logs/gpu.json" 2>"$logs/gpu.log" || refuse "no usable GPU here: $(tail -1 "$logs/gpu.log")"
trap finish EXIT
echo "$(calc "$(number total_bytes "$logs/gpu.json") / 2^30") GiB GPU${WEFT_EMU_SOCKET:+ (emulated)}, $(nproc) CPUs, $(date -u +%FT%TZ)"
printf '%-34s %14s %-5s %10s\n' CHECK RESULT '' LIMIT
conform conformance "$LIB/conformance"
start_agent
conform conformance-weft "$BIN/weft" exec --socket "$socket" --name conformance --reserved "$LIMIT" -- \
  "$LIB/conformance" --expect-limit "$LIMIT"
launch_cost
stream_cost
sharing
graphs
preemption
kill_holder
kill_agent
row 'seconds in all' "$((SECONDS - began))" s '<=' 720
exit "$failed"
