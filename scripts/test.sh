#!/usr/bin/env bash
# Runs all tests. The last line of the output is the sum of the results of all test binaries.
# Arguments are passed to `cargo test`. With GODWIT_CAPTURES=FOLDER, the tests also replay all
# captures below FOLDER.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A missing peer is a test failure here, because scripts/install.sh installs every peer.
export GODWIT_PEERS=${GODWIT_PEERS:-required}
cargo test --locked --workspace --no-fail-fast "$@" 2>&1 | tee "$log"
status=$?
# Optional features: run the tests of the features in the crates that they change.
cargo test --locked --no-fail-fast -p godwit-io -p godwit-engine -p godwit --features dpdk --test dpdk 2>&1 | tee -a "$log"
[ $? -eq 0 ] || status=1
grep -a '^skipped:' "$log" | sort -u
awk '/^test result: / { passed += $4; failed += $6 } /^skipped: / { skipped++ }
    END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$log"
exit $status
