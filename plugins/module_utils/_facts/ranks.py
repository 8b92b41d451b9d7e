# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ranks of engines on a host, and NCCL's files as the host and they see them.  Standard library only."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import own_secrets
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files as _files
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import foreign
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import mask as _mask
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import nccl as _nccl
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry

#: bytes of one file
FILE_LIMIT = 200_000
#: what of a process's environment may leave the host: how it finds its network, never a secret
_ENVIRONMENT = re.compile(
    r"^(?:NCCL_|GLOO_|UCX_NET_DEVICES$|TP_SOCKET_IFNAME$|OMPI_MCA_btl_tcp_if_include$|VLLM_HOST_IP$|MASTER_ADDR$|"
    r"RAY_ADDRESS$|RAY_AUTH_MODE$|RAY_memory_monitor_refresh_ms$|RAY_NODE_IP_ADDRESS$|RAY_CGRAPH_)"
)
_PROGRAMS = (
    ("raylet", re.compile(r"(?:^|/)raylet\x00")),
    ("gcs_server", re.compile(r"(?:^|/)gcs_server\x00")),
    *((one.name, one.command_line) for one in registry.ENGINES.values()),
    ("worker", re.compile("^(?:ray::|" + "|".join(re.escape(title) for title in registry.TITLES) + ")")),
)
#: with it the kernel does not count what a process locks: capabilities(7)
_CAP_IPC_LOCK = 14
_KEY_VARIABLES = tuple(one.key_variable for one in registry.ENGINES.values() if one.key_variable)


def newest(text: str, limit: int) -> str:
    """The end of a text, from the beginning of a line, or of a word in a longer one: half of a secret is not masked."""
    if len(text) <= limit:
        return text
    cut = text[-limit:]
    start = re.search(r"\n", cut) or re.search(r"\s", cut)
    return cut[start.end() :] if start else ""


def _key_state(environment: Mapping[str, str]) -> str:
    """Whether a variable with an engine's key is ``set`` or ``empty``; empty where there is none."""
    given = [environment[name] for name in _KEY_VARIABLES if name in environment]
    return "" if not given else "set" if any(given) else "empty"


class RankReader:
    """Reads one host; what cannot be read is noted in ``errors``.  ``root`` is injectable for tests."""

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self.errors: list[str] = []
        self._known: dict[str, Any] = {}
        self._hidden = _mask.forms(own_secrets.values(lambda path: self.read(path, 64_000)))

    def mask(self, text: str) -> str:
        """Without the secrets of this host, and without what looks like one."""
        return _mask.mask(text, self._hidden)

    def path(self, path: str) -> str:
        return os.path.join(self._root, path.lstrip("/"))

    def read(self, path: str, limit: int = FILE_LIMIT) -> str | None:
        try:
            return _files.read_plain(self.path(path), limit).decode("utf-8", "replace").replace("\0", "")
        except OSError:
            return None

    def tail(self, path: str, limit: int = FILE_LIMIT) -> str:
        try:
            return newest(_files.read_plain(self.path(path), limit, end=True).decode("utf-8", "replace"), limit - 1)
        except OSError:
            return ""

    def part(self, name: str, read: Callable[[], Any], empty: Any) -> Any:
        try:
            # a folder's or a file's name, a model's configuration: other people's texts and numbers
            value = foreign.tellable(read())
        except Exception as error:
            # a broken host is what this is for: whatever one part trips over, the others are read
            self.errors.append(f"{name}: {type(error).__name__}: {error}"[:300])
            value = empty
        self._known[name] = value
        return value

    def nccl(self) -> dict[str, Any]:
        files = {}
        for name in ("/etc/nccl.conf", "/root/.nccl.conf"):
            content = self.read(name)
            if content is not None:
                report = _nccl.NcclSource(name, "file", content.encode()).report({})
                files[name] = {"settings": report["settings"], "ineffective": report["ineffective"]}
        return files

    def processes(self) -> list[dict[str, Any]]:
        """Engine processes: what they are, their network environment, and NCCL's file as they see it."""
        ranks = []
        host_conf = self.read("/etc/nccl.conf") or ""
        try:
            own_root = os.stat(self.path("/proc/1/root/etc") if self._root == "/" else self.path("/etc"))
        except OSError:
            own_root = None
        for pid in sorted((name for name in self._names("/proc") if name.isdigit()), key=int):
            raw = self._bytes(f"/proc/{pid}/cmdline")
            text = raw.decode("utf-8", "replace")
            program = next((name for name, pattern in _PROGRAMS if pattern.search(text)), "")
            if not program:
                continue
            argv = [word for word in text.split("\0") if word]
            environment = dict(
                pair.split("=", 1)
                for pair in self._bytes(f"/proc/{pid}/environ").decode("utf-8", "replace").split("\0")
                if "=" in pair
            )
            entry: dict[str, Any] = {
                "pid": int(pid),
                "program": program,
                "argv": [word[:300] for word in _mask.masked(argv, self._hidden)][:120],
                "env": {key: self.mask(value)[:300] for key, value in environment.items() if _ENVIRONMENT.match(key)},
                "api_key": _key_state(environment),
                "memlock": self._memlock(pid),
            }
            seen = self._of_process(pid, "etc/nccl.conf")
            if seen is not None and seen != host_conf:
                entry["nccl_conf"] = _nccl.effective(seen.encode())
            try:
                entry["contained"] = own_root is not None and not os.path.samestat(
                    os.stat(self.path(f"/proc/{pid}/root/etc")), own_root
                )
            except OSError:
                entry["contained"] = False
            ranks.append(entry)
            if len(ranks) >= 64:
                break
        return ranks

    def _of_process(self, pid: str, path: str) -> str | None:
        """A file as a process sees it, if its user may read it; who owns /proc/PID does not tell which user that is."""
        user = re.search(r"^Uid:\s+\d+\s+(\d+)", self.read(f"/proc/{pid}/status") or "", re.MULTILINE)
        top = self.path(f"/proc/{pid}/root")
        try:
            found = _files.read_beneath(top, path, int(user[1]) if user else -1, FILE_LIMIT)
        except OSError:
            return None
        return found.decode("utf-8", "replace").replace("\0", "")

    def _memlock(self, pid: str) -> int:
        """The soft limit in bytes, -1 for none that counts, 0 where it cannot be read."""
        may = re.search(r"^CapEff:\s+([0-9a-f]{1,16})$", self.read(f"/proc/{pid}/status") or "", re.MULTILINE)
        if may and int(may[1], 16) >> _CAP_IPC_LOCK & 1:
            return -1
        match = re.search(r"^Max locked memory\s+(\S+)", self.read(f"/proc/{pid}/limits") or "", re.MULTILINE)
        if not match:
            return 0
        return -1 if match[1] == "unlimited" else int(match[1])

    def _names(self, path: str) -> list[str]:
        try:
            return os.listdir(self.path(path))
        except OSError:
            return []

    def _bytes(self, path: str) -> bytes:
        try:
            return _files.read_plain(self.path(path), 131_072)
        except OSError:
            return b""
