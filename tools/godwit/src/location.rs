//! Position of processors and devices in the machine, from the kernel's sysfs.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// A NUMA node: processor cores and the memory next to them.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Node {
    pub(crate) number: u32,
    /// Core numbers, such as `0-15,32`.
    pub(crate) cores: String,
    pub(crate) memory_bytes: u64,
}

/// Position of a PCI device.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Location {
    /// NUMA node next to the device, if the firmware reports one.
    pub(crate) numa_node: Option<u32>,
    /// Speed of one lane of the PCIe link, such as `32.0 GT/s PCIe`.
    pub(crate) link_speed: Option<String>,
    /// Number of lanes of the PCIe link.
    pub(crate) link_lanes: Option<u32>,
}

/// Returns the NUMA nodes in ascending order. `sysfs` is the folder where sysfs is mounted.
pub(crate) fn nodes(sysfs: &Path) -> Vec<Node> {
    let entries = fs::read_dir(sysfs.join("devices/system/node")).into_iter().flatten().flatten();
    let node = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let cores = read(&entry.path().join("cpulist"))?;
        let memory = fs::read_to_string(entry.path().join("meminfo")).ok()?;
        let total = memory.lines().find_map(|line| line.split_once("MemTotal:")).map(|(_, total)| total);
        let kib: u64 = total?.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(Node { number, cores, memory_bytes: kib << 10 })
    };
    let mut nodes: Vec<Node> = entries.filter_map(node).collect();
    nodes.sort_by_key(|node| node.number);
    nodes
}

/// Returns the position of the device with the PCI address `address`, such as `0000:3b:00.0`.
/// Unknown parts are `None`.
pub(crate) fn of_pci(sysfs: &Path, address: &str) -> Location {
    let device = sysfs.join("bus/pci/devices").join(address.to_ascii_lowercase());
    // The kernel writes -1 for an unknown node. Without a link, the number of lanes is 0 or 255.
    Location {
        numa_node: read(&device.join("numa_node")).and_then(|node| node.parse().ok()),
        link_speed: read(&device.join("current_link_speed"))
            .filter(|speed| speed.starts_with(|c: char| c.is_ascii_digit())),
        link_lanes: read(&device.join("current_link_width"))
            .and_then(|lanes| lanes.parse().ok())
            .filter(|lanes| (1..=32).contains(lanes)),
    }
}

/// Returns the content of a file without surrounding spaces. Returns `None` if it is empty or
/// unreadable.
fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn nodes_and_links_are_read() {
        let sysfs = tempfile::tempdir().unwrap();
        for (number, cores) in [(1, "4-7"), (0, "0-3"), (2, "")] {
            let node = sysfs.path().join(format!("devices/system/node/node{number}"));
            write(&node.join("cpulist"), &format!("{cores}\n"));
            write(
                &node.join("meminfo"),
                &format!("Node {number} MemTotal:       1024 kB\nNode {number} MemFree: 9 kB\n"),
            );
        }
        write(&sysfs.path().join("devices/system/node/online"), "0-1\n");
        let found = nodes(sysfs.path());
        let node = |number, cores: &str| Node { number, cores: cores.to_owned(), memory_bytes: 1 << 20 };
        assert_eq!(found, [node(0, "0-3"), node(1, "4-7")], "a node without cores is left out");

        let device = sysfs.path().join("bus/pci/devices/0000:3b:00.0");
        for (file, text) in [("numa_node", "1"), ("current_link_speed", "32.0 GT/s PCIe"), ("current_link_width", "16")]
        {
            write(&device.join(file), &format!("{text}\n"));
        }
        let location = of_pci(sysfs.path(), "0000:3B:00.0");
        let expected =
            Location { numa_node: Some(1), link_speed: Some("32.0 GT/s PCIe".to_owned()), link_lanes: Some(16) };
        assert_eq!(location, expected);
        for (file, text) in [("numa_node", "-1"), ("current_link_speed", "Unknown"), ("current_link_width", "0")] {
            write(&device.join(file), &format!("{text}\n"));
        }
        assert_eq!(of_pci(sysfs.path(), "0000:3b:00.0"), Location::default());
        assert_eq!(of_pci(sysfs.path(), "0000:99:00.0"), Location::default());
    }
}
