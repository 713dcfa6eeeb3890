#!/usr/bin/env bash
# Counts the instructions of a lookup in each form of the benchmark `gopt`, with callgrind (package
# valgrind). Needs no hardware counters. This gives the instruction counts of G-Opt's figure 9.
#
#   scripts/instructions.sh [GROUP]    GROUP: interleaved lookups, 16 by default. Needs
#                                      target/release/godwit.
set -euo pipefail

group=${1:-16}
godwit=${CARGO_TARGET_DIR:-target}/release/godwit
queries=2048
if ! command -v valgrind >/dev/null; then
    echo "instructions: valgrind is not installed: install the package valgrind" >&2
    exit 1
fi
if [ ! -x "$godwit" ]; then
    echo "instructions: $godwit does not exist: run cargo build --release --package godwit" >&2
    exit 1
fi

# Prints the instructions per lookup of function $1 and its callees, in form $2. With this short
# measuring time a form runs exactly twice: one warm-up run and one measured run.
count() {
    local output
    output=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect="$1" \
        "$godwit" bench gopt --impl "$2" --batch "$group" --packets $queries --seconds 0.001 --no-peers 2>&1 >/dev/null)
    output=$(sed -n 's/^.*Collected : \([0-9]*\).*$/\1/p' <<<"$output")
    awk -v all="$output" -v runs=$((2 * queries)) 'BEGIN { printf "%10.1f", all / runs }'
}

printf '%-14s%10s%10s%10s   instructions per lookup, groups of %s\n' '' plain gopt hand "$group"
for kind in cuckoo chase ipv6; do
    printf '%-14s%s%s%s\n' "$kind" "$(count "${kind}_lookup" plain)" "$(count "${kind}_generated" gopt)" \
        "$(count "${kind}_hand_$group" hand)"
done
