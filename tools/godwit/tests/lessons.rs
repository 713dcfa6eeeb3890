//! The lessons in `examples/functions/`: functions of users on all devices, from a folder outside
//! the source tree.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::{godwit, replay, run};
use godwit_test_support::program::counter;
use godwit_test_support::{Folder, capture, repository, skip};

/// Returns the names of the lessons.
fn lessons() -> Vec<String> {
    let names = common::listing(&repository().join("examples/functions"));
    let lessons: Vec<String> = names.into_iter().filter(|name| !name.ends_with(".md")).collect();
    assert!(lessons.len() >= 3, "{lessons:?}");
    lessons
}

/// Copies a lesson to a new folder. Returns the folder and the path of the C file.
fn copy(name: &str) -> (Folder, PathBuf) {
    let folder = Folder::new();
    for entry in fs::read_dir(repository().join("examples/functions").join(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
    }
    let source = folder.join(format!("{name}.c"));
    (folder, source)
}

/// Returns the number of frames for each counter that the expected outcomes of a lesson move.
fn expected(folder: &Path, name: &str) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(folder.join(format!("{name}.expect"))).unwrap();
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let name = match words[0] {
            "drop" => format!("dropped_{}", words[1]),
            verdict => format!("verdict_{verdict}"),
        };
        *counts.entry(name).or_default() += 1;
    }
    counts
}

/// Returns the counters of a report that the kernel of the function `kind` increments.
fn own_counters(report: &serde_json::Value, kind: &str) -> BTreeMap<String, u64> {
    let all = report["counters"].as_object().unwrap();
    let common = ["verdict_", "dropped_", "packets{", "bytes{", "settled{", "bins{", "busy_ns{"];
    let own = all.iter().filter_map(|(name, value)| {
        let name = name.strip_prefix(&format!("{kind}_"))?;
        common.iter().all(|start| !name.starts_with(start)).then(|| (name.to_owned(), value.as_u64().unwrap()))
    });
    own.collect()
}

#[test]
fn every_lesson_is_valid_and_named_by_its_page() {
    let page = fs::read_to_string(repository().join("examples/functions/README.md")).unwrap();
    for name in lessons() {
        let (folder, _) = copy(&name);
        run(godwit().arg("check").arg(folder.join(format!("{name}.toml")))).succeeded();
        assert!(page.contains(&format!("({name}/{name}.c)")), "{name} is not in examples/functions/README.md");
    }
}

#[test]
fn every_lesson_passes_its_test_in_all_forms_and_on_all_devices() {
    for name in lessons() {
        let (_folder, source) = copy(&name);
        let said = run(godwit().arg("test").arg(&source).args(["--frames", "3000"])).succeeded();
        assert!(said.stdout.contains("no fault") && said.stdout.contains("equal: ref, x86-64-v2"), "{said:?}");
        if said.stdout.contains("not run: opencl:0") || !said.stdout.contains("opencl:0 in mode launch") {
            skip(format!("{name}: no OpenCL device"));
        }
    }
}

