#!/usr/bin/env bash
# Makes crates/io/src/af_xdp/filter.bpf.o of filter.bpf.c with clang 14, as Debian 12 has it: every other version may choose other instructions.
#
#   scripts/bpf.sh [FILE]    into FILE, in the place of the one in the repository
set -euo pipefail
cd "$(dirname "$0")/../crates/io/src/af_xdp"
to=${1:-filter.bpf.o}
clang -target bpf -mcpu=v2 -O2 -g -Wall -Wextra -Wno-pointer-to-int-cast -fno-ident -c filter.bpf.c -o "$to" -fdebug-prefix-map="$PWD"=.
# The kernel wants BTF, which says what maps hold, and no DWARF.
llvm-strip -g "$to"
