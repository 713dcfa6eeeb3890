#!/usr/bin/env bash
# Runs each fuzz target for SECONDS (default 60), or the targets that are named. Prints one row per
# target for the table in fuzz/README.md. Needs cargo-fuzz and a nightly toolchain.
#
#   scripts/fuzz.sh [--seconds N] [TARGET...]
set -uo pipefail
cd "$(dirname "$0")/.."

seconds=60
if [ "${1:-}" = --seconds ]; then seconds=$2; shift 2; fi
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
	echo 'fuzz: cargo-fuzz or the nightly toolchain is missing: `rustup toolchain install nightly && cargo install cargo-fuzz`' >&2
	exit 2
fi
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cargo +nightly fuzz list)

# Only clang compiles the kernels with coverage counters for libFuzzer.
if [ -z "${CC:-}" ] && command -v clang >/dev/null; then export CC=clang; fi

failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for target in "${targets[@]}"; do
	# New inputs go to the first folder. A run does not change the committed corpus.
	found=target/fuzz-corpus/$target
	mkdir -p "$found"
	seeds=fuzz/corpus/$target
	[ "$target" = config_parse ] && seeds=tests/bad-config
	cargo +nightly fuzz run "$target" "$found" $([ -d "$seeds" ] && echo "$seeds") -- \
		-max_total_time="$seconds" -max_len=4096 -print_final_stats=1 >"$log" 2>&1
	if [ $? -eq 0 ]; then result='nothing found'; else result='**failed**'; failed=1; tail -40 "$log" >&2; fi
	runs=$(awk '/^stat::number_of_executed_units:/ { print $2 }' "$log")
	edges=$(awk '{ for (i = 1; i < NF; i++) if ($i == "cov:") n = $(i + 1) } END { print n }' "$log")
	printf '| %s | %s | %s s | %s executions, %s edges | %s |\n' \
		"$(date +%F)" "$target" "$seconds" "${runs:-no}" "${edges:-no}" "$result"
done
exit $failed
