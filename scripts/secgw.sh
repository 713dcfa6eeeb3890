#!/usr/bin/env bash
# Builds DPDK's example ipsec-secgw for the interoperability tests, into target/secgw. Debian's packages do not hold it,
# their source does: apt fetches the source of the very libdpdk that is installed, and checks its signatures. Nothing of
# apt's own lists and settings is changed.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(dpkg-query -W -f '${Version}' libdpdk-dev)
folder=target/secgw
program=$folder/ipsec-secgw
done=$folder/$version
[ -e "$done" ] && exit 0

# Where that version of the package is from: "libdpdk-dev | VERSION | URI SUITE/COMPONENT ARCHITECTURE Packages".
read -r uri suite < <(apt-cache madison libdpdk-dev | awk -F ' *[|] *' -v version="$version" '$2 == version { split($3, at, " "); print at[1], at[2]; exit }') || true
if [ -z "${suite:-}" ]; then
    echo "secgw: no package source of apt has libdpdk-dev $version: its source cannot be had" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# apt fetches as a user of its own, where it may.
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/source"
echo "deb-src $uri ${suite%%/*} ${suite#*/}" >"$work/sources.list"
private=(-o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$work/lists"
    -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=)
if ! { apt-get -qq "${private[@]}" update && cd "$work/source" && apt-get -qq "${private[@]}" source --download-only "dpdk=$version"; } >"$work/log" 2>&1; then
    echo "secgw: the source of dpdk $version cannot be had: $(tail -n 1 "$work/log")" >&2
    exit 1
fi
cd "$OLDPWD"
tar -xf "$work"/source/dpdk_*.orig.tar.* -C "$work/source" --strip-components 1 --wildcards '*/examples/ipsec-secgw/*' '*/examples/common/*'
# It asks its ports to check checksums, which captures cannot: the one line that is changed.
gateway=$work/source/examples/ipsec-secgw/ipsec-secgw.c
grep -q '\.offloads = RTE_ETH_RX_OFFLOAD_CHECKSUM,' "$gateway" || { echo "secgw: ipsec-secgw.c of dpdk $version is not as expected" >&2 && exit 1; }
sed -i 's/\.offloads = RTE_ETH_RX_OFFLOAD_CHECKSUM,/.offloads = 0,/' "$gateway"
mkdir -p "$folder"
# As its Makefile does, but for this machine's instructions alone where DPDK asks for them.
${CC:-cc} -O2 -w -DALLOW_EXPERIMENTAL_API -I "$work/source/examples/common" $(pkg-config --cflags libdpdk) \
    "$work"/source/examples/ipsec-secgw/*.c -o "$program" $(pkg-config --libs libdpdk)
touch "$done"
echo "secgw: ipsec-secgw of dpdk $version is in $folder"
