#!/usr/bin/env bash
# Counts instructions of fixed workloads and compares them with ci/instructions.tsv (see ci/instructions.py).
#
#   ci/instructions.sh              fails if a count rose by more than 5 %
#   ci/instructions.sh --record     writes ci/instructions.tsv anew
source "$(dirname "$0")/lib.sh"

say "instructions"
if [ "$(uname -s)" != Linux ]; then
    echo "instructions are counted on Linux only: not checked here"
    exit
fi
if ! command -v valgrind >/dev/null; then
    echo "valgrind is needed and not installed (Debian and Ubuntu: apt-get install valgrind)" >&2
    exit 1
fi
"${FRAMES2PY_PYTHON:-python3}" ci/instructions.py "$@"
