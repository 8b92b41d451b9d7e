# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel parameters."""

from __future__ import annotations

import re

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Changes
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.originals import Originals
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import HostStateError


def plan_sysctl(changes: Changes, originals: Originals, key: str, value: str, forget: bool = False) -> None:
    """Set a kernel parameter; with ``forget`` it is the original that comes back."""
    path = "/proc/sys/" + sysctl_path(key)
    real = changes.host.at(path)
    try:
        with open(real, encoding="ascii", errors="replace") as stream:
            present = stream.read()
    except OSError as error:
        message = f"sysctls: {key} cannot be read on this host: {error.strerror}"
        if not changes.check:
            raise HostStateError(message) from error
        changes.result.warnings.append(message)
        present = ""
    if present.split() == value.split():
        if forget:
            changes.steps.append(lambda: originals.forget("sysctls", key))
        return
    changes.note(f"sysctl {key}", f"{key} = {' '.join(present.split())}\n", f"{key} = {' '.join(value.split())}\n")
    changes.result.changed_sysctls.append(key)

    def apply() -> None:
        if not forget:
            originals.remember("sysctls", key, " ".join(present.split()))
        try:
            with open(real, "w", encoding="ascii") as stream:
                stream.write(value + "\n")
        except OSError as error:
            raise HostStateError(f"sysctls: {key}={value} was not taken: {error.strerror}") from error
        if forget:
            originals.forget("sysctls", key)

    changes.steps.append(apply)


def sysctl_path(key: str) -> str:
    """The kernel's rule: the first separator decides, the other one is a literal part of a name."""
    first = re.search(r"[./]", key)
    if not re.fullmatch(r"[A-Za-z0-9_./*@:-]+", key) or ".." in key or key.startswith(("/", ".")) or first is None:
        raise HostStateError(f"sysctls: {key!r} is not a sysctl key")
    return key if first.group() == "/" else key.translate(str.maketrans("./", "/."))
