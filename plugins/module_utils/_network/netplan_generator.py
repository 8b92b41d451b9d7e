# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What netplan makes of YAML files: its generator is run in a private root folder, and what it writes is compared.

So two YAML files are "equal in meaning" when netplan makes the same of them, and an edit is "pending" when netplan
would make something else of the files than what the network services were given last.  No YAML parser is needed on
the host, and netplan's own merging rules hold.

The generator is called directly: the ``netplan generate`` command makes systemd reload all units even for a private
root, which may take the GPU away from running containers.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.netplan_job import FileState

#: netplan's folders, in the order in which the generator looks (a name in a later one hides the same in an earlier)
SOURCES = ("/usr/lib/netplan", "/etc/netplan", "/run/netplan")
GENERATORS = ("/usr/libexec/netplan/configure", "/usr/libexec/netplan/generate", "/usr/lib/netplan/generate")
SHARED_RULES = "/run/udev/rules.d/90-netplan.rules"


class NetplanError(Exception):
    """netplan refuses the files; ``path`` is the offending one where netplan names it."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class NoNetplanError(NetplanError):
    """The host has no netplan at all."""


def source_files(folders: tuple[str, ...] = SOURCES) -> dict[str, str]:
    """All netplan YAML files by path, with content; a link that leads nowhere is refused, as netplan refuses it."""
    files = {}
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(folder, "*.yaml"))):
            try:
                with open(path, encoding="utf-8", errors="surrogateescape", newline="") as handle:
                    files[path] = handle.read()
            except FileNotFoundError:
                if os.path.islink(path):
                    raise NetplanError(f"{path} is a link to {os.readlink(path)}, which is not there", path) from None
    return files


def parse_generator_error(text: str, scratch: str) -> NetplanError:
    """netplan's complaint with the real path instead of the private root's, permission warnings left out."""
    lines = [line for line in text.splitlines() if line.strip() and "WARNING **" not in line]
    message = "\n".join(lines).replace(scratch, "").strip() or "netplan's generator failed without a message"
    # with a position ("…yaml:3:5: Error …") or, for a file that is no YAML at all, without one
    found = re.search(r"(/\S+?\.yaml)(?::\d+(?::\d+)?)?:", message)
    return NetplanError(message, found.group(1) if found else "")


def generate(files: dict[str, str], generator: str = "") -> dict[str, FileState]:
    """What netplan makes of these files: generated path → content, mode and owner.  Changes nothing on the host."""
    generator = generator or next((path for path in GENERATORS if os.access(path, os.X_OK)), "")
    if not generator:
        raise NoNetplanError("netplan is not installed (no generator in /usr/libexec/netplan)")
    scratch = tempfile.mkdtemp(prefix="sparkthor-netplan-")
    try:
        os.makedirs(os.path.join(scratch, "usr/lib"), 0o700)
        os.symlink("usr/lib", os.path.join(scratch, "lib"))
        for path, content in files.items():
            target = scratch + path
            os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as handle:
                handle.write(content)
        rc, out, err = job.run([generator, "--root-dir", scratch], 15)
        if rc:
            raise parse_generator_error(err + out, scratch)
        return job.generated_files(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def file_owner_of(path: str) -> str:
    """The netplan id a generated file belongs to; empty for files shared by all."""
    name = os.path.basename(path)
    found = re.fullmatch(r"10-netplan-(.+)\.(?:network|link|netdev)", name)
    if not found:
        found = re.fullmatch(r"netplan-(.+)\.nmconnection", name)
    return found.group(1) if found else ""


def profiled(generated: Iterable[str], netdevs: set[str]) -> bool:
    """Whether these generated files give the NICs to NetworkManager."""
    return any(path.endswith(".nmconnection") and file_owner_of(path) in netdevs for path in generated)


def rule_blocks(text: str) -> dict[str, str]:
    """netplan's udev rules by the id they are for: a comment line ``# netplan: network.KIND.ID (…)`` starts each."""
    blocks: dict[str, str] = {}
    current = ""
    for line in text.splitlines(keepends=True):
        found = re.match(r"# netplan: network\.[a-z-]+\.(.+) \(on NetworkManager", line)
        if found:
            current = found.group(1)
        blocks[current] = blocks.get(current, "") + line
    return blocks


