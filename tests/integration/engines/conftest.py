# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two groups of llama.cpp on one lab: layers over two hosts, and one host alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.integration.conftest import Cluster
from tests.integration.groups.conftest import Doors
from tests.integration.sites import within

LAYERS, ALONE = "smollm2-layers", "smollm2-alone"
#: head and worker of the first group, and the host of the second
HEAD, WORKER, SINGLE = "spark-01", "spark-02", "spark-03"
UNIT = "sparkthor-vllm.service"
#: as long as a start may take on a busy machine
START = 900.0
RPC_PORT = 50052


@dataclass
class Engines(Doors):
    """Both groups, and what their programs are on the hosts."""

    def answer(self, model: str, door: str = HEAD) -> str:
        """The name in an answer; empty without one."""
        try:
            return self.ask(door, model)
        except openai.OpenAIError:
            return ""

    def answers(self, model: str, door: str = HEAD) -> bool:
        return self.answer(model, door) == model

    def heals(self, model: str, door: str = HEAD, seconds: float = START) -> None:
        print(f"{model}: {within(seconds, lambda: self.answers(model, door)):.0f} s until the next answer", flush=True)

    def process(self, host: str, program: str) -> str:
        """The number of the program's process; empty where none runs."""
        return self.cluster.run(host, f"pgrep -x {program}", check=False).strip()

    def state(self, head: str) -> str:
        """What the watchdog of a group says of it."""
        told = self.cluster.run(head, "cat /run/sparkthor/state.json", check=False)
        return str(json.loads(told)["state"]) if told else ""

    @contextmanager
    def given(self, *hosts: str, **variables: Any) -> Iterator[None]:
        """The inventory with these variables of hosts, which go before those of its groups' files."""
        file: Path = self.cluster.lab.folder / "given.yml"
        file.write_text(json.dumps({"all": {"hosts": dict.fromkeys(hosts, variables)}}), encoding="utf-8")
        self.cluster.inventories.append(file)
        try:
            yield
        finally:
            self.cluster.inventories.remove(file)


@pytest.fixture(scope="session")
def engines(cluster: Cluster) -> Engines:
    return Engines(cluster)
