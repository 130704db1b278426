#!/usr/bin/env bash
# Runs the README's commands as a newcomer would: in a fresh checkout, without a virtual environment.
source "$(dirname "$0")/lib.sh"

if [ -e .venv ]; then
    echo "ci/readme.sh wants a checkout without .venv, as a newcomer has it" >&2
    exit 1
fi
# shellcheck disable=SC2016 # the backticks are Markdown's
mapfile -t commands < <(sed -n '/^```bash$/,/^```$/{/^```/d;p}' README.md)
if [ "${#commands[@]}" -ne 2 ]; then
    echo "README.md should show two commands, found ${#commands[@]}" >&2
    exit 1
fi
for command in "${commands[@]}"; do
    say "$command"
    bash -euc "$command" </dev/null
done
