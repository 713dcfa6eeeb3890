//! CUDA text of the kernels, compiled by NVRTC. Nothing runs, because that needs a device.

use godwit_declare::Declaration;
use godwit_kernels::custom::{CustomText, device_source};

use crate::common::nvrtc::Nvrtc;

#[test]
fn every_kernel_compiles_to_ptx() {
    let Some(nvrtc) = Nvrtc::load() else { return };
    for architecture in ["compute_75", "compute_90"] {
        let options = [&format!("--gpu-architecture={architecture}"), "--std=c++17"];
        let (ptx, _) = nvrtc
            .compile(godwit_kernels::cuda_source(), &options)
            .unwrap_or_else(|log| panic!("{}: {architecture}:\n{log}", nvrtc.path.display()));
        assert!(ptx.contains(".entry gw_chunk("), "{architecture}: no entry gw_chunk");
        assert!(ptx.contains("$L__BB"), "{architecture}: the entry is empty");
    }
}

/// The lessons are functions of users, which are added to the text at run time.
#[test]
fn every_lesson_compiles_to_ptx() {
    let Some(nvrtc) = Nvrtc::load() else { return };
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/functions");
    let texts: Vec<String> = ["police", "balancer", "vxlan", "nat44"]
        .map(|name| std::fs::read_to_string(folder.join(format!("{name}/{name}.c"))).unwrap())
        .into();
    let declarations: Vec<Declaration> = texts.iter().map(|text| Declaration::parse(text).unwrap()).collect();
    let customs: Vec<CustomText<'_>> = texts
        .iter()
        .zip(&declarations)
        .zip(128..)
        .map(|((text, declaration), number)| CustomText { declaration, number, file: "lesson.c", text })
        .collect();
    for architecture in ["compute_75", "compute_90"] {
        let [with_built_in, alone] = [true, false].map(|has_built_in| {
            let source = device_source(godwit_kernels::cuda_source(), &customs, has_built_in);
            let options = [&format!("--gpu-architecture={architecture}"), "--std=c++17"];
            let (ptx, _) = nvrtc.compile(&source, &options).unwrap_or_else(|log| panic!("{architecture}:\n{log}"));
            assert!(ptx.contains(".entry gw_chunk("), "{architecture}: no entry gw_chunk");
            ptx.len()
        });
        assert!(alone < with_built_in / 2, "{architecture}: {alone} bytes alone, {with_built_in} with all functions");
    }
}

/// Maximum number of bytes that a function may spill to local memory per lane. Spills around calls
/// happen once per packet, not once per block.
const SPILLED_BYTES_MAX: u32 = 512;

#[test]
fn lanes_spill_registers_only_around_calls() {
    let Some(nvrtc) = Nvrtc::load() else { return };
    let options = ["--gpu-architecture=sm_90", "--std=c++17", "--ptxas-options=-v"];
    let (_, log) = nvrtc.compile(godwit_kernels::cuda_source(), &options).unwrap();
    let numbers = |unit: &str| -> Vec<u32> {
        let front = log.match_indices(unit).map(|(at, _)| log[..at].trim_end());
        front.map(|front| front.rsplit(' ').next().unwrap().parse().unwrap()).collect()
    };
    let declared_bytes = numbers("bytes smem");
    assert!(!declared_bytes.is_empty() && declared_bytes.iter().all(|&bytes| bytes <= 48 << 10), "{log}");
    let spilled_bytes = numbers("bytes spill stores");
    assert!(!spilled_bytes.is_empty() && spilled_bytes.iter().all(|&bytes| bytes <= SPILLED_BYTES_MAX), "{log}");
}

#[test]
fn an_error_names_the_kernel_file_and_line() {
    let Some(nvrtc) = Nvrtc::load() else { return };
    let broken = godwit_kernels::cuda_source().replacen("gw_swap_macs(frame);", "gw_none(frame);", 1);
    let log = nvrtc.compile(&broken, &["--std=c++17"]).unwrap_err();
    let file = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/echo/echo.h")).unwrap();
    let line = 1 + file.lines().position(|line| line.contains("gw_swap_macs(frame);")).unwrap();
    assert!(log.contains(&format!("echo/echo.h({line})")), "{log}");
}
