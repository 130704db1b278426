#!/usr/bin/env bash
# Many threads on one Engine, and arrays that change while they are ingested, for longer than the test suite does:
#
#   ci/stress.sh [FACTOR]     so many times as long (default: 100)
source "$(dirname "$0")/lib.sh"

venv=target/stress
"${FRAMES2PY_PYTHON:-python3}" -m venv --clear "$venv"
bin=$(venv_bin "$venv")
"$bin/python" -m pip install --quiet --disable-pip-version-check '.[test]'
say "stress"
FRAMES2PY_STRESS=${1:-100} "$bin/python" -m pytest -p no:cacheprovider --timeout=3000 \
    tests/threads/test_stress.py tests/threads/test_processes.py -k "readers_of_all_kinds or writes_the_array"
