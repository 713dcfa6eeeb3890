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
# Features that only add: the crates that they change, with their own tests.
cargo test --locked --no-fail-fast -p godwit-io -p godwit-engine -p godwit --features dpdk --test dpdk 2>&1 | tee -a "$log"
[ $? -eq 0 ] || status=1
grep -a '^skipped:' "$log" | sort -u
awk '/^test result: / { passed += $4; failed += $6 } /^skipped: / { skipped++ }
    END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$log"
exit $status
