#!/usr/bin/env bash
# Comparisons with other packages (tests/peers), in a virtual environment of its own.
#
#   ci/peers.sh [DIRECTORY]     the environment is made anew in DIRECTORY (default: .venv-peers)
#
#   FRAMES2PY_PYTHON            the interpreter (default: python3)
#
# Where packages come from is up to pip's own settings, such as PIP_INDEX_URL.
source "$(dirname "$0")/lib.sh"

directory=${1:-.venv-peers}
"${FRAMES2PY_PYTHON:-python3}" -m venv --clear "$directory"
bin=$(venv_bin "$directory")
"$bin/python" -m pip install --quiet '.[test]'
grep -v '^#' ci/peers-requirements.txt | while read -r package; do
    "$bin/python" -m pip install --quiet "$package" || say "$package does not install: its tests are skipped"
done
"$bin/python" -m pytest -rs tests/peers
