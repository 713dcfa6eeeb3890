#!/usr/bin/env bash
# Installs what Godwit needs to be built and tested on Debian and Ubuntu. Does nothing where everything is there.
#
#   scripts/install.sh build    what `make demo` needs: a C compiler; Rust must be there, it is checked and not installed
#   scripts/install.sh test     also what the tests compare with: scapy, tshark, PoCL, oclgrind, clang, DPDK
set -euo pipefail

need=(gcc libc6-dev)
if [ "${1:-build}" = test ]; then
    # PoCL is the OpenCL device of machines without a GPU; oclgrind is one that finds faults in kernels. DPDK is measured against by benches, and linked only by the feature `dpdk`, whose tests need it.
    need+=(pocl-opencl-icd oclgrind ocl-icd-libopencl1 tshark python3-scapy python3-cryptography python3-venv clang libclang-rt-dev clang-format g++ pkg-config dpdk-dev libdpdk-dev xz-utils)
    # Topologies in network namespaces: who makes them, and who speaks in them. clang makes the XDP program once more, to compare.
    need+=(iproute2 ethtool frr iputils-ping iperf3 curl tcpreplay bpftool clang llvm)
    # The other end of a tunnel: IKE, and ESP in userland.
    need+=(strongswan-charon libcharon-extra-plugins libstrongswan-standard-plugins libstrongswan-extra-plugins strongswan-swanctl)
    # Measured against too; on PCs only.
    [ "$(uname -m)" != x86_64 ] || need+=(libipsec-mb-dev)
fi

if ! command -v cargo >/dev/null; then
    echo "install: Rust is not here: install the stable toolchain with rustup (https://rustup.rs), then try again" >&2
    exit 1
fi
for component in rustfmt clippy; do
    if [ "${1:-build}" = test ] && ! cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1; then
        echo "install: rustup component add $component"
        rustup component add "$component"
    fi
done

missing=()
for package in "${need[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "install: this is no Debian or Ubuntu: please install what they call ${missing[*]}" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
available=()
for package in "${missing[@]}"; do
    # Debian 13 has no oclgrind; the tests say then what they skip.
    if [ "$package" = oclgrind ] && ! apt-cache show oclgrind >/dev/null 2>&1; then
        echo "install: there is no package oclgrind for this release: kernels are not run under it"
        continue
    fi
    available+=("$package")
done
if [ ${#available[@]} -gt 0 ]; then
    echo "install: apt-get install ${available[*]}"
    "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${available[@]}"
fi
