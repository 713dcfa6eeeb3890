#!/usr/bin/env bash
# Builds DPDK's example ipsec-secgw into target/secgw, for the interoperability tests. Debian's
# binary packages do not contain it, but the source package does. apt fetches the source of the
# installed libdpdk version and checks its signatures. The system's apt lists and settings stay
# unchanged.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(dpkg-query -W -f '${Version}' libdpdk-dev)
folder=target/secgw
program=$folder/ipsec-secgw
done=$folder/$version
[ -e "$done" ] && exit 0

# Repository of the installed version. Format of a line of apt-cache madison:
# "libdpdk-dev | VERSION | URI SUITE/COMPONENT ARCHITECTURE Packages".
read -r uri suite < <(apt-cache madison libdpdk-dev | awk -F ' *[|] *' -v version="$version" '$2 == version { split($3, at, " "); print at[1], at[2]; exit }') || true
if [ -z "${suite:-}" ]; then
    echo "secgw: no apt repository contains libdpdk-dev $version, so its source cannot be fetched: run apt-get update or upgrade libdpdk-dev" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# apt downloads as the user _apt if possible, and this user must be able to enter the folder.
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/source"
echo "deb-src $uri ${suite%%/*} ${suite#*/}" >"$work/sources.list"
private=(-o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$work/lists"
    -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=)
if ! { apt-get -qq "${private[@]}" update && cd "$work/source" && apt-get -qq "${private[@]}" source --download-only "dpdk=$version"; } >"$work/log" 2>&1; then
    echo "secgw: apt could not fetch the source of dpdk $version: $(tail -n 1 "$work/log")" >&2
    exit 1
fi
cd "$OLDPWD"
tar -xf "$work"/source/dpdk_*.orig.tar.* -C "$work/source" --strip-components 1 --wildcards '*/examples/ipsec-secgw/*' '*/examples/common/*'
# The only change to the source: ipsec-secgw requests checksum offload, which pcap ports do not
# have.
gateway=$work/source/examples/ipsec-secgw/ipsec-secgw.c
grep -q '\.offloads = RTE_ETH_RX_OFFLOAD_CHECKSUM,' "$gateway" || { echo "secgw: ipsec-secgw.c of dpdk $version does not contain the expected offload line" >&2 && exit 1; }
sed -i 's/\.offloads = RTE_ETH_RX_OFFLOAD_CHECKSUM,/.offloads = 0,/' "$gateway"
mkdir -p "$folder"
# Compile as the Makefile of ipsec-secgw does, but with machine-specific instructions only if DPDK's
# pkg-config flags request them.
${CC:-cc} -O2 -w -DALLOW_EXPERIMENTAL_API -I "$work/source/examples/common" $(pkg-config --cflags libdpdk) \
    "$work"/source/examples/ipsec-secgw/*.c -o "$program" $(pkg-config --libs libdpdk)
touch "$done"
echo "secgw: ipsec-secgw of dpdk $version is in $folder"
