#!/usr/bin/env bash
# Runs all tests and ends with one line that adds up what every test binary said.
# Arguments go to `cargo test`. With GODWIT_CAPTURES=FOLDER all captures below it are replayed too.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A peer that is missing here is a mistake in scripts/install.sh, not a reason to compare with nothing.
export GODWIT_PEERS=${GODWIT_PEERS:-required}
cargo test --locked --workspace --no-fail-fast "$@" 2>&1 | tee "$log"
status=$?
grep '^skipped:' "$log" | sort -u
awk '/^test result: / { passed += $4; failed += $6 } /^skipped: / { skipped++ }
    END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$log"
exit $status