/// The whole engine gives the outcomes of the lesson, and the same frames on all devices.
#[test]
fn every_lesson_gives_its_outcomes_in_the_engine() {
    for name in lessons() {
        let (folder, source) = copy(&name);
        let declared = fs::read_to_string(source).unwrap();
        let kind = declared.lines().next().unwrap().strip_prefix("/* godwit function ").unwrap().to_owned();
        let text = fs::read_to_string(folder.join(format!("{name}.toml"))).unwrap();
        let input = folder.join(format!("{name}.pcap"));
        let mut frames: Option<Vec<Vec<u8>>> = None;
        let mut counters: Option<BTreeMap<String, u64>> = None;
        for (device, keys) in [
            ("", "impl = \"native\""),
            ("", "impl = \"gopt\""),
            ("", "impl = \"ref\""),
            ("[engine]\nworkers = 2\n", "impl = \"native\""),
            ("[engine]\nworkers = 3\n", ""),
            ("[[device]]\nname = \"opencl:0\"\nmode = \"launch\"\n", "device = \"opencl:0\""),
            ("[[device]]\nname = \"opencl:0\"\nmode = \"persistent\"\n", "device = \"opencl:0\""),
            ("[[device]]\nname = \"cuda:0\"\nmode = \"launch\"\n", "device = \"cuda:0\""),
        ] {
            let text = text.replacen("kind = \"custom\"\n", &format!("kind = \"custom\"\n{keys}\n"), 1);
            let config = folder.write("test.toml", format!("{text}\n{device}"));
            let output = folder.join("out.pcap");
            if !device.is_empty() {
                let said = run(godwit().arg("replay").arg(&config).arg("--in").arg(&input).arg("--out").arg(&output));
                if said.code == Some(2) && said.stderr.contains("device `") {
                    skip(said.stderr.trim());
                    continue;
                }
            }
            let report = replay(&config, &input, &output);
            for (counted, count) in expected(folder.path(), &name) {
                assert_eq!(counter(&report, &format!("{kind}_{counted}")), count, "{name}, {keys}: {report:#}");
            }
            let counted = own_counters(&report, &kind);
            assert_eq!(*counters.get_or_insert_with(|| counted.clone()), counted, "{name}, {keys}");
            let sent = capture::read(&output);
            if name == "token_bucket" {
                let bytes = [("exceeded_bytes{function=\"token_bucket\"}".to_owned(), 342)];
                assert_eq!(counted, bytes.into(), "{keys}");
            }
            if name == "vxlan" {
                let bytes: usize = sent.iter().map(Vec::len).sum();
                assert_eq!(counted, [("inner_bytes{function=\"vxlan\"}".to_owned(), bytes as u64)].into(), "{keys}");
            }
            assert_eq!(*frames.get_or_insert_with(|| sent.clone()), sent, "{name}, {keys}");
        }
    }
}

/// A fault in a lesson: name of the lesson, text, replacement, and a part of the sentence.
type Planted = (&'static str, &'static str, &'static str, &'static str);

