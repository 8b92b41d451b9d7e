# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model that answers: what clients are told, how fast, and what is said when it computes no sense.

These tests come first: they leave the cluster as they found it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.asking import ask
from tests.integration.conftest import TOP, Cluster
from tests.integration.serve.conftest import Serving
from tests.integration.serve.page import AGENTS, blocks, run
from tools.playbooks import run_playbook

MODEL = "smollm2-135m-instruct"
#: this model's chat template knows no tools
CHAT = [block for block in blocks() if block[0] not in {*AGENTS, "Embeddings"} and "tools=" not in block[2]]
YAML = "/etc/sparkthor/vllm.yaml"
#: each layer's input is all but lost, as a kernel does that computes wrongly: words come, and sense does not. They
#: would not end by themselves, and a busy machine needs minutes for them
NONSENSE = """hf-overrides: '{"rms_norm_eps": 1000.0}'
override-generation-config: '{"max_new_tokens": 24}'"""
START = 900


@pytest.fixture(scope="module")
def serving(cluster: Cluster) -> Serving:
    return Serving(cluster)


def told(cluster: Cluster) -> dict[str, Any]:
    """What the watchdog says of the model's answers; empty while it does not know."""
    text = cluster.run(cluster.head, "cat /run/sparkthor/state.json 2>/dev/null", check=False)
    answers: dict[str, Any] = json.loads(text or "{}").get("answers") or {}
    return answers


def restarted(cluster: Cluster, change: str) -> dict[str, Any]:
    """Serve with a changed vllm.yaml; what the watchdog says of the answers of this start."""
    cluster.run(cluster.head, f"{change}; systemctl restart --no-block sparkthor-vllm.service")
    end = time.monotonic() + START
    while told(cluster):
        assert time.monotonic() < end, "the answers of the start before are still told"
        time.sleep(1)
    while not (answers := told(cluster)):
        assert time.monotonic() < end, f"nothing is told of the answers after {START} s"
        time.sleep(2)
    print(answers, flush=True)
    return answers


def test_the_answer_is_true(serving: Serving) -> None:
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    parts = serving.api.chat.completions.create(model=MODEL, messages=asked, max_tokens=32, temperature=0, stream=True)
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert "Paris" in text


@pytest.mark.parametrize(("title", "kind", "text"), CHAT, ids=[f"{row[0]} {place}" for place, row in enumerate(CHAT)])
def test_a_client_gets_words(serving: Serving, title: str, kind: str, text: str) -> None:
    said = run(serving, kind, text, model=MODEL)
    assert re.search("[A-Za-z]{3}", said.replace("[end]", "")), f"{title}: {said!r}"


def test_it_is_measured(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # requests are real ones; what sends them is a stand-in for llama-benchy
    monkeypatch.setenv("PYTHONPATH", str(TOP / "tests/integration/tune"))
    few = {"bench_prompts": [8], "bench_prompt": 8, "bench_streams": [1, 2], "bench_tokens": 16, "bench_runs": 1}
    outcome = run_playbook(
        "playbooks/bench.yml",
        cluster.inventories,
        extra_vars={**few, "bench_tokenizer": "the lab's", "bench_folder": str(tmp_path)},
        name="doctor_serving",
    )
    assert outcome.rc == 0, outcome.failures
    (kept,) = (tmp_path / "bench").glob("*.json")
    document = json.loads(kept.read_text())
    assert document["model"] == MODEL
    assert {row["streams"] for row in document["rows"]} == {1, 2}
    assert all(row["throughput"] > 0 for row in document["rows"])


def test_answers_without_sense_are_named(cluster: Cluster, tmp_path: Path) -> None:
    assert told(cluster)["right"] >= 3
    try:
        wrong = restarted(cluster, f"cp -p {YAML} /run/sound.yaml; echo {shlex.quote(NONSENSE)} >>{YAML}")
        assert wrong["asked"] == 4
        assert wrong["right"] < 3
        answer = ask(cluster.inventories, tmp_path, "--extra-vars", f"lab_name={os.environ['SPARKLAB_NAME']}")
    finally:
        again = restarted(cluster, f"cp -p /run/sound.yaml {YAML}")
    assert answer.places == [("answers-wrong", (cluster.head,))], answer.output
    assert again["right"] >= 3
