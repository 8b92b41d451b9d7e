# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in Ray's unit and in the watchdog:
# pylint: disable=ansible-bad-function

"""Only one head: a former head that comes back after another host was declared head stays down and says why.

Each declaration of another head raises a generation, which every host keeps in C(cluster.json). The head says its own
in C(/health), the one answer that anybody may ask for: a former head is no member of the new cluster, whose firewall
has no other door for it. It says with it a proof that it knows the cluster's token, because whoever answers at the
address of a peer must not be able to take a head down. The lower generation never wins, so the head that was declared
last always starts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hmac
import http.client
import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

from .._lib import files
from . import ray_config

CLUSTER = "/etc/sparkthor/cluster.json"
#: what this host learned; it survives a reboot, and a higher generation of its own overrules it
MARKER = "/var/lib/sparkthor/superseded.json"

#: address -> what /health says there, None = nobody answers
# evaluated when the module is loaded, and sanity loads module_utils on every Python that modules may meet
Ask = Callable[[str], Optional[Mapping[str, Any]]]  # noqa: UP045


@dataclasses.dataclass(frozen=True)
class Successor:
    """Another host that was declared head after this one."""

    name: str
    generation: int

    @property
    def text(self) -> str:
        return (
            f"{self.name} was declared head of this cluster later (generation {self.generation}); this former head "
            "stays down until a play gives this host its place"
        )


def read_token(environment: Mapping[str, str] | None = None) -> str:
    """The token of the cluster, or nothing. A unit's credential goes before the file, which only root may read."""
    env = os.environ if environment is None else environment
    folder = env.get("CREDENTIALS_DIRECTORY")
    for path in (*([os.path.join(folder, "ray_token")] if folder else []), ray_config.TOKEN_PATH):
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as stream:
            return stream.read().strip()
    return ""


def prove(token: str, host: str, generation: int) -> str:
    """That whoever says it belongs to the cluster; nothing without a token."""
    return hmac.new(token.encode(), f"head {generation} {host}".encode(), "sha256").hexdigest() if token else ""


def own_proof(path: str = CLUSTER, token: Callable[[], str] = read_token) -> str:
    """For this host's own answer."""
    cluster = files.read_json(path)
    return prove(token(), str(cluster.get("host") or ""), int(cluster.get("generation") or 0))


def health(address: str, port: int, tls: bool, seconds: float = 2.0) -> Mapping[str, Any] | None:
    """What the front proxy of a host answers, if it runs one. Its certificate is its own: the question is no secret.

    A head that was declared later may speak TLS where this one does not.
    """
    for attempt in (tls, not tls):
        found = _health(address, port, attempt, seconds)
        if found is not None and "generation" in found:
            return found
    return None


def _health(address: str, port: int, tls: bool, seconds: float) -> Mapping[str, Any] | None:
    if tls:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            address, port, timeout=seconds, context=context
        )
    else:
        connection = http.client.HTTPConnection(address, port, timeout=seconds)
    try:
        connection.request("GET", "/health")
        data = json.loads(connection.getresponse().read(65536))
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return data if isinstance(data, dict) else None


def find(cluster: Mapping[str, Any], ask: Ask | None = None, token: Callable[[], str] = read_token) -> Successor | None:
    """A host that this head takes for its worker, and that proves to be the head of a higher generation."""
    own, secret = int(cluster.get("generation") or 0), token()
    peers = {
        str(name): str(address)
        for name, address in (cluster.get("peers") or {}).items()
        if name != cluster.get("host") and address
    }
    if not peers or not secret or cluster.get("host") != cluster.get("head"):
        return None
    port, tls = int(cluster.get("api_port") or 8000), bool(cluster.get("tls"))
    question = ask or (lambda address: health(address, port, tls))
    with ThreadPoolExecutor(len(peers)) as pool:
        answers = dict(zip(peers, pool.map(question, peers.values())))  # noqa: B905
    found = None
    for name, answer in answers.items():
        generation, proof = (answer or {}).get("generation"), (answer or {}).get("proof")
        if not isinstance(generation, int) or generation <= max(own, found.generation if found else 0):
            continue
        if isinstance(proof, str) and hmac.compare_digest(proof.encode(), prove(secret, name, generation).encode()):
            found = Successor(name, generation)
    return found


def known(cluster: Mapping[str, Any], marker: str = MARKER) -> Successor | None:
    """The one that was found earlier, unless a play has declared this host head again since."""
    data = files.read_json(marker)
    generation = data.get("generation")
    if not isinstance(generation, int) or generation <= int(cluster.get("generation") or 0):
        return None
    return Successor(str(data.get("name") or "another host"), generation)


def note(found: Successor, marker: str = MARKER, write: Callable[[str, str], None] = files.write_atomic) -> None:
    write(marker, json.dumps(dataclasses.asdict(found)))


def stay_down(
    path: str = CLUSTER,
    marker: str = MARKER,
    tell: Callable[[str], None] = print,
    ask: Ask | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    token: Callable[[], str] = read_token,
) -> None:
    """Returns at once unless another head was declared; then only when a play has made this host head again.

    Ray's user may not write the marker: the watchdog, which asks the same, does.
    """
    found: Successor | None = None
    said = float("-inf")
    while True:
        cluster = files.read_json(path)
        if not cluster or cluster.get("host") != cluster.get("head"):
            return
        if found is None or found.generation <= int(cluster.get("generation") or 0):
            found = known(cluster, marker) or find(cluster, ask, token)
        if found is None:
            return
        if clock() - said >= 600:
            said = clock()
            tell(found.text)
        sleep(5)


def former_head(
    move: Callable[[list[str]], Any],
    path: str = CLUSTER,
    marker: str = MARKER,
    ask: Ask | None = None,
    token: Callable[[], str] = read_token,
    write: Callable[[str, str], None] = files.write_atomic,
) -> Callable[[bool], str]:
    """For the watchdog: why this host is no longer the head; asks the others when told to.

    Once one is found, Ray is started anew here: its preparation stays down, and the engine's gate with it.
    """

    def reason(others: bool) -> str:
        cluster = files.read_json(path)
        found = known(cluster, marker)
        if found is None and others:
            found = find(cluster, ask, token)
            if found is not None:
                note(found, marker, write)
                move(["systemctl", "--no-block", "try-restart", "sparkthor-ray.service"])
        return found.text if found else ""

    return reason
