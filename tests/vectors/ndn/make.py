#!/usr/bin/env python3
"""Writes packets.txt: frames, their verdicts, and the sent frames. Takes no arguments.

The script has a separate encoder and forwarder, written from NDN Packet Format 0.3, NDNLPv2 and the RFCs. It shares no
code with Godwit. Names are tuples, and the table is a dict.
"""
import random
import struct
from pathlib import Path

R = random.Random(20)


def num(n):
    if n < 253:
        return bytes([n])
    if n < 1 << 16:
        return b"\xfd" + struct.pack(">H", n)
    if n < 1 << 32:
        return b"\xfe" + struct.pack(">I", n)
    return b"\xff" + struct.pack(">Q", n)


def tlv(t, v=b""):
    return num(t) + num(len(v)) + v


def name(*parts):
    return tlv(7, b"".join(tlv(*p) if isinstance(p, tuple) else tlv(8, p.encode()) for p in parts))


def csum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def udp(src, dst, sport, dport, data, zero=False):
    head = struct.pack(">HHHH", sport, dport, 8 + len(data), 0)
    if len(src) == 4:
        pseudo = src + dst + struct.pack(">BBH", 0, 17, 8 + len(data))
    else:
        pseudo = src + dst + struct.pack(">IBBBB", 8 + len(data), 0, 0, 0, 17)
    c = 0 if zero else csum(pseudo + head + data) or 0xFFFF
    return head[:6] + struct.pack(">H", c) + data


def ip4(src, dst, data, ttl=64, ident=0, flags=0x4000, proto=17, options=b""):
    words = 5 + len(options) // 4
    head = struct.pack(">BBHHHBBH", 0x40 | words, 0, words * 4 + len(data), ident, flags, ttl, proto, 0) + src + dst + options
    return head[:10] + struct.pack(">H", csum(head)) + head[12:] + data


def ip6(src, dst, data, hops=64):
    return struct.pack(">IHBB", 0x60000000, len(data), 17, hops) + src + dst + data


def eth(dst, src, kind, data, tag=None):
    vlan = b"" if tag is None else struct.pack(">HH", 0x8100, tag)
    return dst + src + vlan + struct.pack(">H", kind) + data


# Next hops and table. The test crates/function/tests/ndn_vectors.rs configures the same ones.
HOPS = {
    "east": ("eth", 1, b"\2\0\0\0\1\1", b"\2\0\0\0\1\2"),
    "four": ("udp4", 2, b"\2\0\0\0\2\1", b"\2\0\0\0\2\2", bytes([192, 0, 2, 1]), bytes([198, 51, 100, 7]), 6363, 7000),
    "six": ("udp6", 3, b"\2\0\0\0\3\1", b"\2\0\0\0\3\2", bytes.fromhex("20010db8" + "00" * 11 + "01"),
            bytes.fromhex("20010db8" + "00" * 11 + "02"), 6363, 6363),
    "here": ("local",),
    "nowhere": ("blackhole",),
}
ORDER = list(HOPS)
TABLE = {
    ("a",): "east", ("a", "b"): "four", ("a", "b", "c"): "six", ("a", "b", "c", "d", "e"): "here",
    ("B",): "six", ("A",): "east", ("example", "site"): "four", ("example", "site", "private"): "nowhere",
    ("x" * 300,): "east", ((32, b"key"), "z"): "six", ((54, b"\7"),): "four",
}


def key(parts):
    return tuple((8, p.encode()) if isinstance(p, str) else p for p in parts)


FIB = {key(k): v for k, v in TABLE.items()}


class Bad(Exception):
    pass


def take(data, pos, end):
    """Returns type, start and end of the value of the TLV at pos.

    Raises Bad("short") if the TLV does not end before end, and Bad("wrong") if it is malformed.
    """
    def number(pos):
        if pos >= end:
            raise Bad("short")
        first = data[pos]
        if first < 253:
            return first, pos + 1, 1
        size = {253: 2, 254: 4, 255: 8}[first]
        if pos + 1 + size > end:
            raise Bad("short")
        n = int.from_bytes(data[pos + 1:pos + 1 + size], "big")
        if num(n) != data[pos:pos + 1 + size]:
            raise Bad("wrong")
        return n, pos + 1 + size, 1 + size
    t, pos, size = number(pos)
    if t == 0 or size == 9:
        raise Bad("wrong")
    length, pos, _ = number(pos)
    if pos + length > end:
        raise Bad("short")
    return t, pos, pos + length


