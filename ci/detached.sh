#!/usr/bin/env bash
# The tests with threads, on a build in which a reference to a Python object that goes on a detached thread ends the
# process (PyO3's own switch). PyO3 would keep such references behind a lock, which a forked child may find locked.
#
#   ci/detached.sh [DIRECTORY]  the virtual environment is made anew in DIRECTORY (default: .venv-detached)
#
#   FRAMES2PY_PYTHON            the interpreter (default: python3)
source "$(dirname "$0")/lib.sh"

directory=${1:-.venv-detached}
"${FRAMES2PY_PYTHON:-python3}" -m venv --clear "$directory"
bin=$(venv_bin "$directory")
RUSTFLAGS="--cfg pyo3_disable_reference_pool" CARGO_TARGET_DIR=target/detached "$bin/python" -m pip install --quiet '.[test]'
"$bin/python" -m pytest -p no:cacheprovider tests/play tests/threads
