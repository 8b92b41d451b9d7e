# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's packages, as dpkg-query and apt-get show and change them."""

from __future__ import annotations


class Apt:
    """dpkg and apt-get of a host; ``needs`` says what each package depends on."""

    def __init__(self) -> None:
        self.needs: dict[str, set[str]] = {"bash": set(), "zlib": set()}
        #: installed as dependencies
        self.automatic: set[str] = {"zlib"}
        self.broken = False

    def install(self, name: str, *depends: str) -> None:
        for one in depends:
            if one not in self.needs:
                self.needs[one] = set()
                self.automatic.add(one)
        self.needs[name] = set(depends)

    def _purged(self, names: list[str], auto: bool) -> set[str]:
        gone = set(names)
        while more := {package for package, needed in self.needs.items() if needed & gone} - gone:
            gone |= more
        while auto and (
            more := {
                package
                for package in self.automatic - gone
                if not any(package in needed for name, needed in self.needs.items() if name not in gone)
            }
        ):
            gone |= more
        return gone & set(self.needs)

    def run(self, argv: list[str], timeout: float) -> tuple[int, str, str]:
        assert timeout > 0
        if argv[0] == "dpkg-query":
            # one that was removed with its configuration left behind
            rows = [f"{name} installed\n" for name in self.needs] + ["former config-files\n"]
            return 0, "".join(rows), ""
        assert argv[0] == "apt-get"
        if self.broken:
            return 100, "", "E: Could not get lock"
        gone = self._purged(argv[argv.index("purge") + 1 :], "--auto-remove" in argv)
        if "--simulate" not in argv:
            self.needs = {name: needed for name, needed in self.needs.items() if name not in gone}
        return 0, "".join(f"Purg {name}:arm64 [1.0]\n" for name in sorted(gone)), ""