def forward(frame):
    """Returns the verdict with its drop reason, the next hop, and the sent frame."""
    if len(frame) < 14:
        return "drop truncated", None, None
    kind, pos, tag = int.from_bytes(frame[12:14], "big"), 14, None
    if kind == 0x8100:
        if len(frame) < 18:
            return "drop truncated", None, None
        tag, kind, pos = int.from_bytes(frame[14:16], "big"), int.from_bytes(frame[16:18], "big"), 18
    end, over_udp = len(frame), False
    if kind in (0x0800, 0x86DD):
        over_udp = True
        if kind == 0x0800:
            if end - pos < 20:
                return "drop truncated", None, None
            words, total = frame[pos] & 15, int.from_bytes(frame[pos + 2:pos + 4], "big")
            if frame[pos] >> 4 != 4 or words < 5 or total < words * 4:
                return "drop malformed", None, None
            if total > end - pos:
                return "drop truncated", None, None
            if frame[pos + 9] != 17 or int.from_bytes(frame[pos + 6:pos + 8], "big") & 0x3FFF:
                return "not_ndn", None, None
            l4, end = pos + words * 4, pos + total
            pseudo = frame[pos + 12:pos + 20] + b"\0\x11"
            header_good = csum(frame[pos:l4]) == 0
        else:
            if end - pos < 40:
                return "drop truncated", None, None
            if frame[pos] >> 4 != 6:
                return "drop malformed", None, None
            total = int.from_bytes(frame[pos + 4:pos + 6], "big")
            if total > end - pos - 40:
                return "drop truncated", None, None
            if frame[pos + 6] != 17:
                return "not_ndn", None, None
            l4, end = pos + 40, pos + 40 + total
            pseudo = frame[pos + 8:pos + 40] + b"\0\x11"
            header_good = True
        if end - l4 < 8:
            return "drop truncated", None, None
        if frame[l4 + 2:l4 + 4] != struct.pack(">H", 6363):
            return "not_ndn", None, None
        if not header_good:
            return "drop checksum", None, None
        length = int.from_bytes(frame[l4 + 4:l4 + 6], "big")
        if length < 8:
            return "drop malformed", None, None
        if length > end - l4:
            return "drop truncated", None, None
        if frame[l4 + 6:l4 + 8] == b"\0\0":
            if kind == 0x86DD:
                return "drop checksum", None, None
        elif csum(pseudo + struct.pack(">H", length) + frame[l4:l4 + length]) != 0:
            return "drop checksum", None, None
        pos, end = l4 + 8, l4 + length
    elif kind != 0x8624:
        return "not_ndn", None, None
    start = pos
    try:
        t, v, e = take(frame, pos, end)
    except Bad as bad:
        return ("drop truncated" if bad.args[0] == "short" else "drop malformed"), None, None
    if over_udp and e != end:
        return "drop malformed", None, None
    whole = (start, e)
    try:
        if t == 100:
            fields, at, inside = [], v, None
            while at < e:
                ft, fv, at = take(frame, at, e)
                if ft == 80:
                    if at != e:
                        raise Bad("wrong")
                    inside = (fv, at)
                    break
                skip = 800 <= ft <= 959 and ft % 4 == 0
                if fields and (ft < fields[-1][0] or ft == fields[-1][0] and not skip):
                    raise Bad("wrong")
                value = frame[fv:at]
                if ft in (82, 83):
                    if len(value) not in (1, 2, 4, 8):
                        raise Bad("wrong")
                elif ft == 81:
                    if len(value) != 8:
                        raise Bad("wrong")
                elif ft == 98:
                    if not 1 <= len(value) <= 32:
                        raise Bad("wrong")
                elif not skip:
                    raise Bad("wrong")
                fields.append((ft, value))
            known = dict(fields)
            index = int.from_bytes(known.get(82, b"\0"), "big")
            count = int.from_bytes(known.get(83, b"\1"), "big")
            if inside is None or inside[0] == inside[1] or (index, count) != (0, 1) or 800 in known:
                return "other", None, None
            t, v, e = take(frame, *inside)
            if e != inside[1]:
                raise Bad("wrong")
        if t == 6:
            return "data", None, None
        if t != 5:
            return "other", None, None
        nt, nv, ne = take(frame, v, e)
        if nt != 7:
            raise Bad("wrong")
        parts, at = [], nv
        while at < ne:
            ct, cv, at = take(frame, at, ne)
            if ct > 65535 or ct in (1, 2) and at - cv != 32:
                raise Bad("wrong")
            parts.append((ct, frame[cv:at]))
        if not parts:
            raise Bad("wrong")
        order = [33, 18, 30, 10, 12, 34, 36, 44, 46]
        sizes = {33: [0], 18: [0], 10: [4], 12: [1, 2, 4, 8], 34: [1]}
        position, nonce, hop_at, at = 0, False, None, ne
        while at < e:
            et, ev, at = take(frame, at, e)
            if et in order and order.index(et) >= position:
                if et in sizes and at - ev not in sizes[et]:
                    raise Bad("wrong")
                position = order.index(et) + 1
                nonce |= et == 10
                hop_at = ev if et == 34 else hop_at
            elif et <= 31 or et % 2:
                raise Bad("wrong")
    except Bad:
        return "drop malformed", None, None
    if hop_at is not None and frame[hop_at] == 0:
        return "drop hop_limit", None, None
    if not nonce:
        return "drop no_nonce", None, None
    hop = next((FIB[tuple(parts[:n])] for n in range(len(parts), 0, -1) if tuple(parts[:n]) in FIB), None)
    if hop is None:
        return "drop no_route", None, None
    if HOPS[hop][0] == "local":
        return "local", hop, None
    if HOPS[hop][0] == "blackhole":
        return "drop blackhole", None, None
    packet = bytearray(frame[whole[0]:whole[1]])
    if hop_at is not None:
        if frame[hop_at] == 1:
            return "drop hop_limit", None, None
        packet[hop_at - whole[0]] -= 1
    packet = bytes(packet)
    carrier, _, dst, src = HOPS[hop][:4]
    if carrier == "eth":
        padding = b"" if over_udp else frame[whole[1]:]
        return "forward", hop, eth(dst, src, 0x8624, packet + padding, tag)
    own, other, sport, dport = HOPS[hop][4:]
    datagram = udp(own, other, sport, dport, packet)
    if carrier == "udp4":
        return "forward", hop, eth(dst, src, 0x0800, ip4(own, other, datagram), tag)
    return "forward", hop, eth(dst, src, 0x86DD, ip6(own, other, datagram), tag)


