# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two groups of one host, each with TensorRT-LLM's stand-in in a container."""

from __future__ import annotations

import pytest

from tests.integration.conftest import Cluster
from tests.integration.engines.conftest import Engines

FIRST, SECOND = "trt-first", "trt-second"
#: the host of each group
ONE, TWO = "spark-01", "spark-02"
PORT = 30000


class OneHostEngines(Engines):
    """Answers name the model's folder, as releases without another name for it do."""

    def answers(self, model: str, door: str = ONE) -> bool:
        return self.answer(model, door).startswith("tiny")

    def heals(self, model: str, door: str = ONE, seconds: float = 900.0) -> None:
        super().heals(model, door, seconds)

    def rank(self, host: str) -> str:
        """The process that computes."""
        return self.cluster.run(host, "pgrep -P $(pgrep -x trtllm-serve)").strip()


@pytest.fixture(scope="session")
def engines(cluster: Cluster) -> OneHostEngines:
    return OneHostEngines(cluster)
