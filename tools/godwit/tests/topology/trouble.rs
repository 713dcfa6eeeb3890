//! Failures of links and processes. Godwit recovers, counts losses, and leaves no files or
//! programs.

use nix::sys::signal::Signal;

use crate::net::{Net, port, wait_for};
use crate::router::Routed;

/// Sends a ping, repeatedly until the deadline. Returns whether an answer arrives.
fn ping(routed: &Routed) -> bool {
    routed.a.try_sh("ping -c 1 -W 1 10.2.0.2").status.success()
}

#[test]
fn links_that_go_down_and_interfaces_that_vanish_come_back() {
    let Some(mut net) = Net::new(&["ping", "ethtool"]) else { return };
    let routed = Routed::new(&mut net);
    let Routed { a, router, b } = &routed;
    routed.introduce();
    let right_mac = router.mac("right");
    let b_mac = b.mac("eth0");
    let godwit = router.godwit(&net, &routed.config(), &["left", "right"]);
    wait_for("an answer", || ping(&routed));

    // The link goes down at the router first. Then it goes down at the host, which removes the
    // carrier.
    router.sh("ip link set right down");
    assert!(!ping(&routed));
    router.sh("ip link set right up");
    routed.introduce();
    wait_for("the router's link", || ping(&routed));
    b.sh("ip link set eth0 down");
    assert!(!ping(&routed));
    b.sh("ip link set eth0 up && ip route add default via 10.2.0.1");
    routed.introduce();
    wait_for("the host's link", || ping(&routed));

    // After the MTU shrinks, longer packets are refused and counted. Shorter ones pass.
    router.sh("ip link set right mtu 1000");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!a.try_sh("ping -c 2 -i 0.1 -W 1 -s 1200 10.2.0.2").status.success());
    wait_for("an answer", || ping(&routed));
    router.sh("ip link set right mtu 1500");

    // The kernel answers ten thousand ARP requests.
    let flood = "import socket,struct\n\
        s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW); s.bind(('eth0',0))\n\
        for i in range(10000): s.send(b'\\xff'*6+b'\\2\\0\\0\\0\\0\\7'+b'\\x08\\x06'+b'\\0\\1\\x08\\0\\6\\4\\0\\1'+b'\\2\\0\\0\\0\\0\\7'\
        +struct.pack('>I',0x0a010100+i)+bytes(6)+bytes([10,1,0,1])+bytes(18))\n";
    let flood = net.file("flood.py", flood);
    a.sh(&format!("/usr/bin/python3 {}", flood.display()));
    wait_for("an answer", || ping(&routed));

    // The cable is removed, and a new one is added.
    router.sh("ip link del right");
    assert!(!ping(&routed));
    net.cable([(b, "eth0", &["10.2.0.2/24"]), (router, "right", &["10.2.0.1/24"])]);
    // The next hops are configured.
    b.sh(&format!("ip link set eth0 address {b_mac} && ip route add default via 10.2.0.1"));
    router.sh(&format!("ip link set right address {right_mac}"));
    routed.introduce();
    wait_for("the new cable", || ping(&routed));
    let report = godwit.stop();
    assert!(port(&report, "left", "left_to_kernel") >= 10_000, "{report:#}");
    assert_eq!(port(&report, "right", "over_mtu"), 2, "{report:#}");
    assert!(!router.has_xdp("left") && !router.has_xdp("right"));
}

/// Writes a script that sends 10,000 packets, more than all rings hold, through the router. Its
/// argument is the MAC address of the router. No host has the destination, so no reply comes.
fn flood(net: &Net) -> std::path::PathBuf {
    let script = "import socket,struct,sys\n\
        s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW); s.bind(('eth0',0))\n\
        ip=bytes.fromhex('4500002e000000004011'); addresses=bytes([10,1,0,2,10,2,0,99])\n\
        n=sum(struct.unpack('!9H',ip+addresses)); n=(n&65535)+(n>>16)\n\
        ip+=struct.pack('!H',~n&65535)+addresses\n\
        to=bytes.fromhex(sys.argv[1].replace(':',''))\n\
        for i in range(10000): s.send(to+b'\\2\\0\\0\\0\\0\\7'+b'\\x08\\0'+ip+struct.pack('!HHHH',9,9,26,0)+bytes(18))\n";
    net.file("flood.py", script)
}

/// The driver of a link without a peer drops packets, and completes them as if they were sent.
#[test]
fn a_link_that_is_down_refuses_packets() {
    let Some(mut net) = Net::new(&["ping", "ethtool"]) else { return };
    let routed = Routed::new(&mut net);
    let Routed { a, router, b } = &routed;
    routed.introduce();
    let before = b.counted("eth0").received;
    let godwit = router.godwit(&net, &routed.config(), &["left", "right"]);
    wait_for("an answer", || ping(&routed));
    b.sh("ip link set eth0 down");
    wait_for("the event", || godwit.reports("event=link_down port=right"));
    a.sh(&format!("/usr/bin/python3 {} {}", flood(&net).display(), router.mac("left")));
    std::thread::sleep(std::time::Duration::from_secs(1));
    let report = godwit.stop();
    let of = |counter| port(&report, "right", counter);
    let came = b.counted("eth0").received - before;
    assert!(of("refused") > 1000, "{report:#}");
    assert_eq!((of("sent_packets"), of("unsent")), (came, 0), "{report:#}");
}

