#!/bin/sh
# Prints nanoseconds per lookup of the plain loops, of gopt's output with GROUP interleaved lookups,
# and of GOPT_GROUP=auto, with the ratios. CPU time, the best of REPETITIONS, in one run.
# Usage: GOPT=path/to/gopt measure.sh [FILE.c ...]
set -eu
cd "$(dirname "$0")"
gopt=${GOPT:-gopt} compiler=${CC:-cc} group=${GROUP:-32}
entries=${ENTRIES:-4000000} queries=${QUERIES:-500000} repetitions=${REPETITIONS:-3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
[ $# -gt 0 ] || set -- *.c
echo "| lookup | plain, ns | $group interleaved, ns | ratio | auto, ns | ratio |"
echo "|---|---|---|---|---|---|"
for file in "$@"; do
    "$gopt" --auto "$file" -o "$folder/made.c" 2> "$folder/notes" || { cat "$folder/notes"; continue; }
    "$compiler" -std=gnu11 -O2 -march=native -w -I. "$folder/made.c" -o "$folder/group"
    "$compiler" -std=gnu11 -O2 -march=native -w -I. -DGOPT_GROUP=auto "$folder/made.c" -o "$folder/auto"
    for form in group auto; do
        "$folder/$form" "$group" "$entries" "$queries" "$repetitions" > "$folder/$form.txt"
    done
    paste -d ' ' "$folder/group.txt" "$folder/auto.txt" | awk '{
        if ($2 != $6) { print $1 ": the digests differ"; exit 1 }
        auto = $7 < $8 ? $7 : $8
        printf "| %s | %s | %s | %.2f | %s | %.2f |\n", $1, $3, $4, $3 / $4, auto, $3 / auto
    }'
done
