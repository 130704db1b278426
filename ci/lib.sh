# Shared by the scripts in this folder; sourced, not run.
# shellcheck shell=bash

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n==> %s\n' "$*"; }

# A path inside a virtual environment, whatever the platform calls it.
venv_bin() {
    if [ -d "$1/Scripts" ]; then echo "$1/Scripts"; else echo "$1/bin"; fi
}

# The free-threaded interpreter to test with, or nothing.
free_threaded_python() {
    if [ -n "${FRAMES2PY_PYTHON_FT:-}" ]; then
        echo "$FRAMES2PY_PYTHON_FT"
    else
        command -v python3.14t || true
    fi
}
