# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end state of the host layer, read from a converged host, for the other two ways of reaching it.

Stock modules and plain shell lines are measured on the same hosts with the same files, so that all three find nothing
to do.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from sparklab import Lab

#: run on a host by its own Python; prints one JSON object
_READ = r"""
import json, os, subprocess
MARK = "managed: sparkthor"
files = []
for top in ("/etc", "/usr/local/lib/sparkthor"):
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.islink(path) or "/secrets/" in path:
                continue
            try:
                with open(path, encoding="utf-8") as handle:
                    text = handle.read()
            except (OSError, UnicodeDecodeError):
                continue
            if MARK in text[:300]:
                files.append({"path": path, "content": text, "mode": "%04o" % (os.stat(path).st_mode & 0o7777)})
def lines(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split("\n")
units = [line.split()[:2] for line in lines("systemctl", "list-unit-files", "--no-legend", "--plain") if line]
# a simulated host declines some, which stock modules would start again in every run
running = lines("systemctl", "list-units", "--no-legend", "--plain", "--state=active")
running = [line.split()[0] for line in running if line]
sysctls = {}
limits = []
for file in files:
    if file["path"] == "/etc/sysctl.d/60-sparkthor.conf":
        sysctls = dict(part.split(" = ") for part in file["content"].split("\n") if " = " in part)
    if file["path"] == "/etc/security/limits.d/60-sparkthor.conf":
        limits = [line for line in file["content"].split("\n") if line and not line.startswith("#")]
print(json.dumps({
    "default_target": os.readlink("/etc/systemd/system/default.target"),
    "files": sorted(files, key=lambda file: file["path"]),
    "sysctls": sysctls,
    "limits": limits,
    "units": units,
    "running": running,
}))
"""
#: units the host layer masks or runs; which of them a host has is read there
_MASKED = ("sleep", "suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate", "apt-daily", "apt-daily-upgrade")
_ENABLED = ("sparkthor-firewall.service", "systemd-timesyncd.service")


def read(lab: Lab) -> dict[str, dict[str, Any]]:
    """By host: ``files`` [{path, content, mode}], ``sysctls``, ``limits``, ``masked``, ``enabled``, and more."""
    state = {}
    for host in lab.plan.hosts:
        done = lab.exec(host.name, ["/usr/bin/python3", "-c", _READ])
        data = json.loads(done.stdout)
        units = dict(data.pop("units"))
        data["masked"] = [name for name, how in units.items() if how == "masked" and name.rpartition(".")[0] in _MASKED]
        running = data.pop("running")
        data["enabled"] = [name for name in _ENABLED if name in units and name in running]
        # without RDMA the file says so; with it the line must not stand there
        data["roce"] = not any(file["path"] == "/etc/nccl.conf" for file in data["files"])
        state[host.name] = data
    return state


def shell_lines(state: dict[str, Any]) -> str:
    """The same by the shell lines that guides give: everything is written and set again, and the network applied."""
    lines = ["set -e", f"ln -sfn {shlex.quote(state['default_target'])} /etc/systemd/system/default.target"]
    for key, value in state["sysctls"].items():
        lines.append(f"sysctl -q -w {shlex.quote(f'{key}={value}')}")
    for file in state["files"]:
        path = shlex.quote(file["path"])
        lines.append(f"install -D -m {file['mode']} /dev/stdin {path} <<'SPARKTHOR_END'")
        lines.append(file["content"].rstrip("\n"))
        lines.append("SPARKTHOR_END")
    if state["roce"]:
        lines.append("[ ! -e /etc/nccl.conf ] || sed -i '/^NCCL_IB_DISABLE/d' /etc/nccl.conf")
    if state["masked"]:
        lines.append("systemctl -q mask " + " ".join(map(shlex.quote, state["masked"])))
    lines.append("systemctl daemon-reload")
    lines.append("netplan apply")
    for unit in state["enabled"]:
        lines.append(f"systemctl -q enable --now {shlex.quote(unit)}")
    return "\n".join(lines) + "\n"
