//! Every form of every kernel, compared with the contract or with another form.
//!
//! | module | form under test |
//! |---|---|
//! | `contract` | CPU levels, compared with expectations written from the contracts |
//! | `native` | native forms of IPsec, for AVX2 and AVX-512 |
//! | `opencl` | OpenCL text, on every OpenCL device of this machine |
//! | `cuda` | CUDA text, compiled by NVRTC but not run |
//! | `emulation` | CUDA text, compiled by g++ and run on the CPU |
//! | `races` | the same, under the thread sanitizer |
//! | `sanitized` | CPU levels, gopt and native forms, under the address sanitizer |
//! | `dpi_group` | `dpi` with several lanes for one packet |

mod common;
mod contract;
mod cuda;
mod dpi_group;
mod emulation;
mod native;
mod opencl;
mod races;
mod sanitized;
