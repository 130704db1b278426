#!/usr/bin/env bash
# The hand-off to PyTorch (docs/pytorch.md), tested in virtual environments of its own.
#
#   ci/torch.sh [DIRECTORY]     the environments are made anew in DIRECTORY (default: .venv-torch)
#
#   FRAMES2PY_PYTHON            the interpreter (default: python3)
#   FRAMES2PY_PYTHON_FT         a free-threaded one to test with as well (default: python3.14t, where found)
#   TORCH_REQUIREMENT           what pip is asked for (default: torch==2.14.1)
#
# Where packages come from is up to pip's own settings, such as PIP_INDEX_URL.
source "$(dirname "$0")/lib.sh"

directory=${1:-.venv-torch}
torch=${TORCH_REQUIREMENT:-torch==2.14.1}
python=${FRAMES2PY_PYTHON:-python3}

is_free_threaded() { # PYTHON
    "$1" -c 'import sys, sysconfig; sys.exit(not sysconfig.get_config_var("Py_GIL_DISABLED"))'
}

test_with() { # PYTHON NAME
    local venv=$directory/$2 bin
    say "$("$1" -VV), $torch"
    "$1" -m venv --clear "$venv"
    bin=$(venv_bin "$venv")
    "$bin/python" -m pip install --quiet "$torch" '.[test]'
    # On a free-threaded build the suite fails if the GIL is on when it ends.
    "$bin/python" -m pytest tests/interop tests/contract/test_no_torch.py \
        'tests/docs/test_docs.py::test_blocks_run_and_print_what_is_shown[pytorch.md]'
}

test_with "$python" default

if is_free_threaded "$python"; then
    exit # that was the free-threaded run
fi
free_threaded=$(free_threaded_python)
if [ -n "$free_threaded" ]; then
    test_with "$free_threaded" free-threaded
else
    say "no free-threaded Python found (FRAMES2PY_PYTHON_FT, or python3.14t on PATH): not tested with one"
fi
