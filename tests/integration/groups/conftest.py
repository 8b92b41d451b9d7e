# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three serving groups on one lab, and whoever asks their doors meanwhile."""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import openai
import pytest

from tests.integration.conftest import Cluster
from tools.playbooks import Outcome, run_playbook

PAIR, SINGLE, EMBED = "tiny-pair", "tiny-single", "tiny-embed"
#: head and model of each group, and the group's other host
PAIR_HEAD, PAIR_WORKER, SINGLE_A, SINGLE_B = "spark-01", "spark-02", "spark-03", "spark-04"
HEADS = (PAIR_HEAD, SINGLE_A, SINGLE_B)
#: a key for the model of the replicas alone
NARROW = "narrow-key-of-the-lab"


@dataclass
class Doors:
    cluster: Cluster

    def client(self, host: str, key: str = "", retries: int = 0, timeout: float = 180.0) -> openai.OpenAI:
        return openai.OpenAI(
            base_url=f"http://{self.cluster.addresses[host]}:8000/v1",
            api_key=key or self.cluster.api_key,
            timeout=timeout,
            max_retries=retries,
        )

    def ask(self, host: str, model: str, key: str = "", timeout: float = 180.0) -> str:
        reply = self.client(host, key, timeout=timeout).completions.create(
            model=model, prompt="hello", max_tokens=4, temperature=0.0
        )
        return reply.model

    def models(self, host: str, key: str = "") -> set[str]:
        return {model.id for model in self.client(host, key).models.list().data}

    def health(self, host: str, group: str) -> int:
        """What a door says of a group; a 503 of ours says when to ask again."""
        answer = httpx.get(f"http://{self.cluster.addresses[host]}:8000/health/group/{group}", timeout=30.0)
        assert answer.status_code != 503 or int(answer.headers["Retry-After"]) > 0, answer.text
        return answer.status_code

    def play(self, playbook: str, *arguments: str) -> Outcome:
        outcome = run_playbook(
            playbook, self.cluster.inventories, arguments=list(arguments), name="groups", say=lambda line: None
        )
        print(f"{playbook} {arguments}: {outcome.seconds:.0f} s, rc {outcome.rc}", flush=True)
        return outcome

    def starts(self, host: str, unit: str = "sparkthor-vllm.service") -> str:
        """Which start of the engine is running."""
        return self.cluster.run(host, f"systemctl show -P InvocationID {unit}").strip()

    @contextlib.contextmanager
    def asking(
        self, host: str, model: str, streams: int = 2, timeout: float = 180.0
    ) -> Iterator[collections.Counter[str]]:
        """Streams that ask one after the other until the end; what came of it is counted."""
        counted: collections.Counter[str] = collections.Counter()
        seconds: list[float] = []
        end = threading.Event()

        def stream() -> None:
            while not end.is_set():
                begun = time.monotonic()
                try:
                    self.ask(host, model, timeout=timeout)
                    counted["answered"] += 1
                    seconds.append(time.monotonic() - begun)
                except openai.APIStatusError as error:
                    counted[f"status {error.status_code}"] += 1
                except openai.OpenAIError as error:
                    counted[type(error).__name__] += 1
                time.sleep(0.05)

        threads = [threading.Thread(target=stream) for _unused in range(streams)]
        for thread in threads:
            thread.start()
        try:
            yield counted
        finally:
            end.set()
            for thread in threads:
                thread.join()
            ordered = sorted(seconds) or [0.0]
            p50, p99 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
            print(f"{model} by {host}: {dict(counted)}, p50 {p50:.2f} s, p99 {p99:.2f} s", flush=True)


@pytest.fixture(scope="session")
def doors(cluster: Cluster) -> Doors:
    return Doors(cluster)
