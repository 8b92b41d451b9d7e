# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One controller at a time changes a cluster: a file on the head that says who does, and that it still lives.

Its time of change is the holder's last sign of life, by the head's own clock. It is below /run, so no reboot leaves it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import time
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files

PATH = "/run/sparkthor-controller.json"
#: seconds between two signs of life, and those without one after which a holder counts as gone
BEAT = 20.0
PATIENCE = 90.0


@dataclass(frozen=True)
class Holder:
    """Who changes the cluster."""

    #: tells this run from all others
    token: str
    #: user and machine, as a person knows them
    owner: str
    #: its name
    play: str
    #: when it took the lock, in UTC
    since: str = ""


def take(wish: Holder, path: str = PATH, now: float | None = None) -> tuple[Holder | None, Holder | None, float]:
    """Who holds it instead of us, whose lock was taken over because there was no sign of life, and how old that is."""
    now = time.time() if now is None else now
    # whoever reads what is there and writes what follows from it does so alone
    with os.fdopen(files.open_checked(f"{path}.guard", os.O_RDWR | os.O_CREAT, 0o600), "w", encoding="utf-8") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        holder, age = read(path, now)
        another = holder is not None and holder.token != wish.token
        if another and age < PATIENCE:
            return holder, None, age
        since = holder.since if holder and not another else time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(now))
        files.write_atomic(path, text(Holder(wish.token, wish.owner, wish.play, since)))
        return None, holder if another else None, age


def read(path: str = PATH, now: float | None = None) -> tuple[Holder | None, float]:
    """The holder, and the seconds since its last sign of life."""
    try:
        document: dict[str, Any] = json.loads(files.read_own(path))
        age = (time.time() if now is None else now) - os.lstat(path).st_mtime
        return Holder(**{name: str(document.get(name, "")) for name in Holder.__dataclass_fields__}), max(age, 0.0)
    except (OSError, ValueError, AttributeError):
        return None, 0.0


def text(holder: Holder) -> str:
    """What stands in the file: one line."""
    return json.dumps(asdict(holder)) + "\n"


def beat_command(holder: Holder, path: str = PATH) -> str:
    """A sign of life, for a shell; after a reboot of the head the lock is taken again, if nobody else was faster."""
    file, new = shlex.quote(path), shlex.quote(f"{path}.{holder.token}")
    again = f"printf %s\\\\n {shlex.quote(text(holder).strip())} > {new} && ln {new} {file}; rm -f {new}"
    ours = f"grep -qF {shlex.quote(_mark(holder))} {file}"
    return f"if [ ! -e {file} ]; then {again}; elif {ours}; then touch {file}; fi"


def release_command(holder: Holder, path: str = PATH) -> str:
    """The end of the holder's run, for a shell; another's lock stays."""
    file = shlex.quote(path)
    return f"if grep -qF {shlex.quote(_mark(holder))} {file}; then rm -f {file}; fi"


def refusal(holder: Holder, age: float) -> str:
    """What the second controller is told."""
    return (
        f'{holder.owner} is changing this cluster: "{holder.play}" since {holder.since}, last sign of life '
        f"{age:.0f} s ago. Nothing was changed; wait for its end. If it is gone, its lock falls {PATIENCE:.0f} s after "
        "that"
    )


def _mark(holder: Holder) -> str:
    return json.dumps({"token": holder.token})[1:-1]
