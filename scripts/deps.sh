#!/usr/bin/env bash
# The system packages that the tests need: a browser with a font for the HTML report, tmux for what a terminal shows,
# a C compiler with its sanitisers, what looks at libraries and processes, Python, Prometheus. With the argument "cluster" it looks for
# what the node of a real Kubernetes takes instead. It names each one that is missing; as root or with CI=true it installs them, else
# it prints the command that does and stops.
set -euo pipefail

browsers=(chromium chromium-browser google-chrome chrome)

has() { for name; do command -v "$name" >/dev/null && return; done; return 1; }
has_font() { find /usr/share/fonts /usr/local/share/fonts -iname 'DejaVuSans*' 2>/dev/null | grep . >/dev/null; }

has_static_libc() { compiles 'int main(void) { return 0; }' -static; }
compiles() { local source=$1; shift; echo "$source" | cc -x c - "$@" -o /dev/null 2>/dev/null; }
has_sanitisers() { for s in address undefined thread; do compiles 'int main(void) { return 0; }' "-fsanitize=$s" || return 1; done; }
has_python() { python3 -c 'import ctypes, sys, unittest; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; }

has_plugins() {
  local dir
  for dir in /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do [[ -x $dir/bridge && -x $dir/host-local && -x $dir/loopback ]] && return; done
  return 1
}

missing=()
need() { missing+=("$1"); echo "missing: $1, for $2"; }
look_for_cluster() {
  has runc || need runc "running the containers of a real Kubernetes"
  has ip || need iproute2 "the interfaces of that cluster"
  has_plugins || need containernetworking-plugins "the network of its Pods"
}
look_for_tests() {
  has "${browsers[@]}" || need chromium "looking at the HTML report in a browser"
  has_font || need fonts-dejavu-core "the text in that browser"
  has tmux || need tmux "what a terminal shows"
  { has make && has cc && has_static_libc && has_sanitisers; } || need build-essential "the C parts, their sanitised tests, the race detector"
  { has objdump && has readelf && has nm; } || need binutils "which symbols a library wants and has"
  has_python || need python3 "the tests of hooks and of the Python package (3.9 or newer)"
  { has pgrep && has pkill; } || need procps "finding the processes that a test started"
  { has prometheus && has promtool; } || need prometheus "scraping what weft measures, with the alerts and the dashboard"
  has setpriv || need util-linux "programs of another user"
}
case ${1:-tests} in
  tests) look_for_tests ;;
  cluster) look_for_cluster ;;
  *) echo "usage: scripts/deps.sh [tests|cluster]" >&2; exit 2 ;;
esac
[[ ${#missing[@]} -gt 0 ]] || exit 0

sudo=()
[[ $(id -u) -eq 0 ]] || sudo=(sudo -n)
command="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
if ! has apt-get; then
  echo "Install what this system calls: ${missing[*]}. Then run this again." >&2
  exit 1
fi
if [[ $(id -u) -ne 0 ]] && { [[ ${CI:-} != true ]] || ! has sudo; }; then
  echo "Run this as root, then try again:  $command" >&2
  exit 1
fi

apt() {
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@" \
    </dev/null
}
for try in 1 2 3; do
  if apt update && apt install -y --no-install-recommends "${missing[@]}"; then
    exit 0
  fi
  echo "try $try did not succeed" >&2
  sleep $((10 * try))
done
echo "Could not install: ${missing[*]}. Run this as root:  $command" >&2
exit 1
