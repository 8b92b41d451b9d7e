# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ssh host keys of machines that this controller meets for the first time.

A key is trusted only after a person has seen its fingerprint, or has given it; one that differs from what is known here
is never replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding

#: every sshd of the last ten years has one, and one key a machine is enough to compare
TYPE = "ed25519"


class Run(Protocol):
    def __call__(self, argv: list[str], text: str = ..., /) -> tuple[int, str, str]: ...


@dataclass(frozen=True)
class Offer:
    """The key that a machine offers."""

    address: str
    #: the address as known_hosts names it
    host: str
    line: str
    fingerprint: str
    #: ``known``, ``given`` (its fingerprint was given and is this one) or ``new``
    state: str


def host_name(address: str, port: int) -> str:
    return address if port == 22 else f"[{address}]:{port}"


def _keys(text: str) -> set[str]:
    """Type and key of each line of known_hosts, or of ssh-keyscan."""
    lines = (line.split() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {" ".join(fields[1:3]) for fields in lines if len(fields) >= 3}


def collect(
    addresses: Sequence[str], port: int, known_hosts: str, fingerprints: Mapping[str, object], run: Run
) -> tuple[list[Offer], list[Finding]]:
    """What each machine offers, and what must not be trusted."""
    with ThreadPoolExecutor(max_workers=16) as pool:
        found = list(pool.map(lambda address: _one(address, port, known_hosts, fingerprints, run), addresses))
    return [one for one in found if isinstance(one, Offer)], [one for one in found if isinstance(one, Finding)]


def _one(address: str, port: int, known_hosts: str, fingerprints: Mapping[str, object], run: Run) -> Offer | Finding:
    host = host_name(address, port)
    _rc, scanned, err = run(["ssh-keyscan", "-T", "5", "-p", str(port), "-t", TYPE, address])
    lines = [line for line in scanned.splitlines() if line and not line.startswith("#")]
    if not lines:
        return Finding(
            "host_key", f"it offers no {TYPE} host key ({err.strip()[-120:] or 'no answer'})", "see sshd there", address
        )
    line = f"{host} {lines[0].partition(' ')[2]}"
    _rc, shown, _err = run(["ssh-keygen", "-l", "-f", "-"], line + "\n")
    fingerprint = (shown.split() or ["", ""])[1]
    _rc, known, _err = run(["ssh-keygen", "-F", host, "-f", known_hosts])
    known_keys = {key for key in _keys(known) if key.startswith(f"ssh-{TYPE} ")}
    if known_keys and not known_keys & _keys(line):
        what = f"its host key {fingerprint} differs from the one in {known_hosts}"
        fix = (
            f"if the machine was installed anew: ssh-keygen -R '{host}' -f {known_hosts}; if not, find out who answers "
            "there before going on"
        )
        return Finding("host_key", what, fix, address)
    given = fingerprints.get(address)
    if given is not None and str(given) != fingerprint:
        what = f"first_contact_fingerprints says {given}, and it offers {fingerprint}"
        return Finding("host_key", what, "correct the fingerprint, or find out who answers there", address)
    return Offer(address, host, line, fingerprint, "known" if known_keys else "given" if given is not None else "new")
