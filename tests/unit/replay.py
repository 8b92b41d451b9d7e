# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Captured hosts as our readers meet them: an archive of playbooks/capture.yml, laid out in folders."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts.node import NodeReader


def archive(path: Path, root: Path) -> dict[str, Replay]:
    """The hosts of an archive of playbooks/capture.yml, each laid out in a folder of its own."""
    parts: dict[str, dict[str, Any]] = {}
    with tarfile.open(path) as members:
        for member in members:
            *_top, host, name = member.name.split("/")
            if name.endswith(".json"):
                stream = members.extractfile(member)
                assert stream is not None
                parts.setdefault(host, {})[name.removesuffix(".json")] = json.load(stream)
    return {host: Replay(found["bundle"], root / host, found["evidence"]) for host, found in parts.items()}


class Replay:
    def __init__(self, bundle: Mapping[str, Any], root: Path, evidence: Mapping[str, Any] | None = None) -> None:
        assert bundle["version"] == 1, "a bundle of another version"
        self.bundle, self.root = bundle, root
        #: what the doctor judges
        self.evidence = dict(evidence or {})
        (root / "var/lib").mkdir(parents=True)
        for path, name in bundle["links"].items():
            real = root / "sys/devices" / name
            real.mkdir(parents=True, exist_ok=True)
            self._inside(path).parent.mkdir(parents=True, exist_ok=True)
            os.symlink(real, self._inside(path))
        for path, text in bundle["files"].items():
            self._inside(path).parent.mkdir(parents=True, exist_ok=True)
            self._inside(path).write_text(text)
        self._answers = {tuple(item["argv"]): (item["rc"], item["out"], item["err"]) for item in bundle["commands"]}

    def _inside(self, path: str) -> Path:
        assert path.startswith("/")
        assert ".." not in Path(path).parts
        return self.root / path.lstrip("/")

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        return self._answers.get(tuple(argv), (127, "", f"{argv[0]}: not installed"))

    def node(self) -> dict[str, Any]:
        """The fact ``sparkthor_node`` of that host."""
        return NodeReader(self.run, str(self.root), self.bundle["platform"]).read()

    def registered(self) -> dict[str, Any]:
        """What ``evidence_info`` returns there, with the facts read anew."""
        return {
            "evidence": {**self.evidence, "node": self.node()},
            "before": self.evidence["started"],
            "after": self.evidence["ended"],
        }
