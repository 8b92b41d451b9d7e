# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``systemd-analyze security`` says of each unit of ours, 0 is closed and 10 is open.

``python -m tools.unit_exposure`` writes the column "now" of the table in docs/security-details.md; the scenario
``security`` compares it with real hosts.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PAGE = TOP / "docs" / "security-details.md"
INVENTORY = TOP / "inventories" / "3spark"
#: units that only what is asked for brings: a limit of tokens, a group on demand, switched sockets, a certificate
ASKED_FOR = (
    *("sparkthor-tokens.service", "sparkthor-on-demand.service", "sparkthor-power-guard.service"),
    "sparkthor-certificate.service",
)
#: a row: unit, before, now, and in words what the unit keeps
ROW = re.compile(r"^\| `(sparkthor-[\w-]+\.service)` \| ([\d.]+|-) \| ([\d.]+) \| (.+) \|$", re.MULTILINE)


def table(text: str) -> dict[str, float]:
    """Exposure now, by unit, as the page says it."""
    return {found[1]: float(found[3]) for found in ROW.finditer(text)}


def rendered(folder: Path) -> list[Path]:
    """Every unit of the head, as a host would get it."""
    extra = {"render_dir": str(folder), "monitoring_enabled": True, "monitoring_prometheus": True}
    play = [str(Path(sys.executable).with_name("ansible-playbook")), str(TOP / "playbooks/render.yml")]
    subprocess.run(
        [*play, f"--inventory={INVENTORY}", "--extra-vars", json.dumps(extra)],
        cwd=TOP,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return sorted(folder.glob("spark-01/etc/systemd/system/sparkthor-*.service"))


def exposure(unit: Path) -> float:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r"Overall exposure level for .*: ([\d.]+) ", done.stdout)
    if not found:
        raise SystemExit(f"systemd-analyze says nothing of {unit}: {done.stdout[-300:]}")
    return float(found[1])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        now = {unit.name: exposure(unit) for unit in rendered(Path(folder))}
    text = PAGE.read_text(encoding="utf-8")
    listed = table(text)
    for name in sorted(set(now) ^ set(listed)):
        print(f"{name}: {'no row in' if name in now else 'only in'} {PAGE.name}")
    for name, value in now.items():
        print(f"{name:36} {value:4}" + (f" (was {listed[name]})" if listed.get(name, value) != value else ""))
    new = ROW.sub(lambda row: f"| `{row[1]}` | {row[2]} | {now.get(row[1], row[3])} | {row[4]} |", text)
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
