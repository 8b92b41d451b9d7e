# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers for hostile tests: what they say, they say to everybody, and if wanted a byte at a time for ever."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

Talk = Callable[[socket.socket], None]


def once(listener: socket.socket, talk: Talk) -> None:
    """Answer one connection and close it."""
    with contextlib.suppress(OSError):
        sock, _address = listener.accept()
        with sock:
            sock.settimeout(30)
            talk(sock)
            # without this, what was not read of the question would reset what was said
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass


def slowly(before: bytes, byte: bytes = b"1") -> Talk:
    """Something at once, and then ten bytes a second until nobody listens."""

    def talk(sock: socket.socket) -> None:
        sock.sendall(before)
        pause = threading.Event()
        while not pause.wait(0.1):
            sock.sendall(byte)

    return talk


@contextlib.contextmanager
def server(talk: Talk) -> Iterator[int]:
    """The port on the loopback where this is said, each connection in a thread of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)

        def accept() -> None:
            while True:
                try:
                    sock, _address = listener.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(sock,), daemon=True).start()

        def answer(sock: socket.socket) -> None:
            with sock, contextlib.suppress(OSError):
                sock.settimeout(30)
                talk(sock)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):
                    pass

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
