#!/usr/bin/env bash
# The PyTorch hand-off (docs/pytorch.md), tested in virtual environments of its own.
#
#   ci/torch.sh [DIRECTORY]            default: .venv-torch; the environments are made inside it, anew
#
#   FRAMES2PY_PYTHON                   the interpreter (default: python3)
#   FRAMES2PY_PYTHON_FT                a free-threaded one to run as well (default: python3.14t, where found)
#   TORCH_REQUIREMENT                  what pip is asked for (default: torch==2.14.1)
#
# pip's own settings (PIP_INDEX_URL and the like) choose where packages come from.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

directory=${1:-.venv-torch}
torch=${TORCH_REQUIREMENT:-torch==2.14.1}
python=${FRAMES2PY_PYTHON:-python3}

free_threaded() {
    "$1" -c 'import sys, sysconfig; sys.exit(not sysconfig.get_config_var("Py_GIL_DISABLED"))'
}

run() {
    local python=$1 environment=$directory/$2
    echo "== $("$python" -VV), $torch"
    "$python" -m venv --clear "$environment"
    local bin=$environment/bin
    [[ -d $bin ]] || bin=$environment/Scripts
    "$bin/python" -m pip install --quiet "$torch" '.[test]'
    # pytest itself checks, on a free-threaded build, that the GIL is off before and after the suite.
    "$bin/python" -m pytest tests/interop tests/contract/test_no_torch.py
}

run "$python" default

if free_threaded "$python"; then
    exit 0 # that was the free-threaded run
fi
if [[ -n ${FRAMES2PY_PYTHON_FT:-} ]]; then
    run "$FRAMES2PY_PYTHON_FT" free-threaded # named, so it must work
elif command -v python3.14t > /dev/null; then
    run python3.14t free-threaded
else
    echo "no free-threaded Python found (python3.14t, or FRAMES2PY_PYTHON_FT): that run is left out"
fi
