"""Runs scapy as the remote end of IPsec, for many SAs and packets in one run.

    ipsec_scapy.py < REQUESTS > REPLIES

Each line of REQUESTS is one of these; packets are in hexadecimal:

    sa NAME=VALUE...              selects the SA of the next requests
    encapsulate SEQUENCE PACKET   replies with the IPsec packet for an IP packet
    decapsulate PACKET            replies with the IP packet in an IPsec packet

The values of an SA are:

    protocol    ESP or AH
    spi
    crypt       encryption algorithm; crypt_key ends with the salt
    icv         length of the ICV of a combined mode, in bytes
    auth        authentication algorithm; for GMAC, auth_key ends with the salt
    tunnel      SOURCE,DESTINATION
    udp         SOURCE_PORT,DESTINATION_PORT
    esn         upper half of the sequence number

The reply to a request is one line: "ok", a packet in hexadecimal, or "error" with the reason. scapy lacks GCM and CCM with
short ICVs, GMAC, AES-XCBC, and extended sequence numbers with separate encryption and authentication. This script adds
them with pyca/cryptography.
"""

import logging
import os
import struct
import sys

logging.getLogger("scapy").setLevel(logging.ERROR)

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM
from scapy.layers import ipsec
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import AH, ESP, AuthAlgo, CryptAlgo, IPSecIntegrityError, SecurityAssociation

SALT_BYTES = 4
IV_BYTES = 8


def gcm_with_icv(icv_bytes):
    """Returns AES-GCM with an ICV of `icv_bytes`. scapy's own AES-GCM always has an ICV of 16 bytes."""
    return CryptAlgo(
        f"AES-GCM-{icv_bytes}",
        cipher=algorithms.AES,
        mode=modes.GCM,
        key_size=(16, 24, 32),
        salt_size=SALT_BYTES,
        block_size=1,
        iv_size=IV_BYTES,
        icv_size=icv_bytes,
        format_mode_iv=lambda sa, iv, **_: sa.crypt_salt + iv,
    )


def ccm_with_icv(icv_bytes):
    """Returns AES-CCM with an ICV of `icv_bytes`. scapy's own AES-CCM always has an ICV of 16 bytes."""
    return CryptAlgo(
        f"AES-CCM-{icv_bytes}",
        cipher=AESCCM,
        mode=None,
        key_size=(16, 24, 32),
        salt_size=3,
        block_size=1,
        iv_size=IV_BYTES,
        icv_size=icv_bytes,
        format_mode_iv=lambda sa, iv, **_: sa.crypt_salt + iv,
    )


for icv_bytes in (8, 12):
    ipsec.CRYPT_ALGOS[f"AES-GCM-{icv_bytes}"] = gcm_with_icv(icv_bytes)
    ipsec.CRYPT_ALGOS[f"AES-CCM-{icv_bytes}"] = ccm_with_icv(icv_bytes)


class XcbcMac:
    """AES-XCBC-MAC (RFC 3566), with the interface of pyca's MACs."""

    def __init__(self, key):
        derive = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update
        self.keys = [derive(bytes([number] * 16)) for number in (1, 2, 3)]
        self.data = b""

    def update(self, data):
        self.data += data

    def finalize(self):
        complete = self.data and len(self.data) % 16 == 0
        padded = self.data if complete else self.data + b"\x80" + bytes(-(len(self.data) + 1) % 16)
        last = bytes(a ^ b for a, b in zip(padded[-16:], self.keys[1 if complete else 2]))
        return Cipher(algorithms.AES(self.keys[0]), modes.CBC(bytes(16))).encryptor().update(padded[:-16] + last)[-16:]


class Xcbc(AuthAlgo):
    """AES-XCBC-MAC-96, which scapy lacks."""

    def __init__(self):
        super().__init__("AES-XCBC-96", mac=XcbcMac, digestmod=None, icv_size=12, key_size=(16,))

    def new_mac(self, key):
        return XcbcMac(key)


ipsec.AUTH_ALGOS["AES-XCBC-96"] = Xcbc()


class Gmac(AuthAlgo):
    """AES-GMAC (RFC 4543). In ESP the IV precedes the payload, as for ciphers. In AH it precedes the ICV."""

    def __init__(self):
        super().__init__("AES-GMAC", mac=True, digestmod=None, icv_size=IV_BYTES + 16)

    def tag(self, key, iv, data):
        key, salt = key[:-SALT_BYTES], key[-SALT_BYTES:]
        return AESGCM(key).encrypt(salt + iv, b"", data)

    def ah_data(self, packet, sending, esn_en, esn):
        """Returns the IV and the authenticated data: the packet with a zero ICV and its IV (RFC 4543, section 4)."""
        iv = bytes(packet[AH].icv[:IV_BYTES])
        clone = ipsec.zero_mutable_fields(packet.copy(), sending=sending)
        clone[AH].icv = iv + b"\0" * 16
        return iv, bytes(clone) + (struct.pack("!L", esn) if esn_en else b"")

    def sign(self, pkt, key, esn_en=False, esn=0):
        pkt[AH].icv = os.urandom(IV_BYTES) + b"\0" * 16
        iv, data = self.ah_data(pkt, True, esn_en, esn)
        pkt[AH].icv = iv + self.tag(key, iv, data)
        return pkt

    def verify(self, pkt, key, esn_en=False, esn=0):
        pkt[AH].padding = pkt[AH].icv[self.icv_size :]
        pkt[AH].icv = pkt[AH].icv[: self.icv_size]
        iv, data = self.ah_data(pkt, False, esn_en, esn)
        if pkt[AH].icv[IV_BYTES:] != self.tag(key, iv, data):
            raise IPSecIntegrityError("GMAC")