def merge_rules(live: str, wanted: str, ours: set[str]) -> str:
    """The live rules with our blocks as wanted: other people's rules stay what they are."""
    old, new = rule_blocks(live), rule_blocks(wanted)
    merged = {key: text for key, text in old.items() if key not in ours}
    merged.update({key: text for key, text in new.items() if key in ours})
    order = [key for key in new if key in merged] + [key for key in merged if key not in new]
    return "".join(merged[key] for key in order)


def ini_items(text: str) -> list[tuple[str, str, str]]:
    """(section, key, value) of a generated file, in order; networkd repeats keys, so this is no dict."""
    section, items = "", []
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif line and line[0] not in "#;" and "=" in line:
            key, _sign, value = line.partition("=")
            items.append((section, key.strip(), value.strip()))
    return items


#: settings in which two generated files may differ and still mean the same fabric link
_INERT = {
    ("Link", "RequiredForOnline"),
    ("Link", "WakeOnLan"),
    ("Network", "LinkLocalAddressing"),
    ("Network", "ConfigureWithoutCarrier"),
    ("ethernet", "wake-on-lan"),
    ("connection", "uuid"),
    ("connection", "timestamp"),
    ("connection", "id"),
    ("connection", "autoconnect-priority"),
    ("ipv6", "method"),
    ("Network", "IPv6AcceptRA"),
    ("ipv6", "addr-gen-mode"),
    ("ipv6", "ip6-privacy"),
}


def meaning(generated: dict[str, FileState], netdevs: set[str]) -> dict[str, list[tuple[str, str, str]]]:
    """What generated files do to these NICs, without what is inert on a fabric port."""
    return {
        path: sorted(item for item in ini_items(state["content"]) if item[:2] not in _INERT)
        for path, state in generated.items()
        if file_owner_of(path) in netdevs
    }


def same_meaning(one: dict[str, FileState], two: dict[str, FileState]) -> bool:
    """Whether two generations differ in nothing that matters, for any NIC."""
    ids = {file_owner_of(path) for path in (*one, *two)} - {""}
    return meaning(one, ids) == meaning(two, ids)


def _comparable(path: str, content: str, ours: set[str]) -> Any:
    if path.startswith("/run/udev/"):
        return {key: text for key, text in rule_blocks(content).items() if key not in ours}
    if path.endswith(".nmconnection"):
        # NetworkManager adds these two to a profile it has activated
        return sorted(item for item in ini_items(content) if item[1] not in ("uuid", "timestamp"))
    return content


def pending_edits(wanted: dict[str, FileState], live: dict[str, FileState], ours: set[str]) -> list[dict[str, str]]:
    """Generated files, not ours, that the next ``netplan apply`` or boot would change: ``{path, id, detail}``."""
    pending = []
    for path in sorted({*wanted, *live}):
        identity = file_owner_of(path)
        if identity in ours or path.endswith("10-globally-managed-devices.conf"):
            continue
        new = _comparable(path, wanted[path]["content"], ours) if path in wanted else None
        old = _comparable(path, live[path]["content"], ours) if path in live else None
        if new == old or (path.startswith("/run/udev/") and not new and not old):
            continue
        if new is None:
            detail = "would be removed"
        elif old is None:
            detail = "would be added"
        elif path.endswith(".network"):
            before, after = live[path]["content"].splitlines(), wanted[path]["content"].splitlines()
            detail = "; ".join(
                [f"-{line}" for line in before if line and line not in after]
                + [f"+{line}" for line in after if line and line not in before]
            )
        else:
            detail = "would change"  # profiles may hold secrets: their content is not shown
        pending.append({"path": path, "id": identity, "detail": detail})
    return pending


def files_defining(identity: str, sources: dict[str, str]) -> list[str]:
    """Netplan files that have this id as a key; by text, only to name them in a message."""
    pattern = re.compile(r"(^|[\s{,])[\"']?" + re.escape(identity) + r"[\"']?\s*:", re.MULTILINE)
    return [path for path, content in sources.items() if pattern.search(content)]