def carried(packet):
    """Returns a frame that carries packet over Ethernet, UDP over IPv4, or UDP over IPv6."""
    carrier, tag = R.choice(["eth", "udp4", "udp6"]), R.choice([None, None, 5])
    dst, src = b"\2\0\0\0\x09\1", b"\2\0\0\0\x09\2"
    if carrier == "eth":
        return eth(dst, src, 0x8624, packet + b"\0" * R.choice([0, 0, 9]), tag)
    port = R.choice([6363] * 9 + [6364])
    if carrier == "udp4":
        a, b = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
        options = R.choice([b"", b"", b"\1\1\1\0"])
        return eth(dst, src, 0x0800, ip4(a, b, udp(a, b, 50000, port, packet, R.random() < 0.2), 9, 3, 0, 17, options), tag)
    a, b = b"\xfd" * 16, b"\xfe" * 16
    return eth(dst, src, 0x86DD, ip6(a, b, udp(a, b, 50000, port, packet, R.random() < 0.1), 9), tag)


# Packets from public test suites: usnistgov/ndn-dpdk, ndn/interest_test.go; yoursunny/NDNts,
# packages/packet/tests/interest.t.ts.
PUBLIC = [
    "0505 0703080141",
    "050B 0703080141 0A04C0C1C2C3",
    "0523 0703080142 2100 1200 1E0B1F091E0121070408024648 0A0485AC8579 0C022006 220105",
    "0523 0703080141 2100 1200 1E0B1F091E0121070408024648 0A04A0A1A2A3 0C0276A1 2201DC",
    "6414 6203B0B1B2 500D 050B 0703080141 0A04C0C1C2C3",
]


