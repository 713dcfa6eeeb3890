"""Fragments and reassembles packets with scapy, on either side of a gateway.

usage: fragments_scapy.py make-outbound PLAIN.pcap
       fragments_scapy.py check-outbound PLAIN.pcap ESP.pcap PATH_MTU
       fragments_scapy.py make-inbound FRAGMENTS.pcap EXPECTED.pcap
       fragments_scapy.py make-hostile FRAGMENTS.pcap

make-outbound    writes packets for the tunnel, up to 3000 bytes, without DF
check-outbound   checks the packets from the gateway: no outer packet exceeds PATH_MTU, and the inner packets,
                 reassembled by scapy, equal those of PLAIN.pcap
make-inbound     writes ESP packets of a tunnel to the gateway, fragmented by scapy and shuffled, and the expected
                 inner packets
make-hostile     writes fragments that never form a packet: teardrop, ping of death, lengths that are not a multiple
                 of eight, a flood of first fragments, fragments without the rest
"""

import random
import sys

from scapy.layers.inet import IP, UDP, defragment, fragment
from scapy.layers.ipsec import ESP, SecurityAssociation
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import RawPcapReader, wrpcap

ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


def association(source, destination, spi):
    return SecurityAssociation(
        ESP,
        spi=spi,
        crypt_algo="AES-CBC",
        crypt_key=bytes(range(0x00, 0x10)),
        auth_algo="HMAC-SHA1-96",
        auth_key=bytes(range(0x10, 0x24)),
        tunnel_header=IP(src=source, dst=destination),
    )


OUT = association("192.0.2.1", "192.0.2.2", 0x1001)
IN = association("192.0.2.2", "192.0.2.1", 0x2001)


def plain(number, bytes_, rng):
    packet = IP(src="10.1.0.%d" % (number % 200 + 1), dst="10.2.0.9", id=number + 1)
    return IP(bytes(packet / UDP(sport=1000 + number, dport=7) / Raw(rng.randbytes(bytes_))))


def packets():
    rng = random.Random(7)
    return [plain(number, rng.randrange(0, 2950), rng) for number in range(200)]


def read(path):
    return [IP(frame[14:]) for frame, _ in RawPcapReader(path)]


def whole(packet):
    """Returns the bytes of the packet without the padding that links append."""
    return bytes(packet)[: packet.len]


def make_outbound(path):
    wrpcap(path, [ETHER / packet for packet in packets()])


def check_outbound(plain_path, esp_path, path_mtu):
    expected = sorted(whole(packet) for packet in read(plain_path))
    parts, numbers = [], []
    for outer in read(esp_path):
        assert outer.len <= int(path_mtu), outer.len
        numbers.append(outer[ESP].seq)
        parts.append(OUT.decrypt(outer))
    assert numbers == list(range(1, len(numbers) + 1)), "sequence numbers are not in the order of the packets"
    assert len(parts) > len(expected) * 3 // 2, f"{len(expected)} packets gave only {len(parts)} inner fragments"
    # scapy reassembles the fragments and returns whole packets unchanged.
    found = sorted(whole(IP(bytes(packet))) for packet in defragment(parts))
    assert found == expected, "%d packets became %d" % (len(expected), len(found))
    print("%d packets agree in %d parts" % (len(expected), len(parts)))


def make_inbound(fragments_path, expected_path):
    rng = random.Random(8)
    sent, expected = [], []
    for number, packet in enumerate(packets()):
        expected.append(ETHER / packet)
        outer = IN.encrypt(packet, seq_num=number + 1)
        outer.id = number + 1
        del outer.chksum
        parts = fragment(IP(bytes(outer)), fragsize=rng.choice([200, 576, 1000, 1480]))
        rng.shuffle(parts)
        sent.append(parts)
    # The fragments of four consecutive packets are shuffled together.
    frames = []
    for first in range(0, len(sent), 4):
        group = [part for parts in sent[first : first + 4] for part in parts]
        rng.shuffle(group)
        frames += [ETHER / part for part in group]
    wrpcap(fragments_path, frames)
    wrpcap(expected_path, expected)
    print("%d packets in %d fragments" % (len(expected), len(frames)))


def make_hostile(path):
    rng = random.Random(9)

    def part(identification, offset, more, bytes_):
        packet = IP(src="192.0.2.2", dst="192.0.2.1", proto=50, id=identification, frag=offset, flags="MF" if more else 0)
        return ETHER / packet / Raw(rng.randbytes(bytes_))

    frames = []
    for number in range(50):
        # Teardrop: the second fragment lies within the first.
        frames += [part(number, 0, True, 800), part(number, 10, False, 80)]
        # Ping of death: the end exceeds the largest packet, then the largest frame.
        frames += [part(1000 + number, 8189, False, 1000), part(2000 + number, 0, True, 800), part(2000 + number, 600, False, 80)]
        # Length that is not a multiple of eight.
        frames.append(part(3000 + number, 0, True, 801))
    # More incomplete packets than the gateway holds.
    frames += [part(4000 + number, 0, True, 1000) for number in range(200)]
    # The last fragment arrives after the reassembly timeout of the others.
    for index, frame in enumerate(frames):
        frame.time = 1000 + index / 1000
    late = part(9999, 5, True, 8)
    late.time = 2000
    wrpcap(path, frames + [late])


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    commands = {
        "make-outbound": make_outbound,
        "check-outbound": check_outbound,
        "make-inbound": make_inbound,
        "make-hostile": make_hostile,
    }
    commands[command](*arguments)
