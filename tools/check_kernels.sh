#!/usr/bin/env bash
# Builds the native test program and runs it at every level of this machine, then cross-compiles it
# for aarch64 and runs it under qemu-user, where the packages are there (or can be installed: root
# and apt-get). What cannot run is said loudly.
# usage: tools/check_kernels.sh [BUILD_FOLDER]   (default: build/native-tests)
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/native-tests}
python=$(command -v python3)

skipped() {
  echo "SKIPPED: $*" >&2
  exit 0
}
# Commands, then what Debian calls their packages; false where they are not there in the end.
have() {
  local commands=$1 packages=$2 each
  there() { for each in $commands; do command -v "$each" >/dev/null || return 1; done; }
  if ! there && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq &&
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        $packages >/dev/null || true
  fi
  there
}

have cmake cmake || skipped "the native tests did NOT run; they need cmake"

build() { # folder, further arguments of cmake
  cmake -S . -B "$1" -DHEADRACE_PYTHON_MODULE=OFF -DHEADRACE_NATIVE_TESTS=ON "${@:2}" >/dev/null
  cmake --build "$1" --parallel "$(nproc)" >/dev/null
}

build "$folder/host"
# These tests take one core: what aarch64 needs is fetched and compiled beside them.
log=$folder/host/tests.log
"$folder/host/native/tests/headrace_native_tests" >"$log" 2>&1 &
host=$!
end_host() { wait "$host" || { cat "$log"; exit 1; }; cat "$log"; }
"$python" tools/check_level_objects.py "$folder/host"

have "aarch64-linux-gnu-g++ qemu-aarch64" "g++-aarch64-linux-gnu qemu-user" || {
  end_host
  skipped "the aarch64 kernels were NOT tested; they need g++-aarch64-linux-gnu and qemu-user"
}
build "$folder/aarch64" \
  -DCMAKE_TOOLCHAIN_FILE="$PWD/native/cmake/aarch64-linux-gnu.cmake"
end_host
run="qemu-aarch64 -L /usr/aarch64-linux-gnu"
tests=$folder/aarch64/native/tests/headrace_native_tests
# Each level once: `neon` on a processor without the dot product, base ARMv8-A, the others on one
# that has everything.
echo "qemu reports an illegal instruction once for each level: a trial that has to fault" >&2
$run -cpu max "$tests" neon_dotprod portable &
everything=$!
$run -cpu cortex-a53 "$tests" neon
wait "$everything"
"$python" tools/check_level_objects.py "$folder/aarch64" --prefix aarch64-linux-gnu-
