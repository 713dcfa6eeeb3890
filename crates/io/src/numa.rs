//! Reads the NUMA nodes of cores and memory from the kernel.

use std::fs;

/// Returns the NUMA node of the memory page at `address`. Returns `None` if the node is unknown, or
/// if the page is not allocated yet.
pub(crate) fn node_of_memory(address: usize) -> Option<usize> {
    let page = address & !4095;
    let mut pages = [page as *mut libc::c_void];
    let mut status: [libc::c_int; 1] = [-1];
    // SAFETY: move_pages without target nodes moves nothing. It only writes the node of one page to
    // `status`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            1usize,
            pages.as_mut_ptr(),
            std::ptr::null::<libc::c_int>(),
            status.as_mut_ptr(),
            0,
        )
    };
    if result != 0 { None } else { usize::try_from(status[0]).ok() }
}

/// Returns the processor cores on which this process may run, each with its NUMA node.
pub(crate) fn nodes_of_cores() -> Vec<(usize, usize)> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(list).unwrap_or_default();
    let mut cores = Vec::new();
    for entry in fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(node) = name.to_str().and_then(|name| name.strip_prefix("node")?.parse().ok()) else { continue };
        let node_cores = fs::read_to_string(entry.path().join("cpulist")).map(|text| list(&text)).unwrap_or_default();
        cores.extend(node_cores.into_iter().filter(|core| allowed.contains(core)).map(|core| (core, node)));
    }
    cores.sort_unstable();
    cores
}

/// Parses a list of core numbers, such as `0-3,8`.
fn list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_lists_are_parsed() {
        assert_eq!(list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(list(" 5"), [5]);
        assert!(list("").is_empty() && list("x-y").is_empty());
    }

    #[test]
    fn accessed_memory_has_an_existing_node() {
        let accessed = Box::new([7u8; 4096]);
        let node = node_of_memory(std::hint::black_box(&accessed).as_ptr() as usize);
        let nodes = nodes_of_cores();
        if let (Some(node), false) = (node, nodes.is_empty()) {
            assert!(fs::exists(format!("/sys/devices/system/node/node{node}")).unwrap());
        }
    }
}
