"""Decrypts the output of the gateway in examples/03-ipsec-gateway-out.toml with scapy and compares it with the input.

usage: replay_scapy.py PLAIN.pcap ESP.pcap

The n-th frame of ESP.pcap must contain the n-th packet of PLAIN.pcap in an ESP tunnel, up to the total length in its
IPv4 header. ICMP bypasses IPsec by a policy, so these frames must be unchanged.
"""

import sys

from scapy.layers.inet import IP
from scapy.layers.ipsec import ESP, SecurityAssociation
from scapy.layers.l2 import Dot1Q, Ether
from scapy.utils import RawPcapReader

SA = SecurityAssociation(
    ESP,
    spi=0x1001,
    crypt_algo="AES-CBC",
    crypt_key=bytes(range(0x00, 0x10)),
    auth_algo="HMAC-SHA1-96",
    auth_key=bytes(range(0x10, 0x24)),
    tunnel_header=IP(src="198.51.100.1", dst="203.0.113.1"),
)


def l3_offset(frame):
    """Returns the offset of the IPv4 header in the frame, in bytes."""
    offset = 12
    while frame[offset : offset + 2] in (b"\x81\x00", b"\x88\xa8"):
        offset += 4
    return offset + 2


def decrypted(packet):
    """Checks the ICV of an ESP packet and returns the packet inside."""
    outer = IP(packet)
    assert (outer.src, outer.dst) == ("198.51.100.1", "203.0.113.1"), outer.summary()
    esp = outer[ESP]
    SA.check_spi(outer)
    SA.auth_algo.verify(esp, SA.auth_key)
    plain = SA.crypt_algo.decrypt(SA, esp, SA.crypt_key, SA.auth_algo.icv_size)
    assert plain.nh == 4, plain.nh
    return plain.data


def main(plain_path, esp_path):
    plain_frames = list(RawPcapReader(plain_path))
    esp_frames = list(RawPcapReader(esp_path))
    assert len(plain_frames) == len(esp_frames), (len(plain_frames), len(esp_frames))
    protected = 0
    for number, ((plain, _), (esp, _)) in enumerate(zip(plain_frames, esp_frames)):
        offset = l3_offset(plain)
        inner = plain[offset:]
        inner = inner[: int.from_bytes(inner[2:4], "big")]
        assert esp[:offset] == plain[:offset], f"packet {number}: the Ethernet header changed"
        if inner[9] == 1:
            assert esp == plain, f"packet {number}: the ICMP packet changed"
            continue
        assert decrypted(esp[offset:]) == inner, f"packet {number}: the decrypted packet differs"
        protected += 1
    assert protected > 0
    print(f"{len(esp_frames)} packets agree, {protected} of them in the tunnel")


if __name__ == "__main__":
    main(*sys.argv[1:])
