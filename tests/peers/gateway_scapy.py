"""Runs scapy as the remote gateway of an ESP tunnel, and as the host behind this gateway.

    gateway_scapy.py INTERFACE GATEWAY_MAC SPI_IN KEY_IN SPI_OUT KEY_OUT READY

Decapsulates ESP packets to 192.0.2.2 (AES-GCM, SPI_IN). Answers echo requests to the host 10.2.0.2, and sends the
replies through the tunnel to 192.0.2.1 (SPI_OUT). Creates the file READY when it listens.
"""

import logging
import sys

logging.getLogger("scapy").setLevel(logging.ERROR)

from scapy.config import conf
from scapy.layers.inet import ICMP, IP
from scapy.layers.ipsec import ESP, SecurityAssociation
from scapy.layers.l2 import Ether

interface, gateway_mac, spi_in, key_in, spi_out, key_out, ready = sys.argv[1:]


def association(spi, key, source, destination):
    return SecurityAssociation(
        ESP,
        spi=int(spi),
        crypt_algo="AES-GCM",
        crypt_key=bytes.fromhex(key),
        tunnel_header=IP(src=source, dst=destination),
    )


inbound = association(spi_in, key_in, "192.0.2.1", "192.0.2.2")
outbound = association(spi_out, key_out, "192.0.2.2", "192.0.2.1")
socket = conf.L2socket(iface=interface)
open(ready, "w").close()
while True:
    frame = socket.recv()
    if frame is None or ESP not in frame or frame[IP].dst != "192.0.2.2":
        continue
    packet = inbound.decrypt(frame[IP])
    if ICMP not in packet or packet[ICMP].type != 8:
        continue
    reply = IP(src=packet.dst, dst=packet.src, ttl=64) / ICMP(type=0, id=packet[ICMP].id, seq=packet[ICMP].seq)
    reply = IP(bytes(reply / packet[ICMP].payload))
    socket.send(Ether(dst=gateway_mac) / outbound.encrypt(reply))
