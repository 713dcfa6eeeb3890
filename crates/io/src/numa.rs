//! Which NUMA node cores and memory are of, as the kernel says.

use std::fs;

/// The node of the page that holds `address`; `None` where the kernel does not say, or the page was never touched.
pub(crate) fn node_of_memory(address: usize) -> Option<usize> {
    let page = address & !4095;
    let mut pages = [page as *mut libc::c_void];
    let mut status: [libc::c_int; 1] = [-1];
    // SAFETY: move_pages without nodes moves nothing: it says where one page is.
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

/// The cores that this process may use, each with its node.
pub(crate) fn nodes_of_cores() -> Vec<(usize, usize)> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(list).unwrap_or_default();
    let mut cores = Vec::new();
    for entry in fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(node) = name.to_str().and_then(|name| name.strip_prefix("node")?.parse().ok()) else { continue };
        let of_node = fs::read_to_string(entry.path().join("cpulist")).map(|text| list(&text)).unwrap_or_default();
        cores.extend(of_node.into_iter().filter(|core| allowed.contains(core)).map(|core| (core, node)));
    }
    cores.sort_unstable();
    cores
}

/// `0-3,8` as the numbers that it stands for.
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
    fn lists_of_cores_are_read() {
        assert_eq!(list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(list(" 5"), [5]);
        assert!(list("").is_empty() && list("x-y").is_empty());
    }

    #[test]
    fn memory_in_use_has_a_node_where_the_kernel_says() {
        let touched = Box::new([7u8; 4096]);
        let node = node_of_memory(std::hint::black_box(&touched).as_ptr() as usize);
        let nodes = nodes_of_cores();
        if let (Some(node), false) = (node, nodes.is_empty()) {
            assert!(fs::exists(format!("/sys/devices/system/node/node{node}")).unwrap());
        }
    }
}
