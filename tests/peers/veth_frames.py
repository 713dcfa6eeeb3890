"""Sends frames by one interface and checks the frames that arrive at another interface.

    veth_frames.py SEND RECEIVE COUNT

The function `echo` between the interfaces must swap the MAC addresses and change nothing else. The script prints the
numbers of sent, received and correct frames. At most 64 frames are in flight, so that no queue overflows.
"""

import select
import socket
import struct
import sys
import time


def frame(number):
    payload = bytes((number + index) & 255 for index in range(18 + number * 13 % 1450))
    udp = struct.pack("!HHHH", 1000 + number % 7, 9, 8 + len(payload), 0) + payload
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), number & 65535, 0, 64, 17, 0, b"\x0a\0\0\1", b"\x0a\1\0\1")
    total = sum(struct.unpack("!10H", header))
    total = (total & 65535) + (total >> 16)
    header = header[:10] + struct.pack("!H", ~((total & 65535) + (total >> 16)) & 65535) + header[12:]
    return b"\2\0\0\0\0\2" + b"\2\0\0\0\0\1" + b"\x08\0" + header + udp


def raw(interface):
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    opened.bind((interface, 3))
    return opened


send, receive, count = raw(sys.argv[1]), raw(sys.argv[2]), int(sys.argv[3])
sent, received = [], []
last = time.monotonic()
while len(received) < count and time.monotonic() - last < 5:
    while len(sent) < count and len(sent) - len(received) < 64:
        sent.append(frame(len(sent)))
        send.send(sent[-1])
    if select.select([receive], [], [], 0.05)[0]:
        data, address = receive.recvfrom(65536)
        # The socket also receives the frames that this machine sends by the interface.
        if address[2] != socket.PACKET_OUTGOING and data[12:14] == b"\x08\0":
            received.append(data)
            last = time.monotonic()
swapped = [one[6:12] + one[:6] + one[12:] for one in sent]
print("sent", len(sent), "received", len(received), "correct", sum(one == other for one, other in zip(swapped, received)))
