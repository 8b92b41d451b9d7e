# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host keys of new machines: shown, given, known, and different from the known one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery import host_keys

pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is not installed")


class Machine:
    """The real ssh-keygen, and an ssh-keyscan that finds one key."""

    def __init__(self, folder: Path) -> None:
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.touch()
        self.keys = [self._make(folder / name) for name in ("one", "two")]
        self.offered = self.keys[0]

    @staticmethod
    def _make(path: Path) -> str:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
        return " ".join(path.with_suffix(".pub").read_text().split()[:2])

    def fingerprint(self) -> str:
        _rc, out, _err = self.run(["ssh-keygen", "-l", "-f", "-"], f"x {self.offered}\n")
        return out.split()[1]

    def run(self, argv: list[str], text: str = "") -> tuple[int, str, str]:
        if argv[0] == "ssh-keyscan":
            address = argv[-1]
            return 0, (f"# {address}:22 SSH-2.0\n{address} {self.offered}\n" if self.offered else ""), "no route"
        done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def collect(self, port: int = 22, **fingerprints: str) -> tuple[list[host_keys.Offer], list[str]]:
        given = {key.replace("_", "."): value for key, value in fingerprints.items()}
        offers, findings = host_keys.collect(["h.1"], port, str(self.known_hosts), given, self.run)
        return offers, [str(finding) for finding in findings]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_new_key_is_offered_with_its_fingerprint(machine: Machine) -> None:
    (offer,), problems = machine.collect()
    assert problems == []
    assert (offer.state, offer.line) == ("new", f"h.1 {machine.keys[0]}")
    assert offer.fingerprint.startswith("SHA256:")


def test_a_key_that_known_hosts_has_is_known_on_its_port(machine: Machine) -> None:
    machine.known_hosts.write_text(f"[h.1]:2222 {machine.keys[0]}\n")
    assert machine.collect(port=2222)[0][0].state == "known"
    assert machine.collect()[0][0].state == "new"


def test_another_key_than_the_known_one_is_never_offered(machine: Machine) -> None:
    machine.known_hosts.write_text(f"h.1 {machine.keys[1]}\n")
    offers, (problem,) = machine.collect()
    assert offers == []
    assert "differs from the one in" in problem
    assert "ssh-keygen -R 'h.1'" in problem


def test_a_given_fingerprint_stands_for_the_question(machine: Machine) -> None:
    assert machine.collect(h_1=machine.fingerprint())[0][0].state == "given"
    offers, (problem,) = machine.collect(h_1="SHA256:wrong")
    assert offers == []
    assert "first_contact_fingerprints says SHA256:wrong" in problem


def test_a_machine_without_a_key_is_a_finding(machine: Machine) -> None:
    machine.offered = ""
    offers, (problem,) = machine.collect()
    assert offers == []
    assert "offers no ed25519 host key (no route)" in problem