def packets():
    for text in PUBLIC:
        yield bytes.fromhex(text.replace(" ", ""))
    words = ["a", "b", "c", "d", "e", "example", "site", "private", "x" * 300, "", (32, b"key"), (54, b"\7"), (1, bytes(32)), (2, b"\5" * 32), "z"]
    for _ in range(420):
        parts = list(R.choice(list(TABLE))) if R.random() < 0.7 else []
        parts += [R.choice(words) for _ in range(R.choice([0, 0, 1, 2, 5, 30]))]
        body = name(*parts) if R.random() < 0.97 else tlv(8, b"a")
        for t, v, p in [(33, b"", .3), (18, b"", .3), (30, name("hint"), .1), (10, b"\1\2\3\4", .95), (12, b"\x0f\xa0", .3),
                        (34, bytes([R.choice([0, 1, 2, 64, 255])]), .5), (36, b"p", .1), (44, tlv(27, b"\0"), .05), (46, b"s" * 32, .05)]:
            if R.random() < p:
                body += tlv(t, v if R.random() < .98 else v + b"\0")
            if R.random() < .01:
                body += tlv(R.choice([9, 32, 35, 240, 241, 34, 10, 70000, 70001]), b"?")
        packet = tlv(R.choice([5] * 20 + [6, 9, 300]), body)
        if R.random() < .25:
            head = b"".join(tlv(t, v) for t, v, p in [(81, b"\0" * 8, .2), (82, b"\0\0", .2), (83, R.choice([b"\1", b"\2"]), .2), (98, b"tok", .4),
                                                     (800, b"", .1), (817, b"\1", .05), (832, b"\1", .3), (836, b"\0" * 8, .2), (836, b"\1" * 8, .2)] if R.random() < p)
            packet = tlv(100, head + (tlv(80, packet) if R.random() < .95 else b""))
        yield packet


def longer_than_their_packets():
    """Yields names, components and Interests whose length exceeds the enclosing element, in every length encoding."""
    rest = tlv(8, b"a") + tlv(8, b"b") + tlv(10, b"\1\2\3\4")
    lengths = [len(rest) + 1, 200, 252, 253, 300, 8800, 65535, 65536, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) + 7, (1 << 64) - 1]
    for length in lengths:
        yield tlv(5, num(7) + num(length) + rest)                       # the name exceeds the Interest
        yield tlv(5, tlv(7, num(8) + num(length) + b"a") + tlv(10, b"\1\2\3\4"))  # a component exceeds the name
        yield num(5) + num(min(length + 20, (1 << 64) - 1)) + num(7) + num(length) + rest   # the Interest exceeds the packet
    # An Interest that ends exactly with its packet, and one whose last byte is missing.
    whole = tlv(5, name("x" * 300) + tlv(10, b"\1\2\3\4"))
    yield whole
    yield whole[:-1]


def main():
    lines = ["# verdict or reason, name of the next hop or -, frame, frame that leaves or -; made by make.py"]
    seen = set()
    for packet in packets():
        frame = bytearray(carried(packet))
        if R.random() < .1:
            frame[R.randrange(len(frame))] ^= 1 << R.randrange(8)
        elif R.random() < .05:
            del frame[R.randrange(len(frame)):]
        what, hop, out = forward(bytes(frame))
        seen.add(what)
        lines.append(f"{what.replace(' ', ':')} {hop or '-'} {bytes(frame).hex() or '-'} {out.hex() if out else '-'}")
    dst, src = b"\2\0\0\0\x09\1", b"\2\0\0\0\x09\2"
    a, b, c, d = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), b"\xfd" * 16, b"\xfe" * 16
    for packet in longer_than_their_packets():
        for frame in [eth(dst, src, 0x8624, packet), eth(dst, src, 0x0800, ip4(a, b, udp(a, b, 50000, 6363, packet))),
                      eth(dst, src, 0x86DD, ip6(c, d, udp(c, d, 50000, 6363, packet)))]:
            what, hop, out = forward(frame)
            lines.append(f"{what.replace(' ', ':')} {hop or '-'} {frame.hex()} {out.hex() if out else '-'}")
    print(sorted(seen))
    Path(__file__).with_name("packets.txt").write_text("\n".join(lines) + "\n")


main()
