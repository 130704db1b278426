#!/usr/bin/env bash
# Builds a wheel and runs the test suite against it, installed, in virtual environments of its own.
#
#   ci/wheel.sh                 every CPython >= 3.11 to be found, and a free-threaded one
#   ci/wheel.sh PYTHON          this one only
source "$(dirname "$0")/lib.sh"

venv=target/venv-wheel
wheels=target/wheels-test

# Prints the version of an interpreter such as 3.12 or 3.14t, if it can be used.
version_of() {
    "$1" - 2>/dev/null <<'PYTHON'
import platform, sys, sysconfig
if platform.python_implementation() == "CPython" and sys.version_info >= (3, 11):
    suffix = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    print(f"{sys.version_info.major}.{sys.version_info.minor}{suffix}")
PYTHON
}

test_with() { # PYTHON WHEEL
    "$1" -m venv --clear "$venv"
    local bin
    bin=$(venv_bin "$venv")
    "$bin/python" -m pip install --quiet "$2[test]"
    "$bin/python" -m pytest --quiet
}

build_with() { # PYTHON
    rm -rf "$wheels"
    "$1" -m pip wheel --quiet --no-deps --wheel-dir "$wheels" .
    echo "$wheels"/frames2py-*.whl
}

if [ $# -eq 1 ]; then
    say "CPython $(version_of "$1") ($1)"
    test_with "$1" "$(build_with "$1")"
    exit
fi

declare -A found
candidates=(python3.11 python3.12 python3.13 python3.14 python3.15 python3 python)
if command -v pyenv >/dev/null; then
    candidates+=("$(pyenv root)"/versions/*/bin/python)
fi
for candidate in "${candidates[@]}"; do
    path=$(command -v "$candidate") || continue
    version=$(version_of "$path") || continue
    if [ -n "$version" ] && [ -z "${found[$version]:-}" ] && [[ $version != *t ]]; then
        found[$version]=$path
    fi
done
if [ "${#found[@]}" -eq 0 ]; then
    echo "no CPython >= 3.11 found" >&2
    exit 1
fi
mapfile -t versions < <(printf '%s\n' "${!found[@]}" | sort --version-sort)

say "one wheel for all of CPython ${versions[*]}, built with the oldest"
wheel=$(build_with "${found[${versions[0]}]}")
echo "$wheel"
for version in "${versions[@]}"; do
    say "CPython $version (${found[$version]})"
    test_with "${found[$version]}" "$wheel"
done

free_threaded=$(free_threaded_python)
if [ -n "$free_threaded" ]; then
    say "CPython $(version_of "$free_threaded") ($free_threaded)"
    test_with "$free_threaded" "$(build_with "$free_threaded")"
else
    say "no free-threaded CPython found (FRAMES2PY_PYTHON_FT is not set, python3.14t is not on PATH): not tested there"
fi
