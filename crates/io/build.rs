//! Compiles and links the C part of the port `dpdk`, if the feature `dpdk` is on.
#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    dpdk();
}

/// Compiles the C part of the port `dpdk` and links DPDK. The C part is needed because Rust cannot
/// call inline C functions.
#[cfg(feature = "dpdk")]
fn dpdk() {
    const SOURCES: [&str; 3] = ["src/dpdk/shim.c", "src/dpdk/shim_pool.c", "src/dpdk/xdp_link.c"];
    for file in SOURCES.iter().chain(&["src/dpdk/shim.h", "src/dpdk/shim_pool.h"]) {
        println!("cargo::rerun-if-changed={file}");
    }
    let probed = pkg_config::Config::new().atleast_version("21.11").cargo_metadata(false).probe("libdpdk");
    let library = match probed {
        Ok(library) => library,
        Err(error) => {
            println!("cargo::error=feature `dpdk` needs DPDK 21.11 or later (Debian: libdpdk-dev): {error}");
            return;
        }
    };
    let mut shim = cc::Build::new();
    shim.files(SOURCES).includes(&library.include_paths).flag("-include").flag("rte_config.h");
    // The inline functions of DPDK use SSE4.2 instructions. Debian builds DPDK for the same
    // processor type, corei7.
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        shim.flag("-march=corei7");
    }
    // ALLOW_EXPERIMENTAL_API permits calls to rte_dev_dma_map(), which DPDK marks as experimental
    // since version 18.11.
    shim.define("ALLOW_EXPERIMENTAL_API", None).opt_level(3).flag("-std=gnu11").warnings(true);
    // DPDK contains the driver net_af_xdp only if DPDK was built with libxdp. Without this driver,
    // the program does not need libxdp.
    let libxdp = pkg_config::Config::new().cargo_metadata(false).probe("libxdp");
    if let Ok(libxdp) = &libxdp {
        shim.includes(&libxdp.include_paths).define("GW_DPDK_LIBXDP", None);
    }
    shim.flag_if_supported("-Wno-missing-field-initializers").compile("godwit_dpdk_shim");
    for path in &library.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    // DPDK loads its drivers at run time.
    for name in ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_ring", "rte_eal", "rte_kvargs"] {
        println!("cargo::rustc-link-lib=dylib={name}");
    }
    if libxdp.is_ok() {
        println!("cargo::rustc-link-lib=dylib=xdp");
        println!("cargo::rustc-link-lib=dylib=bpf");
    }
}
