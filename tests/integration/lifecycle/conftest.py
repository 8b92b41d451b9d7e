# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A converged lab that goes through its years, in the order of the files; what is measured is printed, not asserted."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.conftest import TOP, Cluster
from tests.integration.serve.conftest import MODEL, Serving

FIRST = yaml.safe_load((Path(__file__).resolve().parent / "first.yml").read_text())
OLDER = TOP / ".lab" / "engine" / "older"


@dataclass
class Lifecycle(Serving):
    """The lab, its engine, and how long clients go without an answer."""

    gaps: dict[str, float] = field(default_factory=dict)

    def complete(self, seconds: float = 5.0) -> bool:
        body = f'{{"model": "{MODEL}", "prompt": "hello", "max_tokens": 1}}'.encode()
        headers = {"Authorization": f"Bearer {self.cluster.api_key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.cluster.endpoint}/v1/completions", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """Print the seconds between answers, as a client that asks all the time sees them."""
        done, times = threading.Event(), [time.monotonic()]

        def ask() -> None:
            while not done.wait(0.5):
                if self.complete():
                    times.append(time.monotonic())

        client = threading.Thread(target=ask, daemon=True)
        client.start()
        try:
            yield
        finally:
            done.set()
            client.join(10)
            self.gaps[what] = max(b - a for a, b in zip(times, [*times[1:], time.monotonic()], strict=True))
            print(f"{what}: at most {self.gaps[what]:.1f} s without an answer", flush=True)

    def engines(self) -> dict[str, str]:
        """Version of vLLM that each host would start."""
        text = "/opt/sparkthor/venv/bin/python -c 'from importlib.metadata import version; print(version(\"vllm\"))'"
        return {host: self.cluster.run(host, text).strip() for host in self.cluster.hosts}

    def upgrade(self, **variables: Any) -> Any:
        return self.play("playbooks/upgrade.yml", **{"upgrade_speed": 0.2, "upgrade_wait": 300, **variables})


@pytest.fixture(scope="session")
def lifecycle(cluster: Cluster) -> Lifecycle:
    return Lifecycle(cluster)
