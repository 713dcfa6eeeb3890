#!/usr/bin/env bash
# Instructions of a look-up in each form of the bench `gopt`, counted by callgrind (package valgrind), where a machine shows
# no hardware counters: the half of G-Opt's figure 9 that can be had without them.
#
#   scripts/instructions.sh [GROUP]    look-ups under way together, 16 unless given; needs target/release/godwit
set -euo pipefail

group=${1:-16}
godwit=${CARGO_TARGET_DIR:-target}/release/godwit
queries=2048
if ! command -v valgrind >/dev/null; then
    echo "instructions: valgrind is not installed (package valgrind)" >&2
    exit 1
fi
if [ ! -x "$godwit" ]; then
    echo "instructions: $godwit is not there: cargo build --release --package godwit" >&2
    exit 1
fi

# Instructions in a function and all that it calls. With so little time a form runs twice: once to warm up, once measured.
count() {
    local said
    said=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect="$1" \
        "$godwit" bench gopt --impl "$2" --batch "$group" --packets $queries --seconds 0.001 --no-peers 2>&1 >/dev/null)
    said=$(sed -n 's/^.*Collected : \([0-9]*\).*$/\1/p' <<<"$said")
    awk -v all="$said" -v runs=$((2 * queries)) 'BEGIN { printf "%10.1f", all / runs }'
}

printf '%-14s%10s%10s%10s   instructions a look-up, groups of %s\n' '' plain gopt hand "$group"
for kind in cuckoo chase ipv6; do
    printf '%-14s%s%s%s\n' "$kind" "$(count "${kind}_lookup" plain)" "$(count "${kind}_generated" gopt)" \
        "$(count "${kind}_hand_$group" hand)"
done
