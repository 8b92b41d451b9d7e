# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What clients get whose requests run when somebody restarts the engine: all of their answer, or an error."""

from __future__ import annotations

import json
import threading
import time

from tests.integration.conftest import Cluster
from tools.faults.site import VLLM, Site, wait

TOKENS = 400
ROUNDS = 3


def ask(site: Site, kept: list[tuple[str, str]]) -> None:
    body = {"model": site.model, "prompt": "hello", "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    kept.append(site.endpoint.exchange("/v1/completions", body, 600, lambda _socket: None))


def test_a_restart_gives_nobody_half_an_answer(cluster: Cluster) -> None:
    site = Site(cluster.lab, cluster.inventories)
    for number in range(ROUNDS):
        wait(lambda: site.endpoint.complete(1, stream=False, timeout=120) == "", 900, "a completion")
        ends: list[tuple[str, str]] = []
        clients = [threading.Thread(target=ask, args=(site, ends)) for _client in range(4)]
        for client in clients:
            client.start()
        time.sleep(3)
        begun = time.monotonic()
        site.on(site.head, f"systemctl restart --no-block {VLLM}")
        for client in clients:
            client.join()
        told = [json.loads(text)["choices"][0]["finish_reason"] if text else error for text, error in ends]
        print(f"\nround {number + 1}: after {time.monotonic() - begun:.1f} s: {told}")
        counts = [json.loads(text)["usage"]["completion_tokens"] for text, _error in ends if text]
        assert [count for count in counts if count != TOKENS] == []
        assert any(error for _text, error in ends), "every request had ended before: ask for more tokens"