ipsec.AUTH_ALGOS["AES-GMAC"] = Gmac()


class EspAuth(AuthAlgo):
    """Authentication of ESP by an algorithm of scapy, with extended sequence numbers and GMAC in addition."""

    def __init__(self, base, esn, is_gmac):
        super().__init__(base.name, base.mac, base.digestmod, 16 if is_gmac else base.icv_size)
        self.base, self.upper, self.is_gmac = base, b"" if esn is None else struct.pack("!L", esn), is_gmac

    def icv(self, esp, key):
        if self.is_gmac:
            iv = esp[8 : 8 + IV_BYTES]
            return self.base.tag(key, iv, esp[:4] + self.upper + esp[4:])
        mac = self.base.new_mac(key)
        mac.update(esp + self.upper)
        return mac.finalize()[: self.icv_size]

    def sign(self, pkt, key, esn_en=False, esn=0):
        pkt[ESP].data += self.icv(bytes(pkt[ESP]), key)
        return pkt

    def verify(self, pkt, key, esn_en=False, esn=0):
        esp = bytes(pkt)
        if esp[-self.icv_size :] != self.icv(esp[: -self.icv_size], key):
            raise IPSecIntegrityError("ICV")


def association(values):
    values = dict(value.split("=", 1) for value in values)
    esn = int(values["esn"]) if "esn" in values else None
    protocol = {"ESP": ESP, "AH": AH}[values["protocol"]]
    tunnel = None
    if "tunnel" in values:
        source, destination = values["tunnel"].split(",")
        header = IPv6 if ":" in source else IP
        tunnel = header(src=source, dst=destination)
    udp = None
    if "udp" in values:
        source, destination = (int(port) for port in values["udp"].split(","))
        udp = UDP(sport=source, dport=destination)
    auth = values.get("auth")
    crypt = values.get("crypt")
    if values.get("icv", "16") != "16":
        crypt += "-" + values["icv"]
    is_esp_gmac = protocol is ESP and auth == "AES-GMAC"
    sa = SecurityAssociation(
        protocol,
        spi=int(values["spi"]),
        crypt_algo=crypt,
        crypt_key=bytes.fromhex(values.get("crypt_key", "")) or None,
        auth_algo=auth,
        auth_key=bytes.fromhex(values.get("auth_key", "")),
        tunnel_header=tunnel,
        nat_t_header=udp,
        esn_en=esn is not None,
        esn=esn or 0,
    )
    if protocol is ESP and auth and (esn is not None or is_esp_gmac):
        sa.auth_algo = EspAuth(sa.auth_algo, esn, is_esp_gmac)
    if is_esp_gmac:
        # ESP with GMAC has no encryption, but its packets contain an IV.
        sa.crypt_algo = CryptAlgo("NULL with GMAC", cipher=None, mode=None, iv_size=IV_BYTES)
    return sa


def ip(packet):
    return IPv6(packet) if packet[0] >> 4 == 6 else IP(packet)


def encapsulate(sa, sequence, packet):
    outer = sa.encrypt(ip(packet), seq_num=sequence)
    if UDP in outer:
        # scapy sets the length to that of an empty datagram.
        outer[UDP].len = len(outer[UDP])
        if outer.version == 4:
            del outer.chksum
    return bytes(outer)


def without_udp(packet):
    """Removes the UDP header of UDP-encapsulated ESP in IPv6. scapy removes it in IPv4 only."""
    packet[UDP].underlayer.nh = 50
    esp = packet[UDP].payload
    packet[UDP].underlayer.remove_payload()
    return ip(bytes(packet / esp))


def decapsulate(sa, packet):
    packet = ip(packet)
    if UDP in packet and packet.version == 6:
        packet = without_udp(packet)
    return bytes(sa.decrypt(packet))


def reply(sa, words):
    if words[0] == "encapsulate":
        return encapsulate(sa, int(words[1]), bytes.fromhex(words[2])).hex()
    if words[0] == "decapsulate":
        return decapsulate(sa, bytes.fromhex(words[1])).hex()
    sys.exit(f"unknown request {words[0]}: use sa, encapsulate or decapsulate")


def main():
    sa = None
    for line in sys.stdin:
        words = line.split()
        if words[0] == "sa":
            sa = association(words[1:])
            print("ok")
            continue
        try:
            print(reply(sa, words))
        except Exception as error:
            print("error", type(error).__name__, str(error).replace("\n", " "))


main()