/// The queue of a stalled reader fills. Frames that do not fit are counted. Traffic continues
/// afterwards.
#[test]
fn a_stalled_queue_counts_losses_and_recovers() {
    let Some(mut net) = Net::new(&["ping", "ethtool"]) else { return };
    let routed = Routed::new(&mut net);
    let Routed { a, router, b } = &routed;
    routed.introduce();
    let before = [a.counted("eth0").sent, b.counted("eth0").received];
    let godwit = router.godwit(&net, &routed.config(), &["left", "right"]);
    wait_for("an answer", || ping(&routed));
    let flood = flood(&net);
    godwit.child.signal(Signal::SIGSTOP);
    a.sh(&format!("/usr/bin/python3 {} {}", flood.display(), router.mac("left")));
    godwit.child.signal(Signal::SIGCONT);
    wait_for("the queue", || ping(&routed));
    let sent = [a.counted("eth0").sent, b.counted("eth0").sent];
    let report = godwit.stop();
    let came = b.counted("eth0").received;
    let of = |name: &str, counter| port(&report, name, counter);
    let seen = of("left", "received_packets") + of("left", "left_to_kernel") + of("left", "missed");
    assert_eq!(seen, sent[0] - before[0], "{report:#}");
    assert!(of("left", "missed") > 0 && of("left", "received_packets") > 1000, "{report:#}");
    assert_eq!(of("right", "sent_packets"), came - before[1], "{report:#}");
}

#[test]
fn privileges_are_dropped_after_the_start() {
    let Some(mut net) = Net::new(&["ping", "ethtool"]) else { return };
    let routed = Routed::new(&mut net);
    routed.introduce();
    let config = routed.config().replacen("[engine]\n", "[engine]\nuser = \"nobody\"\n", 1);
    let godwit = routed.router.godwit(&net, &config, &["left", "right"]);
    let status = || std::fs::read_to_string(format!("/proc/{}/status", godwit.child.0.id())).expect("it runs");
    let of = |line: &str| {
        let status = status();
        let found = status.lines().find_map(|text| text.strip_prefix(line)).expect("the kernel says so");
        found.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    wait_for("another user", || of("Uid:").iter().all(|uid| uid != "0"));
    assert!(of("Gid:").iter().all(|gid| gid != "0"));
    for capabilities in ["CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(of(capabilities), ["0000000000000000"], "{capabilities}");
    }
    // Counts the system calls of all threads.
    let tasks = std::fs::read_dir(format!("/proc/{}/task", godwit.child.0.id())).expect("it runs");
    for task in tasks {
        let status = std::fs::read_to_string(task.expect("a thread").path().join("status")).expect("it runs");
        assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    }
    wait_for("an answer", || ping(&routed));
    // Godwit also learns addresses that are added later.
    routed.router.sh("ip addr add 10.2.0.77/24 dev right");
    wait_for("the address", || routed.a.try_sh("ping -c 1 -W 1 10.2.0.77").status.success());
    godwit.stop();
}

#[test]
fn a_killed_process_leaves_no_files_or_programs() {
    let Some(mut net) = Net::new(&["ping", "ethtool", "bpftool"]) else { return };
    let routed = Routed::new(&mut net);
    routed.introduce();
    let before = hugepage_files();
    // A left-over control socket does not prevent a start.
    let control = format!("[engine]\ncontrol = \"{}\"\n", net.folder().join("control").display());
    let config = routed.config().replacen("[engine]\n", &control, 1);
    for _ in 0..3 {
        let mut godwit = routed.router.godwit(&net, &config, &["left", "right"]);
        wait_for("an answer", || ping(&routed));
        // The namespaces of this test are the only ones in the list.
        let namespace =
            |of: &str| std::fs::read_link(format!("/proc/{}/ns/{of}", godwit.child.0.id())).expect("it runs");
        let shell = routed.router.sh("readlink /proc/self/ns/net");
        assert_eq!(namespace("net").to_string_lossy(), shell.trim());
        godwit.child.signal(Signal::SIGKILL);
        godwit.child.0.wait().expect("it ends");
        for name in ["left", "right"] {
            wait_for("the program to be detached", || !routed.router.has_xdp(name));
        }
        let links: serde_json::Value =
            serde_json::from_str(&routed.router.sh("bpftool -j net show")).expect("JSON of bpftool");
        assert_eq!(links[0]["xdp"].as_array().map(Vec::len), Some(0), "{links:#}");
        assert_eq!(hugepage_files(), before);
        assert!(!ping(&routed), "nobody forwards");
    }
    // A second instance finds the interface in use and reports its owner in one sentence.
    let godwit = routed.router.godwit(&net, &routed.config(), &["left", "right"]);
    let config = net.file("second.toml", routed.config());
    let second =
        routed.router.command(env!("CARGO_BIN_EXE_godwit")).arg("run").arg(config).output().expect("it starts");
    let printed = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(2), "{printed}");
    assert!(
        printed.contains("in use by another AF_XDP socket") || printed.contains("another XDP program"),
        "{printed}"
    );
    assert!(ping(&routed), "the first goes on");
    godwit.stop();
}

/// Returns the files in hugepage file systems.
fn hugepage_files() -> Vec<std::path::PathBuf> {
    let mounts = std::fs::read_to_string("/proc/mounts").expect("this is Linux");
    let folders = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let folder = words.nth(1)?;
        (words.next()? == "hugetlbfs").then_some(folder)
    });
    let mut files: Vec<_> = folders
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
}
