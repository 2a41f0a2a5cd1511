#!/bin/sh
# Runs pytest with ruff and mypy beside it, and reports both at the end. Fails if either fails.
# usage: run_tests.sh BIN [ARGUMENTS OF PYTEST]   (BIN: the virtual environment's bin folder)
set -u
bin=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
began=$(date +%s)
{
  "$bin/ruff" check . && "$bin/ruff" format --check . && "$bin/mypy"
  status=$?
  echo "static checks: $(($(date +%s) - began)) s"
  exit "$status"
} >"$log" 2>&1 &
checks=$!
"$bin/python" -m pytest "$@"
tests_status=$?
tests_s=$(($(date +%s) - began))
wait "$checks"
checks_status=$?
cat "$log"
echo "tests: $tests_s s (beside the static checks)"
[ "$checks_status" -eq 0 ] || echo "static checks FAILED: see above" >&2
[ "$tests_status" -ne 0 ] && exit "$tests_status"
exit "$checks_status"
