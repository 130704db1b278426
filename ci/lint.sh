#!/usr/bin/env bash
# Style and types of the Python side. Takes an interpreter (default: python3).
source "$(dirname "$0")/lib.sh"

venv=target/venv-lint
"${1:-python3}" -m venv --clear "$venv"
bin=$(venv_bin "$venv")
say "install the package and the linters"
"$bin/python" -m pip install --quiet '.[test,lint]'
say "ruff"
"$bin/ruff" check
"$bin/ruff" format --check
say "mypy --strict"
"$bin/mypy"
say "mypy.stubtest"
"$bin/python" -m mypy.stubtest --mypy-config-file pyproject.toml frames2py
say "notices of third parties"
"$bin/python" ci/third_party.py --check
say "shellcheck"
"$bin/shellcheck" --external-sources --source-path=SCRIPTDIR .ci/run ci/*.sh
