#!/usr/bin/env python3
"""Writes linux.txt: frames, and the results of Linux as a router for them. README.md has the format.

    make.py    run as root; creates and removes two network namespaces and four veth pairs
"""
import ipaddress
import os
import random
import select
import socket
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROUTER, WIRE = "gwvector-router", "gwvector-wire"
# MAC addresses of the router and of the station, for each port.
MACS = {0: ("02:00:00:00:00:01", "02:00:00:00:00:99")}
MACS |= {p: (f"02:00:00:00:0{p}:02", f"02:00:00:00:0{p}:01") for p in (1, 2, 3)}
MTU = {0: 1500, 1: 1500, 2: 1500, 3: 1280}
SOURCE = "2001:db8:f::2"
WAIT_S = 0.15


def routes():
    lines = (line.split("#")[0].split() for line in (HERE / "routes.txt").read_text().splitlines())
    return [tuple(line) for line in lines if line]


def run(*words, netns=ROUTER):
    subprocess.run(["ip", "-n", netns, *words] if netns else ["ip", *words], check=True)


def sysctl(key, value, netns):
    subprocess.run(["ip", "netns", "exec", netns, "sysctl", "-qw", f"{key}={value}"], check=True)


def set_up():
    for netns in (ROUTER, WIRE):
        run("netns", "add", netns, netns=None)
    sysctl("net.ipv6.conf.default.disable_ipv6", 1, WIRE)
    for key, value in [("conf.all.forwarding", 1), ("conf.default.accept_dad", 0), ("conf.default.accept_ra", 0),
                       ("conf.default.addr_gen_mode", 1), ("conf.default.router_solicitations", 0), ("icmp.ratelimit", 0)]:
        sysctl(f"net.ipv6.{key}", value, ROUTER)
    for p, (ours, theirs) in MACS.items():
        run("link", "add", "name", f"p{p}", "address", ours, "mtu", str(MTU[p]), "type", "veth",
            "peer", "name", f"p{p}", "netns", WIRE, "address", theirs)
        run("link", "set", f"p{p}", "up", netns=WIRE)
        run("link", "set", f"p{p}", "up")
        run("address", "add", f"fe80::1{p}/64", "dev", f"p{p}", "nodad")
        run("neighbor", "add", "fe80::99", "lladdr", theirs, "dev", f"p{p}", "nud", "permanent")
    run("link", "set", "lo", "up")
    run("address", "add", "2001:db8:f::1/64", "dev", "p0", "nodad")
    for host in (SOURCE, "fe80::1234"):
        run("neighbor", "add", host, "lladdr", MACS[0][1], "dev", "p0", "nud", "permanent")
    for prefix, hop in routes():
        route = {"nowhere": ["blackhole", prefix], "closed": ["unreachable", prefix]}.get(hop)
        if hop != "here":
            run("-6", "route", "add", *(route or [prefix, "via", "fe80::99", "dev", hop]))


