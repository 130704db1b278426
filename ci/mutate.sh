#!/usr/bin/env bash
# Breaks the publication protocol in one place at a time; some model of ci/proof.sh must notice, or a test of the crate
# where no model goes. Takes about ten minutes. Prints the table of docs/protocol.md.
source "$(dirname "$0")/lib.sh"

"${FRAMES2PY_PYTHON:-python3}" ci/mutate_publish.py "$@"
