# Ansible managed: sparkthor.cluster
# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, for keepalived:
# pylint: disable=ansible-bad-function
"""Whether this host's front proxy answers, for whoever decides which head has the virtual address.

    python3 front-answers PORT [tls]

Any answer of HTTP will do: a front proxy whose own model is away still leads to those of other hosts, and says honestly
when to come again. nginx alone answers this question, with 404: for ``/health`` it would wait for the watchdog.

keepalived asks every second, so this is one file that imports nothing it does not need. It runs on heads alone, where
there is a virtual address: virtual_address.py plans its text as a file, and no other host gets it.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence

#: seconds until silence is one
PATIENCE = 2.0
USAGE = "usage: front-answers PORT [tls]\n"
QUESTION = b"GET /health/front HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def answers(port: int, tls: bool, seconds: float = PATIENCE) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=seconds) as plain:
            if not tls:
                return _spoken(plain)
            # on the host itself nothing is gained by a check of the certificate, which may be a person's
            import ssl

            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            with context.wrap_socket(plain) as secret:
                return _spoken(secret)
    except OSError:
        return False


def _spoken(connection: socket.socket) -> bool:
    connection.sendall(QUESTION)
    # to its end, so that the front proxy need not note a client that hung up
    with connection.makefile("rb") as answer:
        return answer.read(65536).startswith(b"HTTP/1.")


def main(arguments: Sequence[str]) -> int:
    if not arguments or not arguments[0].isdigit() or list(arguments[1:]) not in ([], ["tls"]):
        sys.stderr.write(USAGE)
        return 2
    return 0 if answers(int(arguments[0]), len(arguments) > 1) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
