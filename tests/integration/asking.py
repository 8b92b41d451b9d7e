# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running playbooks/doctor.yml and reading its answer, for the scenarios that lay faults."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
#: the issue's promise for every answer
SECONDS = 60


@dataclass
class Answer:
    rc: int
    seconds: float
    output: str
    doctor: dict[str, Any] = field(default_factory=dict)

    @property
    def rules(self) -> list[str]:
        return sorted({item["rule"] for item in self.doctor["findings"]})

    @property
    def places(self) -> list[tuple[str, tuple[str, ...]]]:
        return sorted((item["rule"], tuple(item["hosts"])) for item in self.doctor["findings"])

    @property
    def changed(self) -> set[str]:
        return set(re.findall(r"changed=(\d+)", self.output))

    @property
    def traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.output


def ask(inventories: list[Path], folder: Path, *arguments: str) -> Answer:
    """One run of playbooks/doctor.yml."""
    target = folder / "doctor.json"
    target.unlink(missing_ok=True)
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        str(TOP / "playbooks" / "doctor.yml"),
        *(f"--inventory={item}" for item in inventories),
        "--extra-vars",
        f"doctor_json={target}",
        *arguments,
    ]
    begun = time.monotonic()
    done = subprocess.run(
        command,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_FORCE_COLOR": "0",
            "ANSIBLE_LOCALHOST_WARNING": "False",
        },
        cwd=TOP,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    answer = Answer(done.returncode, time.monotonic() - begun, done.stdout)
    if target.exists():
        answer.doctor = json.loads(target.read_text())
    return answer
