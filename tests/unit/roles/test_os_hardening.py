# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role as Ansible runs it; what each area is, is tested with its plan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())


@pytest.mark.parametrize("area", ["swap", "oom"])
def test_an_area_that_is_skipped_leaves_the_others(tmp_path: Path, area: str) -> None:
    """By a run of Ansible itself: it skips a task whole of which one tag is skipped."""
    play = tmp_path / "play.yml"
    role = {"ansible.builtin.import_role": {"name": "sparkthor.cluster.os_hardening"}, "tags": ["os_hardening"]}
    play.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": [role]}]))
    # what would ask systemd, which not every machine has that runs this
    given = {f"os_hardening_{name}": False for name in ("headless", "updates", "suspend", "time_sync")}
    done = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "ansible-playbook"), str(play), "-i", "localhost,", "-c", "local"),
            *("--check", "--diff", "--skip-tags", f"os_hardening_{area}"),
            *("-e", json.dumps({**given, "ansible_become": False, "ansible_python_interpreter": sys.executable})),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=TOP,
        env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = {"swap": "/etc/sysctl.d/60-sparkthor.conf", "oom": "/etc/systemd/system/ssh.service.d/60-sparkthor.conf"}
    assert {name for name, path in made.items() if f"+++ after: {path}" in done.stdout} == set(made) - {area}