const FAULTS: &[Planted] = &[
    // Accesses outside the frame.
    ("police", "descriptor->length < POLICE_SOURCE + 8u", "descriptor->length < 15u", "instead of `drop truncated`"),
    ("police", "frame + POLICE_SOURCE)", "frame + POLICE_SOURCE + 6)", "outside the frame"),
    ("police", "descriptor->length < GW_ETHERNET_BYTES)", "descriptor->length < 13u)", "outside the frame"),
    ("balancer", "l3.offset + ip_bytes + 4u", "l3.offset + ip_bytes + 3u", "outside the frame"),
    ("vxlan", "|| length < udp + 8u", "", "outside the frame"),
    ("vxlan", " || length < udp + udp_bytes", "", "leaves its room"),
    ("vxlan", "udp_bytes < VXLAN_BYTES + GW_ETHERNET_BYTES || ", "", "instead of `drop truncated`"),
    // Accesses that the declaration does not allow.
    (
        "police",
        "    gw_my_police_senders_row row;\n",
        "    gw_my_police_senders_row row;\n    if (descriptor->length > 0) {\n        ((GW_GLOBAL gw_u8 *)frame)[0] = 9;\n    }\n",
        "than `writes` declares",
    ),
    (
        "balancer",
        "gw_store_be32(frame, (gw_u32)(row.mac >> 16));",
        "gw_store_be64(frame, row.mac << 16);",
        "than `writes` declares",
    ),
    ("vxlan", "writes  = \"all\" ", "writes  = 14 ", "needs writes = \"all\""),
    // Accesses outside tables.
    ("police", "row.mark == 0 ||", "row.mark == lane->image[-1] ||", "outside its tables"),
    (
        "balancer",
        "    flow.ports = 0;\n",
        "    gw_u32 seen[4] = {0, 0, 0, 0};\n    seen[flow.protocol & 7u] = 1;\n    flow.ports = seen[0] & 0u;\n",
        "out of bounds",
    ),
    // Values that are not defined.
    (
        "police",
        "if (!gw_my_police_senders_find(lane, gw_load_be32(frame + POLICE_SOURCE), &row)) {",
        "(void)gw_my_police_senders_find(lane, gw_load_be32(frame + POLICE_SOURCE), &row);\n    if (0) {",
        "gives `",
    ),
    ("vxlan", "    key.vni = gw_load_be32(frame + udp + 12) >> 8;\n", "", "instead of"),
    ("balancer", "    flow.ports = 0;\n", "", "without a value"),
    ("balancer", "hash ^ hash >> 16;\n}", "hash ^ hash >> (flow.protocol + 16u);\n}", "shift exponent"),
    (
        "balancer",
        "flow.ports) + flow.protocol;",
        "flow.ports) + flow.protocol + 0u * (7u / flow.ports);",
        "division by zero",
    ),
    // Outcomes that are not declared, or missing.
    ("police", "GW_MY_POLICE_MARKED, 0, row.mark", "7, 0, row.mark", "number of the verdict"),
    ("police", "GW_MY_POLICE_LISTED);", "9);", "number of the drop reason"),
    ("police", "        gw_drop(outcome, GW_MY_POLICE_LISTED);\n", "", "without an outcome"),
    ("balancer", "row.port, row.number", "row.number, row.number", "port that does not exist"),
    // Loops without a bound.
    (
        "police",
        "    gw_verdict(outcome, GW_MY_POLICE_MARKED",
        "    for (gw_u32 i = 1; i != 0; i += 2) {\n    }\n    gw_verdict(outcome, GW_MY_POLICE_MARKED",
        "too many steps",
    ),
    // Wrong results.
    ("police", "row.mark == 0 || ", "", "instead of `drop listed`"),
    ("police", "row.mark > gw_my_police_params", "row.mark >= gw_my_police_params", "instead of `marked value=20`"),
    ("balancer", "row.mac >> 16", "row.mac >> 8", "crc="),
    ("balancer", "ip_bytes < 20 || ", "", "instead of `drop truncated`"),
    ("vxlan", "udp + 12) >> 8", "udp + 12) >> 7", "instead of"),
    // A form that differs.
    (
        "police",
        "    if (row.mark == 0 ||",
        "#ifdef __OPTIMIZE__\n    row.mark += 1;\n#endif\n    if (row.mark == 0 ||",
        "without optimisation gives",
    ),
    // A counter that differs.
    (
        "vxlan",
        "    gw_vxlan_count_inner_bytes(lane, ",
        "#ifdef __OPTIMIZE__\n    gw_vxlan_count_inner_bytes(lane, 1);\n#endif\n    gw_vxlan_count_inner_bytes(lane, ",
        "in `inner_bytes`",
    ),
    // State of flows.
    ("nat44", "side == GW_FORWARD) {", "side == GW_REVERSE) {", "instead of `outbound"),
    ("nat44", "gw_drop(outcome, GW_NAT44_UNKNOWN);", "", "no row and no outcome"),
    ("nat44", "key->port = (gw_u16)gw_load_be16(", "(void)gw_load_be16(", "without a value"),
    ("nat44", "gw_checksum_change32(sum, old_address, address));", "sum);", "crc="),
    ("nat44", "length < headers.transport + transport_bytes", "length < headers.transport", "outside the frame"),
    // A drop reason that no frame reaches.
    ("vxlan", "[counters]", "never = \"Never happens.\"\n[counters]", "no frame reaches `drop never`"),
];

#[test]
fn every_planted_fault_is_found() {
    assert!(FAULTS.len() >= 20);
    for (name, before, after, part) in FAULTS {
        let (folder, source) = copy(name);
        let good = fs::read_to_string(&source).unwrap();
        let at = good.rfind(before).unwrap_or_else(|| panic!("{name} lacks {before}"));
        fs::write(&source, format!("{}{after}{}", &good[..at], &good[at + before.len()..])).unwrap();
        let said = run(godwit().arg("test").arg(&source).args(["--cpu-only", "--frames", "3000"]));
        assert_eq!(said.code, Some(2), "{after}: {said:?}");
        // Lines of progress precede the finding.
        let sentence = said.stderr.lines().last().unwrap_or_default();
        assert!(sentence.contains(part) && sentence.contains(&*folder.path().to_string_lossy()), "{after}: {sentence}");
    }
}
