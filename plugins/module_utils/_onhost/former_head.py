# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in Ray's unit and in the watchdog:
# pylint: disable=ansible-bad-function

"""Only one head: a former head that comes back after another host was declared head stays down and says why.

Each declaration of another head raises a generation, which every host keeps in C(cluster.json). The head says its own
in C(/health), the one answer that anybody may ask for: a former head is no member of the new cluster, whose firewall
has no other door for it. Who asks with a nonce also gets a proof that this very host knows the cluster's token now:
whoever answers at the address of a peer, or has heard an answer, must not be able to take a head down. The lower
generation never wins, so the head that was declared last always starts.

What was found counts for as long as that host is a peer in the same cluster and its generation is the higher one. A
play that declares this host head again plans a generation above all that were seen, so no head stays down for ever.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hmac
import http.client
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

from .._lib import files, foreign, peer
from . import generation as generations
from . import places, ray_config
from .generation import MOST_MISSED

CLUSTER = places.DECLARED
#: what this host learned; it survives a reboot, and a higher generation of its own overrules it
MARKER = "/var/lib/sparkthor/superseded.json"

#: bytes of what C(/health) says, at most
ANSWER_LIMIT = 65536

#: address, nonce -> what /health says there, None = nobody answers
# evaluated when the module is loaded, and sanity loads module_utils on every Python that modules may meet
Ask = Callable[[str, str], Optional[Mapping[str, Any]]]  # noqa: UP045


@dataclasses.dataclass(frozen=True)
class Successor:
    """Another host that was declared head after this one."""

    name: str
    generation: int
    cluster: str = ""

    def counts(self, declared: Mapping[str, Any]) -> bool:
        """Whether what this host was declared since leaves it the former head of that cluster."""
        return (
            declared_generation(declared) < self.generation
            and str(declared.get("cluster") or "") == self.cluster
            and self.name != declared.get("host")
            and self.name in (declared.get("peers") or {})
        )

    @property
    def text(self) -> str:
        return (
            f"{self.name} was declared head of this cluster later (generation {self.generation}); this former head "
            "stays down until a play gives this host its place"
        )


def read_former_token(environment: Mapping[str, str] | None = None) -> str:
    """The token of the cluster, or nothing. A unit's credential goes before the file, which only root may read."""
    env = os.environ if environment is None else environment
    folder = env.get("CREDENTIALS_DIRECTORY")
    for path in (*([os.path.join(folder, "ray_token")] if folder else []), ray_config.TOKEN_PATH):
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as stream:
            return stream.read().strip()
    return ""


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a head can prove to be."""

    host: str = ""
    cluster: str = ""
    generation: int = 0
    token: str = dataclasses.field(default="", repr=False)
    #: what it keeps under any name; empty where that is not known
    machine: str = ""

    @classmethod
    def read(cls, path: str = CLUSTER, token: Callable[[], str] = read_former_token) -> Identity:
        data = files.read_json(path)
        host = str(data.get("host") or "")
        machine = str((data.get("machines") or {}).get(host) or "")
        return cls(host, str(data.get("cluster") or ""), declared_generation(data), token(), machine)

    def proof(self, nonce: str) -> str:
        """Nothing without a token, and for a question that is none."""
        if not self.token or not is_nonce(nonce):
            return ""
        words = "\0".join(("head", nonce, self.cluster, str(self.generation), self.host))
        return hmac.new(self.token.encode(), words.encode(), "sha256").hexdigest()

    def proofs(self, nonce: str) -> dict[str, str]:
        """By its name, and by its machine for a head that was away while this one got another name."""
        own = dataclasses.replace(self, host=self.machine)
        found = {"proof": self.proof(nonce), "machine_proof": own.proof(nonce) if self.machine else ""}
        return {key: proof for key, proof in found.items() if proof}


def declared_generation(declared: Mapping[str, Any]) -> int:
    return generations.known(declared.get("generation"))


def is_nonce(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{32}", text) is not None


def health(address: str, port: int, tls: bool, nonce: str, seconds: float = 2.0) -> Mapping[str, Any] | None:
    """What the front proxy of a host answers, if it runs one. Its certificate is its own: the question is no secret.

    A head that was declared later may speak TLS where this one does not.
    """
    for attempt in (tls, not tls):
        try:
            found = _health(address, port, attempt, nonce, seconds)
        except TimeoutError:
            return None  # it is silent either way
        if found is not None and "generation" in found:
            return found
    return None


def _health(address: str, port: int, tls: bool, nonce: str, seconds: float) -> Mapping[str, Any] | None:
    try:
        answer = peer.ask(peer.tcp(address, port, tls), "GET", f"/health?nonce={nonce}", seconds, most=ANSWER_LIMIT)
        return foreign.parse_object(answer.body)
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException, ValueError):
        return None


def find(
    cluster: Mapping[str, Any], ask: Ask | None = None, token: Callable[[], str] = read_former_token
) -> Successor | None:
    """A host that this head takes for its worker, and that proves to be the head of a higher generation."""
    declared, secret, name_of_cluster = declared_generation(cluster), token(), str(cluster.get("cluster") or "")
    peers = {
        str(name): str(address)
        for name, address in (cluster.get("peers") or {}).items()
        if name != cluster.get("host") and address
    }
    port = int(cluster.get("api_port") or 0)
    if not (peers and secret and port) or cluster.get("host") != cluster.get("head"):
        return None
    tls, nonce = bool(cluster.get("tls")), secrets.token_hex(16)
    question = ask or (lambda address, nonce: health(address, port, tls, nonce))
    with ThreadPoolExecutor(len(peers)) as pool:
        # zip has no "strict" in the oldest Python that sanity checks
        answers = dict(zip(peers, pool.map(lambda address: question(address, nonce), peers.values())))  # noqa: B905
    successor = None
    machines = cluster.get("machines") or {}
    for name, answer in answers.items():
        generation = declared_generation(answer or {})
        if generation - declared > MOST_MISSED:
            continue
        wanted = Identity(name, name_of_cluster, generation, secret, str(machines.get(name) or "")).proofs(nonce)
        given = {key: (answer or {}).get(key) for key in wanted}
        known_token = any(
            isinstance(proof, str) and hmac.compare_digest(proof.encode(), wanted[key].encode())
            for key, proof in given.items()
        )
        if known_token and generation > max(declared, successor.generation if successor else 0):
            successor = Successor(name, generation, name_of_cluster)
    return successor


def known(cluster: Mapping[str, Any], marker: str = MARKER) -> Successor | None:
    """The one that was found earlier, unless a play has declared this host head again since."""
    data = files.read_json(marker)
    found = Successor(
        str(data.get("name") or ""),
        declared_generation(data),
        str(data.get("cluster") or ""),
    )
    return found if found.counts(cluster) else None


def note(found: Successor, marker: str = MARKER, write: Callable[[str, str], None] = files.write_atomic) -> None:
    write(marker, json.dumps(dataclasses.asdict(found)))


def stay_down(
    path: str = CLUSTER,
    marker: str = MARKER,
    tell: Callable[[str], None] = print,
    ask: Ask | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    token: Callable[[], str] = read_former_token,
) -> None:
    """Returns at once unless another head was declared; then only when a play has made this host head again.

    Ray's user may not write the marker: the watchdog, which asks the same, does.
    """
    successor: Successor | None = None
    said = float("-inf")
    while True:
        cluster = files.read_json(path)
        if not cluster or cluster.get("host") != cluster.get("head"):
            return
        if successor is None or not successor.counts(cluster):
            successor = known(cluster, marker) or find(cluster, ask, token)
        if successor is None:
            return
        if clock() - said >= 600:
            said = clock()
            tell(successor.text)
        sleep(5)


def former_head(
    move: Callable[[list[str]], Any],
    path: str = CLUSTER,
    marker: str = MARKER,
    ask: Ask | None = None,
    token: Callable[[], str] = read_former_token,
    write: Callable[[str, str], None] = files.write_atomic,
) -> Callable[[bool], str]:
    """For the watchdog: why this host is no longer the head; asks the others when told to.

    Once one is found, Ray is started anew here: its preparation stays down, and the engine's gate with it.
    """

    met: Successor | None = None

    def reason(others: bool) -> str:
        nonlocal met
        cluster = files.read_json(path)
        if met is None or not met.counts(cluster):
            met = known(cluster, marker)
        if met is None and others:
            met = find(cluster, ask, token)
            if met is not None:
                # on a disk that takes nothing it is known until the next boot, which asks again
                with contextlib.suppress(OSError):
                    note(met, marker, write)
                move(["systemctl", "--no-block", "try-restart", "sparkthor-ray.service"])
        return met.text if met else ""

    return reason
