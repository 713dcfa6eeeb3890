//! Link options of the provider.

fn main() {
    // Threads may still hold destructors of this library when OpenSSL unloads the provider. The
    // library therefore stays mapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
