#!/usr/bin/env bash
# Compiles crates/io/src/af_xdp/filter.bpf.c to filter.bpf.o, which the repository contains. Use
# clang 14, the version of Debian 12: other versions may choose other instructions.
#
#   scripts/bpf.sh [FILE]    writes FILE instead of the object in the repository
set -euo pipefail
cd "$(dirname "$0")/../crates/io/src/af_xdp"
output=${1:-filter.bpf.o}
clang -target bpf -mcpu=v2 -O2 -g -Wall -Wextra -Wno-pointer-to-int-cast -fno-ident -c filter.bpf.c -o "$output" -fdebug-prefix-map="$PWD"=.
# Remove DWARF and keep BTF, which describes the types of maps to the kernel.
llvm-strip -g "$output"
