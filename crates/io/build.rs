//! Compiles the C side of the `dpdk` port, where that is wanted.
#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    dpdk();
}

/// DPDK's packet path consists of inline functions, so what calls them is C.
#[cfg(feature = "dpdk")]
fn dpdk() {
    const SOURCES: [&str; 3] = ["src/dpdk/shim.c", "src/dpdk/shim_pool.c", "src/dpdk/xdp_link.c"];
    for file in SOURCES.iter().chain(&["src/dpdk/shim.h", "src/dpdk/shim_pool.h"]) {
        println!("cargo::rerun-if-changed={file}");
    }
    let found = pkg_config::Config::new().atleast_version("21.11").cargo_metadata(false).probe("libdpdk");
    let library = match found {
        Ok(library) => library,
        Err(error) => {
            println!("cargo::error=feature `dpdk` needs DPDK 21.11 or later (Debian: libdpdk-dev): {error}");
            return;
        }
    };
    let mut shim = cc::Build::new();
    shim.files(SOURCES).includes(&library.include_paths).flag("-include").flag("rte_config.h");
    // What DPDK's inline functions use of the processor; Debian builds its libraries for this too.
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        shim.flag("-march=corei7");
    }
    // rte_dev_dma_map() has been marked as experimental since 18.11.
    shim.define("ALLOW_EXPERIMENTAL_API", None).opt_level(3).flag("-std=gnu11").warnings(true);
    // What net_af_xdp itself is built with; a DPDK without that driver may do without.
    let libxdp = pkg_config::Config::new().cargo_metadata(false).probe("libxdp");
    if let Ok(libxdp) = &libxdp {
        shim.includes(&libxdp.include_paths).define("GW_DPDK_LIBXDP", None);
    }
    shim.flag_if_supported("-Wno-missing-field-initializers").compile("godwit_dpdk_shim");
    for path in &library.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    // Drivers are loaded at run time, by DPDK.
    for name in ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_ring", "rte_eal", "rte_kvargs"] {
        println!("cargo::rustc-link-lib=dylib={name}");
    }
    if libxdp.is_ok() {
        println!("cargo::rustc-link-lib=dylib=xdp");
        println!("cargo::rustc-link-lib=dylib=bpf");
    }
}
