# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real Ray and real vLLM on three hosts: silence while they serve, the one right word when they do not.

The order counts: the engine is made to fail by its arguments first, and stays stopped for what is done to Ray.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.asking import SECONDS, Answer, ask

HEAD, WORKER = "spark-01", "spark-03"
YAML = "/etc/sparkthor/vllm.yaml"
TOKEN = "/etc/sparkthor/secrets/ray_token"


@pytest.fixture(scope="module")
def diagnose(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Answer]:
    folder: Path = tmp_path_factory.mktemp("doctor")

    def run() -> Answer:
        answer = ask(cluster.inventories, folder, "--extra-vars", f"lab_name={os.environ['SPARKLAB_NAME']}")
        assert answer.doctor, answer.output
        assert not answer.traceback, answer.output
        assert answer.changed == {"0"}, answer.output
        assert answer.seconds < SECONDS
        print(f"\n{answer.seconds:.1f} s, {answer.doctor['summary']}: {answer.places}")
        return answer

    return run


@pytest.fixture(scope="module", autouse=True)
def stopped_in_the_end(cluster: Any) -> Iterator[None]:
    """Nothing of what was laid outlives the module, whichever test failed."""
    yield
    cluster.run(HEAD, f"cp -p /run/{Path(YAML).name} {YAML} 2>/dev/null; rm -f /var/lib/sparkthor/maintenance; true")


def until(cluster: Any, host: str, command: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not cluster.run(host, command, check=False).strip():
        assert time.monotonic() < end, f"{host}: {command} says nothing for {seconds:.0f} s"
        time.sleep(2)


def with_argument(cluster: Any, text: str, sign: str, seconds: float) -> None:
    """Serve with another vllm.yaml until the journal shows what becomes of it."""
    cluster.run(HEAD, f"cp -np {YAML} /run/; cp -p /run/vllm.yaml {YAML}; {text}")
    cluster.run(HEAD, "date +%s >/run/begin; systemctl restart --no-block sparkthor-vllm.service")
    until(cluster, HEAD, f"journalctl -u sparkthor-vllm --since=@$(cat /run/begin) | grep -m1 -- '{sign}'", seconds)


def test_nothing_while_it_serves(diagnose: Callable[..., Answer]) -> None:
    answer = diagnose()
    assert answer.doctor["findings"] == [], answer.output
    assert answer.doctor["notes"] == [], answer.output


def test_an_argument_that_is_gone(diagnose: Callable[..., Answer], cluster: Any) -> None:
    with_argument(cluster, f"printf '\\nswap-space: 0\\n' >>{YAML}", "unrecognized arguments", 240)
    answer = diagnose()
    assert answer.places == [("option-gone", (HEAD,))], answer.output
    assert any("unrecognized arguments" in line for line in answer.doctor["findings"][0]["evidence"])


def test_a_cache_that_is_too_small_for_one_sequence(diagnose: Callable[..., Answer], cluster: Any) -> None:
    small = f"sed -i 's/^kv-cache-memory-bytes:.*/kv-cache-memory-bytes: 65536/' {YAML}"
    # the failed starts of the test before are history that must not be told again
    cluster.run(HEAD, "systemctl stop sparkthor-vllm.service; journalctl --rotate; journalctl --vacuum-time=1s")
    with_argument(cluster, small, "To serve at least one request\\|No available memory for the cache", 600)
    answer = diagnose()
    assert answer.places in ([("context-too-long", (HEAD,))], [("kv-profiling-oom", (HEAD,))]), answer.output


def test_a_worker_s_ray_is_stopped(diagnose: Callable[..., Answer], cluster: Any) -> None:
    cluster.run(HEAD, "touch /var/lib/sparkthor/maintenance; systemctl stop sparkthor-vllm.service")
    cluster.run(HEAD, "journalctl --rotate; journalctl --vacuum-time=1s")
    cluster.run(WORKER, "systemctl stop sparkthor-ray.service")
    time.sleep(12)
    answer = diagnose()
    assert answer.places == [("ray-node-lost", (WORKER,))], answer.output
    assert "unit-down" in {item["rule"] for item in answer.doctor["findings"][0]["consequences"]}


def test_a_worker_has_another_token(diagnose: Callable[..., Answer], cluster: Any) -> None:
    cluster.run(WORKER, f"cp -p {TOKEN} /run/ray_token; echo another-token-of-some-length >{TOKEN}")
    try:
        cluster.run(WORKER, "systemctl restart --no-block sparkthor-ray.service")
        time.sleep(25)
        answer = diagnose()
    finally:
        cluster.run(WORKER, f"cp -p /run/ray_token {TOKEN}; systemctl restart --no-block sparkthor-ray.service")
    assert answer.places == [("ray-token-differs", (WORKER,))], answer.output
