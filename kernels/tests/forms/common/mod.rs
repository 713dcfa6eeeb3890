//! Packets and table images, and a workload that uses all of them.

pub(crate) mod batch;
pub(crate) mod chunk;
pub(crate) mod emulation;
pub(crate) mod frames;
pub(crate) mod ipsec;
pub(crate) mod ipsec_suites;
pub(crate) mod ipv6;
pub(crate) mod ndn;
pub(crate) mod nvrtc;
pub(crate) mod opencl;
pub(crate) mod tables;
pub(crate) mod whole;

use std::sync::LazyLock;

use godwit_kernels::image::{IPV4_HOP_BLACKHOLE, IPV4_HOP_LOCAL, Ipv4NextHop};
use godwit_kernels::{DPI, ECHO, IPV4, TEMPLATE};
use godwit_test_support::Random;

use batch::Lines;
use frames::random_frame;
use tables::{Route, dpi_image, echo_image, ipv4_image};

pub(crate) const ECHO_PORTS: u32 = 7;

pub(crate) const PATTERNS: &[&[u8]] =
    &[b"attack", b"tack", b"ack", b"a", b"\x00\xff\x00", b"GET /etc/passwd", b"etc", b"tack", b"passwords"];

/// Nested prefixes, shorter and longer than /24, without a default route.
pub(crate) const ROUTES: &[Route] = &[
    Route { address: 0x0a00_0000, length: 8, next_hop: 0 },
    Route { address: 0x0a01_0000, length: 16, next_hop: 1 },
    Route { address: 0x0a01_0200, length: 24, next_hop: 2 },
    Route { address: 0x0a01_0280, length: 25, next_hop: 3 },
    Route { address: 0x0a01_02c1, length: 32, next_hop: 4 },
    Route { address: 0xc000_0200, length: 30, next_hop: 5 },
    Route { address: 0xe000_0000, length: 4, next_hop: 6 },
];

/// Addresses at the borders of [`ROUTES`].
pub(crate) const DESTINATIONS: &[u32] = &[
    0x0a00_0000,
    0x0aff_ffff,
    0x0a01_0000,
    0x0a01_01ff,
    0x0a01_0200,
    0x0a01_027f,
    0x0a01_0280,
    0x0a01_02c0,
    0x0a01_02c1,
    0x0a01_02c2,
    0x0a01_0300,
    0xc000_0203,
    0xc000_0204,
    0xe000_0001,
    0x7f00_0001,
    0x0b00_0000,
    0x0000_0001,
];

pub(crate) fn next_hops() -> Vec<Ipv4NextHop> {
    (0..7)
        .map(|index| {
            let flags = match index {
                4 => IPV4_HOP_LOCAL,
                5 => IPV4_HOP_BLACKHOLE,
                _ => 0,
            };
            Ipv4NextHop::new([2, 0, 0, 0, 1, index], [2, 0, 0, 0, 2, index], index * 31, flags, u16::MAX)
        })
        .collect()
}

/// A kernel, one of its variants, and a table image for it.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) kernel: u8,
    pub(crate) variant: u32,
    pub(crate) image: Lines,
}

pub(crate) static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let case = |name, kernel, variant, image| Case { name, kernel, variant, image };
    vec![
        case("template", TEMPLATE, 0, Lines::zeroed(64)),
        case("echo", ECHO, 0, echo_image(ECHO_PORTS)),
        case("ipv4, 2-byte entries", IPV4, 0, ipv4_image(ROUTES, &next_hops(), 0)),
        case("ipv4, 4-byte entries", IPV4, 1, ipv4_image(ROUTES, &next_hops(), 1)),
        case("dpi", DPI, 0, dpi_image(PATTERNS)),
    ]
});

pub(crate) fn random_frames(count: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random_frame(&mut random, DESTINATIONS, PATTERNS)).collect()
}
