"""scapy as the other end of an ESP tunnel with AES-128-CBC and HMAC-SHA1-96.

    ipsec_scapy.py open SA ESP.pcap PLAIN.pcap    decrypt ESP.pcap, compare with the IPv4 packets of PLAIN.pcap
    ipsec_scapy.py seal SA PLAIN.pcap ESP.pcap    encrypt the IPv4 packets of PLAIN.pcap into ESP.pcap

SA is SPI,SOURCE,DESTINATION,ENCRYPTION_KEY,AUTHENTICATION_KEY: decimal, two IPv4 addresses, two keys in hex.
Prints how many packets there were; exits 1 with one sentence at the first that differs.
"""

import logging
import sys

logging.getLogger("scapy").setLevel(logging.ERROR)

from scapy.layers.inet import IP
from scapy.layers.ipsec import ESP, SecurityAssociation
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap, wrpcap


def association(text):
    spi, source, destination, encryption_key, authentication_key = text.split(",")
    return SecurityAssociation(
        ESP,
        spi=int(spi),
        crypt_algo="AES-CBC",
        crypt_key=bytes.fromhex(encryption_key),
        auth_algo="HMAC-SHA1-96",
        auth_key=bytes.fromhex(authentication_key),
        tunnel_header=IP(src=source, dst=destination),
    )


def ipv4(frame):
    """The IPv4 packet of a frame, without what follows it."""
    packet = bytes(frame[IP])
    return packet[: int.from_bytes(packet[2:4], "big")]


def open_all(sa, sealed, plain):
    if len(sealed) != len(plain):
        sys.exit(f"{len(sealed)} ESP packets, but {len(plain)} plain ones")
    for number, (esp, expected) in enumerate(zip(sealed, plain), 1):
        # Checks the ICV, and raises where it is wrong.
        inner = bytes(sa.decrypt(IP(ipv4(esp))))
        if inner != ipv4(expected):
            sys.exit(f"packet {number}: {inner.hex()} came out, {ipv4(expected).hex()} went in")


def seal_all(sa, plain, path):
    frames = []
    for frame in plain:
        esp = sa.encrypt(IP(ipv4(frame)))
        frames.append(Ether(src=frame.src, dst=frame.dst) / esp)
    wrpcap(path, frames)


def main():
    command, sa, first, second = sys.argv[1:]
    sa = association(sa)
    packets = rdpcap(first)
    if command == "open":
        open_all(sa, packets, rdpcap(second))
    elif command == "seal":
        seal_all(sa, packets, second)
    else:
        sys.exit(f"{command}: neither open nor seal")
    print(len(packets))


main()
