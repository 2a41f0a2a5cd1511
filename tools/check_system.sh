#!/bin/sh
# Checks that this machine has what the build needs; says what to install where something is
# missing.
# usage: check_system.sh PYTHON   (prints nothing and exits 0 when all is there)
set -u
python=$1
missing=""
need() { missing="$missing $1"; }

if ! command -v "$python" >/dev/null 2>&1; then
  echo "headrace: '$python' is not there." >&2
  need "python3 python3-dev python3-venv"
elif ! "$python" --version >/dev/null 2>&1; then
  echo "headrace: '$python' is on PATH and does not run; name one that does:" \
    "make PYTHON=python3.12 ..." >&2
  exit 1
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "headrace: $("$python" --version) is too old; 3.11 or later is needed." >&2
  echo "          Name a newer one: make PYTHON=python3.12 ..." >&2
  exit 1
else
  version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
  "$python" -c 'import venv, ensurepip' 2>/dev/null || need "$version-venv"
  "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' ||
    need "$version-dev"
fi

compiler=${CXX:-c++}
if ! echo 'int main() { return 0; }' | $compiler -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then
  echo "headrace: no C++20 compiler ('$compiler' does not compile)." >&2
  need "g++"
fi
command -v make >/dev/null 2>&1 || need "make"

if [ -n "$missing" ]; then
  echo "headrace: install what is missing, then run make again:" >&2
  echo "    sudo apt-get install -y$missing" >&2
  exit 1
fi
