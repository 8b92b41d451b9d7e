# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, as a part of the program fanout.py:
# pylint: disable=ansible-bad-function

"""What two hosts of a fan-out say to each other: the handshake by which both prove the key of the run, and frames."""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct

from .fanout_parts import FanoutError

MAGIC = b"sparkthor-fanout-1\n"
FRAME = struct.Struct("!cII")
HELLO = struct.Struct("!32s32s32s")  # name of the run, name of the host, nonce
NONCE = 32


class Refused(FanoutError):
    """The peer is not one of this run."""


class OtherKey(Refused):
    """The peer has another key: no host of the fabric, or one that still serves an earlier run."""


def receive(sock: socket.socket, view: memoryview) -> None:
    """Fill a buffer; the kernel gathers, so that a part costs few calls."""
    done = 0
    while done < len(view):
        got = sock.recv_into(view[done:], 0, socket.MSG_WAITALL)
        if not got:
            raise ConnectionError("closed")
        done += got


def receive_bytes(sock: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    receive(sock, memoryview(data))
    return bytes(data)


def limit(sock: socket.socket, receive_seconds: int, send_seconds: int) -> None:
    # the kernel's own limits: with Python's, every call would poll first
    sock.settimeout(None)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", receive_seconds, 0))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", send_seconds, 0))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def proof(key: bytes, side: bytes, hello: bytes, nonce: bytes, manifest: bytes) -> bytes:
    return hmac.new(key, MAGIC + side + hello + nonce + manifest, hashlib.sha256).digest()


def greet(sock: socket.socket, key: bytes, run: str, node: str, manifest: bytes, peer: str) -> None:
    """The client's half of the handshake; the server proves itself first."""
    hello = HELLO.pack(run.encode(), node.encode()[:32], os.urandom(NONCE))
    sock.sendall(MAGIC + hello)
    answer = receive_bytes(sock, NONCE + 32 + 32)
    nonce, theirs, shown = answer[:NONCE], answer[NONCE : NONCE + 32], answer[NONCE + 32 :]
    if not hmac.compare_digest(shown, proof(key, b"server", hello, nonce, theirs)):
        raise OtherKey(f"{peer} does not hold the key of this run")
    if theirs != manifest:
        raise Refused(f"{peer} has another manifest than this host: the source changed between two steps; run again")
    sock.sendall(proof(key, b"client", hello, nonce, manifest))


def admit(sock: socket.socket, key: bytes, run: str, manifest: bytes) -> str:
    """The server's half; the client's name once it has proved that it holds the key."""
    data = receive_bytes(sock, len(MAGIC) + HELLO.size)
    if not data.startswith(MAGIC):
        raise Refused("no peer of this kind")
    hello = data[len(MAGIC) :]
    theirs, node, _nonce = HELLO.unpack(hello)
    nonce = os.urandom(NONCE)
    sock.sendall(nonce + manifest + proof(key, b"server", hello, nonce, manifest))
    if theirs.rstrip(b"\0") != run.encode():
        raise Refused("a peer of another run")
    if not hmac.compare_digest(receive_bytes(sock, 32), proof(key, b"client", hello, nonce, manifest)):
        raise Refused("a peer without the key of this run")
    return str(node.rstrip(b"\0").decode())
