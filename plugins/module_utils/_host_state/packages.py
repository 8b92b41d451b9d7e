# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that came with us: recorded around an installation, removed when nothing else needs them.

Debian's packages alone; on other systems nothing is recorded, and so nothing is removed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Command
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.originals import Originals
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import HostStateError

#: kind of the record: package -> whether it was asked for, or came with one that was
KIND = "packages"
ASKED, CAME = "asked", "came"
_NOTED = "noted"
_APT = ("apt-get", "--quiet", "--assume-yes", "--option", "DPkg::Lock::Timeout=120")


class Packages:
    """The packages of one host."""

    def __init__(self, run: Command, originals: Originals, timeout: float = 600) -> None:
        self._run = run
        self._originals = originals
        self._timeout = timeout

    def installed(self) -> set[str]:
        code, out, _err = self._run(["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n"], 60)
        return {line.split()[0] for line in out.splitlines() if line.endswith(" installed")} if code == 0 else set()

    def note(self) -> None:
        """What is there before an installation; kept if an earlier run noted it and died before :meth:`record`."""
        self._originals.remember(_NOTED, KIND, sorted(self.installed()))

    def record(self, asked: Collection[str]) -> list[str]:
        """What came since :meth:`note`."""
        before = self._originals.recorded(_NOTED, KIND)
        new = sorted(self.installed() - set(before)) if before is not None else []
        for name in new:
            self._originals.remember(KIND, name, ASKED if name in asked else CAME)
        self._originals.forget(_NOTED, KIND)
        return new

    def removable(self) -> list[str]:
        """Recorded packages that nobody else needs, by apt's own reckoning."""
        recorded = self._originals.entries(KIND)
        there = self.installed() & set(recorded)
        asked = sorted(name for name in there if recorded[name] == ASKED)
        # one by one: a package that others were built upon meanwhile must not keep the rest
        free = [name for name in asked if self._would_go(["purge", name]) <= set(recorded)]
        return sorted(self._would_go(["--auto-remove", "purge", *free]) & there) if free else []

    def remove(self, names: Sequence[str]) -> None:
        if names:
            code, out, err = self._run([*_APT, "purge", *names], self._timeout)
            if code != 0:
                raise HostStateError(f"packages: apt-get purge ended with {code}: {(err or out).strip()[-600:]}")
        for name in sorted(set(self._originals.entries(KIND)) - self.installed()):
            self._originals.forget(KIND, name)
        self._originals.close()

    def _would_go(self, words: Sequence[str]) -> set[str]:
        code, out, err = self._run([*_APT, "--simulate", *words], self._timeout)
        if code != 0:
            raise HostStateError(f"packages: apt-get --simulate ended with {code}: {(err or out).strip()[-600:]}")
        return {name.partition(":")[0] for name in re.findall(r"^(?:Remv|Purg) (\S+)", out, re.MULTILINE)}
