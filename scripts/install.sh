#!/usr/bin/env bash
# Installs the packages that Godwit's build and tests need, on Debian and Ubuntu. Installs nothing
# if all are present. Rust must already be installed; the script only checks it.
#
#   scripts/install.sh build    packages of `make demo`: a C compiler
#   scripts/install.sh test     also the programs and libraries of the tests: scapy, tshark, PoCL,
#                               oclgrind, clang, DPDK, FRR, strongSwan, HAProxy, strace
set -euo pipefail

need=(gcc libc6-dev)
if [ "${1:-build}" = test ]; then
    # PoCL is an OpenCL device on the CPU, for machines without a GPU. oclgrind is an OpenCL device
    # that reports invalid memory accesses in kernels. DPDK is a peer of benchmarks. Only the
    # feature `dpdk` links it, and the tests of this feature need it.
    need+=(pocl-opencl-icd oclgrind ocl-icd-libopencl1 tshark prometheus python3-scapy python3-cryptography python3-venv clang libclang-rt-dev clang-format g++ pkg-config dpdk-dev libdpdk-dev xz-utils)
    # Topologies in network namespaces: tools that create them, and routers and traffic inside. A
    # test compiles the XDP program again with clang and compares the result.
    need+=(iproute2 ethtool frr iputils-ping traceroute iperf3 curl tcpreplay bpftool clang llvm)
    # Kills a process at each call that makes a file durable.
    need+=(strace)
    # Remote end of IPsec tunnels: strongSwan with IKE and userland ESP.
    need+=(strongswan-charon libcharon-extra-plugins libstrongswan-standard-plugins libstrongswan-extra-plugins strongswan-swanctl)
    # Shells that check the completion scripts.
    need+=(zsh fish)
    # Peer of the signing engine, and clients of the TLS proxy: TLS and HTTP/2 (h2load).
    need+=(openssl nghttp2-client)
    # Peer of the TLS proxy, and user of the OpenSSL provider.
    need+=(haproxy)
    # Peer of the IPsec benchmarks; x86-64 only.
    [ "$(uname -m)" != x86_64 ] || need+=(libipsec-mb-dev)
fi

if ! command -v cargo >/dev/null; then
    echo "install: cargo is not in PATH: install the stable Rust toolchain with rustup (https://rustup.rs), then try again" >&2
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
    echo "install: apt-get is missing, so this is not Debian or Ubuntu: install the equivalents of these Debian packages: ${missing[*]}" >&2
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
    # Debian 13 does not package oclgrind. The tests then report the kernels that they skip.
    if [ "$package" = oclgrind ] && ! apt-cache show oclgrind >/dev/null 2>&1; then
        echo "install: this release does not package oclgrind: the tests do not run kernels under it"
        continue
    fi
    available+=("$package")
done
if [ ${#available[@]} -gt 0 ]; then
    echo "install: apt-get install ${available[*]}"
    "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${available[@]}"
fi
