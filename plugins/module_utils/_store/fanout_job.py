# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's part in a fan-out as a unit of systemd: started by a module, watched from the controller."""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import foreign, printable
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.deadline import ask_until
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_json
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import fanout, fanout_parts, fanout_wire
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError

UNIT = "sparkthor-fanout.service"
FOLDER = "/run/sparkthor-fanout"
STATUS = f"{FOLDER}/status.json"
PROGRAM = f"{FOLDER}/fanout.pyz"
LIMIT = 60.0


def run(argv: list[str]) -> tuple[int, str]:
    rc, out, err = run_limited(argv, LIMIT)
    return rc, (out + err).strip()


def program() -> bytes:
    """The program as one Python archive; its files are read from where this collection was loaded, a zip as well."""
    package, folder = "sparkthor_fanout", "_store"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(
            "__main__.py", f"import sys\nfrom {package}.{folder}.fanout import main\nsys.exit(main(sys.argv))\n"
        )
        for place in ("", f"{folder}/", "_lib/"):
            archive.writestr(f"{package}/{place}__init__.py", "")
        for part in (fanout, fanout_parts, fanout_wire, foreign, printable):
            loader: Any = part.__loader__
            place = "/".join(part.__name__.split(".")[-2:])
            archive.writestr(f"{package}/{place}.py", loader.get_source(part.__name__))
    return packed.getvalue()


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)


def start(job: Mapping[str, Any]) -> None:
    """One copy at a time: a newer run takes the place of an older one, whose parts it uses."""
    run(["systemctl", "stop", UNIT])
    tidy()
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    os.chmod(FOLDER, 0o700)
    for name in ("status.json", "job.json"):
        if os.path.lexists(f"{FOLDER}/{name}"):
            os.unlink(f"{FOLDER}/{name}")
    _write(PROGRAM, program())
    # root's alone, and removed by the program once it is read: it holds the key of the run
    _write(f"{FOLDER}/job.json", json.dumps({**job, "status": STATUS}).encode())
    limit = [f"--property=RuntimeMaxSec={job['seconds']}"] if job.get("seconds") else []
    rc, output = run(
        # without --collect: of a program that was killed systemd must still know how it ended
        ["systemd-run", "--quiet", f"--unit={UNIT}", "--property=LimitNOFILE=65536", *limit,
         "--description=Models and wheels over the fabric", sys.executable, "-IB", PROGRAM,
         f"{FOLDER}/job.json"]
    )  # fmt: skip
    if rc:
        raise StoreError(f"systemd-run {UNIT} failed: {output or rc}")


def report(name: str) -> dict[str, Any]:
    """What this host's part in that run came to; empty if it never said anything."""
    document = read_json(STATUS)
    if document.get("run") != name:
        return {}
    found: dict[str, Any] = document["nodes"].get(document["node"], {})
    return found


def outcome(name: str, seconds: float) -> dict[str, Any]:
    """The report once this host's part has come to an end, one way or another."""
    ask_until(
        lambda: report(name),
        lambda found: found.get("state") in ("done", "failed") or run(["systemctl", "is-active", "--quiet", UNIT])[0],
        seconds,
    )
    # between the two questions it may have said its last word
    return report(name)


def ended() -> str:
    """Why there is no report: the unit's own last word."""
    _rc, output = run(["systemctl", "show", "-p", "ActiveState,Result", UNIT])
    return f"{UNIT} ended without a word ({', '.join(output.split())})"


def tidy() -> None:
    """A unit that failed is known to systemd until it is told that this was read; its name is not free until then."""
    run(["systemctl", "reset-failed", UNIT])