def frames():
    from scapy.layers.inet import UDP
    from scapy.layers.inet6 import (HBHOptUnknown, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop,
                                    IPv6ExtHdrRouting, ICMPv6EchoRequest, Pad1, PadN, RouterAlert)
    from scapy.layers.l2 import Ether
    from scapy.packet import Raw

    def frame(packet):
        return bytes(Ether(dst=MACS[0][0], src=MACS[0][1], type=0x86DD) / packet)

    def udp(bytes_in_all=68):
        return UDP(sport=7, dport=9) / Raw((bytes(range(256)) * 6)[: bytes_in_all - 48])

    def to(destination, source=SOURCE, hops=64):
        return IPv6(src=source, dst=str(destination), hlim=hops, tc=0xB8, fl=0x12345)

    # The edges of every prefix, and one address on each side.
    edges = set()
    for prefix, _ in routes():
        net = ipaddress.IPv6Network(prefix)
        first, last = int(net[0]), int(net[-1])
        edges |= {first, last, (first + last) // 2, first - 1, last + 1}
    # Linux has a connected route to the stations of p0, so their addresses are excluded.
    link = ipaddress.IPv6Network("2001:db8:f::/64")
    router = ipaddress.IPv6Address("2001:db8:f::1")
    edges = [ipaddress.IPv6Address(n) for n in sorted(edges)]
    edges = [address for address in edges if address not in link or address == router]
    yield from (frame(to(address) / udp()) for address in edges)
    # Addresses that share the first bits of an edge and are random after them.
    draw = random.Random(8200)
    for _ in range(200):
        bits = draw.randrange(32, 128)
        near = int(draw.choice(edges)) >> (128 - bits) << (128 - bits) | draw.getrandbits(128 - bits)
        if ipaddress.IPv6Address(near) not in link:
            yield frame(to(ipaddress.IPv6Address(near)) / udp())
    # Hop limits (RFC 8200, section 3), for each kind of next hop.
    for destination in ("2001:db8:1::1", "2001:db8:f::1", "2001:db8:dead::1", "2001:db8:bad::1", "2001:dead::1"):
        for hops in (0, 1, 2, 255):
            yield frame(to(destination, hops=hops) / udp())
    # Lengths around the MTU of 1280 (RFC 8200, section 5), and no payload (next header 59).
    for port in ("2001:db8:1::1", "2001:db8:1:2:8000::1"):
        for length in (49, 1279, 1280, 1281, 1400, 1500):
            yield frame(to(port) / udp(length))
        yield frame(to(port, hops=1) / udp(1400))
        yield frame(IPv6(src=SOURCE, dst=port, nh=59, plen=0))
    # Options (RFC 8200, section 4.2): all four actions for unknown options, after padding and after
    # another option.
    for kind in (0x1E, 0x3E, 0x5E, 0x7E, 0x9E, 0xBE, 0xDE, 0xFE):
        for destination in ("2001:db8:1::1", "2001:db8:bad::1"):
            for before in ([], [Pad1(), PadN(optdata=b"\0" * 3)], [RouterAlert(value=1)]):
                for length in (0, 3, 4, 12):
                    options = [*before, HBHOptUnknown(otype=kind, optlen=length, optdata=b"\x55" * length)]
                    yield frame(to(destination) / IPv6ExtHdrHopByHop(options=options) / udp())
    # RFC 8200, appendix A: options X and Y with the padding of its figures. Routers skip the types
    # of X and Y.
    x, y, fields = 0x1E, 0x3E, bytes(range(16, 28))
    drawn = [
        bytes([17, 1, x, 12]) + fields,
        bytes([17, 1, 0, y, 7]) + fields[:7] + bytes([1, 2, 0, 0]),
        bytes([17, 3, x, 12]) + fields + bytes([1, 1, 0, y, 7]) + fields[:7] + bytes([1, 2, 0, 0]),
        bytes([17, 3, 0, y, 7]) + fields[:7] + bytes([1, 4, 0, 0, 0, 0, x, 12]) + fields,
    ]
    for header in drawn:
        assert len(header) == 8 * (header[1] + 1)
        yield frame(IPv6(src=SOURCE, dst="2001:db8:1::1", nh=0, plen=len(header) + len(udp())) / Raw(header + bytes(udp())))
    # Options longer than their header, and a header longer than the packet.
    for header in (bytes([17, 0, 0x1E, 5, 0, 0, 0, 0]), bytes([17, 0, 1, 200, 0, 0, 0, 0]), bytes([17, 40, 1, 4, 0, 0, 0, 0])):
        yield frame(IPv6(src=SOURCE, dst="2001:db8:1::1", nh=0, plen=len(header) + len(udp())) / Raw(header + bytes(udp())))
    # Extension headers that routers ignore (RFC 8200, section 4).
    for extension in (IPv6ExtHdrDestOpt(options=[HBHOptUnknown(otype=0xDE, optlen=4, optdata=b"1234")]),
                      IPv6ExtHdrFragment(m=1, offset=0, id=77), IPv6ExtHdrFragment(m=0, offset=12, id=77),
                      IPv6ExtHdrRouting(type=0, addresses=["2001:db8:1::2"], segleft=1),
                      IPv6ExtHdrHopByHop(options=[PadN(optdata=b"\0" * 4)]) / IPv6ExtHdrDestOpt()):
        yield frame(to("2001:db8:1:2::1") / extension / udp())
    # Addresses that must not be on a link, and scopes (RFC 4291, RFC 4007).
    odd = ["::", "::1", "fe80::1234", "ff01::1", "ff02::1", "ff05::2", "ff0e::101", "ff02::1:ff00:1"]
    for address in odd:
        yield frame(to("2001:db8:1::1", source=address) / udp())
        if address != "::":
            yield frame(to(address) / udp())
    yield frame(to("2001:db8:f::1", source="fe80::99") / udp())
    # A packet for the router, two packets with a wrong IP version, and truncated packets.
    yield frame(to("2001:db8:f::1") / ICMPv6EchoRequest(id=1, seq=1))
    good = frame(to("2001:db8:1::1") / udp())
    yield good[:14] + b"\x50" + good[15:]
    yield good[:14] + b"\x40" + good[15:]
    yield from (good[:length] for length in (53, 54, 60, len(good) - 1))


class Wire:
    def __init__(self):
        self.sockets = {}
        for p in MACS:
            self.sockets[p] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            self.sockets[p].bind((f"p{p}", 0))

    def next(self, seconds):
        """Returns port and frame of the next packet, or None after `seconds`.

        Skips packets that the router originates (neighbour discovery, multicast listener reports).
        """
        while True:
            ready, _, _ = select.select(list(self.sockets.values()), [], [], seconds)
            if not ready:
                return None
            data, (name, _, kind, _, _) = ready[0].recvfrom(65536)
            talk = data[12:14] != b"\x86\xdd" or data[20] == 0 and data[38] == 0xFF and data[14 + 40] == 58
            solicits = data[20] == 58 and len(data) > 54 and data[54] in range(130, 138)
            if kind != socket.PACKET_OUTGOING and not talk and not solicits:
                return int(name[1:]), data

    def result(self, frame):
        """Sends `frame` to the router and returns the result in the format of linux.txt."""
        while self.next(0) is not None:
            pass
        self.sockets[0].send(frame)
        received = self.next(WAIT_S)
        if received is None:
            return "nothing"
        port, data = received
        if port != 0:
            return f"forward p{port} {data.hex()}"
        ours = [ipaddress.IPv6Address(address).packed for address in ("2001:db8:f::1", "fe80::10")]
        if data[20] != 58 or data[22:38] not in ours:
            return "link"
        return f"icmpv6 {data[54]} {data[55]} {int.from_bytes(data[58:62], 'big')}"


def main():
    if sys.argv[1:] == ["--inside"]:
        wire = Wire()
        with open(HERE / "linux.txt", "w") as out:
            out.write("# frame, what Linux does with it: see README.md; made by make.py\n")
            for frame in frames():
                out.write(f"{frame.hex()} {wire.result(frame)}\n")
        return
    try:
        set_up()
        subprocess.run(["ip", "netns", "exec", WIRE, sys.executable, str(HERE / "make.py"), "--inside"], check=True)
    finally:
        for netns in (ROUTER, WIRE):
            subprocess.run(["ip", "netns", "del", netns])


main()
