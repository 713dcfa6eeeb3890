//! Frames that a router must not forward. They are addressed to other stations or to a group of
//! stations, or their source is the router itself.

use godwit_test_support::capture;
use godwit_test_support::frame::FrameBuilder;

use crate::net::{Net, counter, port, wait_for};
use crate::router::Routed;

/// Number of frames of each attack.
const FRAMES: u64 = 40_000;

/// Returns the bytes of a MAC address.
fn mac(text: &str) -> [u8; 6] {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16).expect("a byte"));
    bytes.collect::<Vec<_>>().try_into().expect("a MAC address")
}

#[test]
fn only_frames_to_the_router_are_forwarded() {
    let Some(mut net) = Net::new(&["tcpreplay", "ethtool"]) else { return };
    let routed = Routed::new(&mut net);
    let Routed { a, router, b } = &routed;
    routed.introduce();
    // The port takes every frame, as a router without a kernel does.
    let own = "[[function.next_hop]]\nname = \"own\"\nlocal = true\n[[function.route]]\nprefix = \"10.1.0.1\"\nnext_hop = \"own\"\n";
    let config = routed.config().replace("kind = \"af_xdp\"\n", "kind = \"af_xdp\"\ntake = \"all\"\n").replacen(
        "[[function.route]]",
        &format!("{own}[[function.route]]"),
        1,
    );
    let to_router = mac(&router.mac("left"));
    let attack = |name: &str, destination: [u8; 6], source: [u8; 4]| {
        let mut frame = FrameBuilder::new().ipv4(source, [10, 2, 0, 99]).udp([1000, 2000], &[7; 40]);
        frame[..6].copy_from_slice(&destination);
        let path = net.folder().join(name);
        capture::write(&path, &vec![frame; 100]);
        path
    };
    let host = [10, 1, 0, 2];
    let attacks = [
        attack("others.pcap", [2, 0, 0, 0, 0, 0x77], host),
        attack("broadcast.pcap", [0xff; 6], host),
        attack("multicast.pcap", [1, 0, 0x5e, 0, 0, 1], host),
        attack("forged.pcap", to_router, [10, 1, 0, 1]),
    ];
    let good = attack("good.pcap", to_router, host);
    for (promiscuous, forwarded) in [("", 100), ("promiscuous = true\n", 100 + FRAMES)] {
        let config = config.replace("take = \"all\"\n", &format!("take = \"all\"\n{promiscuous}"));
        let before = b.counted("eth0").received;
        let godwit = router.godwit(&net, &config, &["left", "right"]);
        for attack in &attacks {
            a.sh(&format!("tcpreplay -q -i eth0 -K --loop={} --pps=40000 {}", FRAMES / 100, attack.display()));
        }
        a.sh(&format!("tcpreplay -q -i eth0 -K --pps=1000 {}", good.display()));
        wait_for("the good packets", || b.counted("eth0").received >= before + 100);
        let report = godwit.stop();
        // A busy machine may miss some frames. It must not forward any of the others.
        let missed = port(&report, "left", "missed");
        let near = |count: u64, expected: u64| count <= expected && count + missed >= expected;
        assert!(near(counter(&report, "ipv4_verdict_forward"), forwarded), "{promiscuous}: {report:#}");
        assert_eq!(port(&report, "right", "sent_packets"), counter(&report, "ipv4_verdict_forward"));
        let strangers = if promiscuous.is_empty() { FRAMES } else { 0 };
        assert!(near(counter(&report, "engine_dropped_station"), strangers), "{promiscuous}: {report:#}");
        assert!(near(counter(&report, "ipv4_dropped_group_frame"), 2 * FRAMES), "{promiscuous}: {report:#}");
        assert!(near(counter(&report, "engine_dropped_own_source"), FRAMES), "{promiscuous}: {report:#}");
    }
}
