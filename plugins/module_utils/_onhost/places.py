# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in the serving units:
# pylint: disable=ansible-bad-function
"""Where a serving group has its files, sockets and units on a host that may have several.

The group of the host's own has no name here and the plain paths; one beside it has the same below folders of its name.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any

#: folder of the groups beside a host's own one, below each of the three folders of the collection
BESIDE = "beside"
ETC = "/etc/sparkthor"
#: what the newest play declared, on every host
DECLARED = f"{ETC}/cluster.json"
RUN = "/run/sparkthor"
LASTING = "/var/lib/sparkthor"
#: what the engine's unit, files and folders are called, whichever engine serves
SERVICE = "vllm"
#: where a host keeps models and the engine's cache, unless the newest play declared other folders
FOLDERS = {"models": f"{LASTING}/models", "cache": f"{LASTING}/cache"}


def folders(declared: Mapping[str, Any]) -> dict[str, str]:
    """Where a host keeps ``models`` and ``cache``, by the object in :data:`DECLARED`."""
    given = declared.get("folders")
    known = given if isinstance(given, dict) else {}
    return {name: str(known.get(name) or folder) for name, folder in FOLDERS.items()}


def disk(root: str, declared: Mapping[str, Any]) -> dict[str, int] | None:
    """Bytes ``total`` and ``free`` of the disk that holds the models of the host below ``root``; None if unseen."""
    for path in (folders(declared)["models"], LASTING, "/var/lib"):
        try:
            found = os.statvfs(os.path.join(root, path.lstrip("/")))
        except (OSError, ValueError):
            continue
        return {"total": found.f_blocks * found.f_frsize, "free": found.f_bavail * found.f_frsize}
    return None


@dataclasses.dataclass(frozen=True)
class Places:
    """Of the group ``name`` beside the host's own one, or of that one if it is empty."""

    name: str = ""

    def _below(self, folder: str) -> str:
        return f"{folder}/{BESIDE}/{self.name}" if self.name else folder

    def listed(self, file: str) -> str:
        """The name of a group's file among the files of all groups of a host."""
        return f"{BESIDE}/{self.name}/{file}" if self.name else file

    @property
    def etc(self) -> str:
        return self._below(ETC)

    @property
    def run(self) -> str:
        return self._below(RUN)

    @property
    def lasting(self) -> str:
        """What survives a reboot."""
        return self._below(LASTING)

    @property
    def service(self) -> str:
        """As containers are named after it."""
        return f"{SERVICE}-{self.name}" if self.name else SERVICE

    @property
    def unit(self) -> str:
        return f"sparkthor-{self.service}.service"

    @property
    def watchdog(self) -> str:
        return f"sparkthor-watchdog-{self.name}.service" if self.name else "sparkthor-watchdog.service"

    @property
    def config(self) -> str:
        """serving.json, from which the programs on the host know all else."""
        return f"{self.etc}/serving.json"

    @property
    def environment(self) -> str:
        return f"{self.etc}/{SERVICE}.env"

    @property
    def group(self) -> str:
        return f"{self.etc}/group.json"

    @property
    def socket(self) -> str:
        return f"{self.run}/{SERVICE}/{SERVICE}.sock"

    @property
    def group_state(self) -> str:
        return f"{self.run}/{SERVICE}/group.json"

    @property
    def health_socket(self) -> str:
        return f"{self.run}/watchdog/health.sock"

    @property
    def metrics(self) -> str:
        return f"{self.run}/watchdog/metrics.prom"

    @property
    def state(self) -> str:
        return f"{self.run}/state.json"

    @property
    def started_with(self) -> str:
        return f"{self.run}/vllm-started-with.json"

    @property
    def starts(self) -> str:
        return f"{self.run}/vllm-starts.json"

    @property
    def draining(self) -> str:
        return f"{self.run}/draining"

    @property
    def degraded(self) -> str:
        return f"{self.run}/degraded.json"

    @property
    def loads(self) -> str:
        """How long loads took: loads.json, see there."""
        return f"{self.lasting}/loads.json"

    @property
    def maintenance(self) -> tuple[str, str]:
        return f"{self.lasting}/maintenance", f"{self.run}/maintenance"


#: of the host's own group
OWN = Places()


def maintenance(paths: Iterable[str] = OWN.maintenance) -> str | None:
    """The reason that stands in the maintenance marker; None without one."""
    for path in paths:
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                first = stream.readline().strip()
        except FileNotFoundError:
            continue
        except OSError:
            return path
        return first or path
    return None
