# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs with long prompts, as docs/clients.md says, against the lab's model with a context of 64K tokens.

They come from npm and PyPI into .lab/clients.  The model's weights are random, so what they print means nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import TOP
from tests.integration.serve.conftest import FIRST, MODEL, Serving
from tests.integration.serve.page import AGENTS, CLIENTS, agents, blocks, run

MODEL_FOLDER = TOP / ".lab/engine/model"
TORCH = TOP / ".lab/engine/wheels"
CONTEXT = 65536
OPEN_WEBUI = "open-webui==0.12.4"
PORT = 18300


def long_model(folder: Path) -> Path:
    """The lab's model for 64K tokens, whose answers end by themselves: one word in 16 ends them."""
    target = folder / "model"
    shutil.copytree(MODEL_FOLDER, target)
    vocabulary = json.loads((target / "tokenizer.json").read_text())["model"]["vocab"]
    words = sorted(number for token, number in vocabulary.items() if token.startswith("Ġ") and len(token) > 3)
    changes: dict[str, dict[str, Any]] = {
        "config.json": {"max_position_embeddings": CONTEXT},
        "tokenizer_config.json": {"model_max_length": CONTEXT},
        "generation_config.json": {"eos_token_id": [vocabulary["<|im_end|>"], *words[::16]], "do_sample": True},
    }
    for name, change in changes.items():
        path = target / name
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    return target


@pytest.fixture(scope="module")
def large(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    more = {
        "vllm_serve_max_model_len": CONTEXT,
        "vllm_serve_args": {"kv-cache-memory-bytes": 268435456, "max-num-seqs": 2},
        "model_store_models": [{"name": MODEL, "source": str(long_model(tmp_path_factory.mktemp("long")))}],
    }
    serving.site(whole=True, **{**FIRST, **more})
    yield serving
    serving.site(whole=True, **FIRST)


@pytest.fixture(scope="module")
def programs() -> str:
    return agents()


@pytest.mark.parametrize("title", AGENTS)
def test_an_agent_gets_its_answer(large: Serving, programs: str, title: str, tmp_path: Path) -> None:
    [(kind, text)] = [(kind, text) for found, kind, text in blocks() if found == title]
    before = answers(large)
    # one answer in 16 is empty
    said = [run(large, kind, text, folder=tmp_path, path=programs) for _attempt in range(3)]
    assert answers(large) >= before + 3
    assert any(output.strip() for output in said), said


def answers(serving: Serving) -> int:
    """How many requests the engine has finished."""
    text = serving.cluster.run(
        serving.cluster.head, "curl -sS --fail --unix-socket /run/sparkthor/vllm/vllm.sock http://localhost/metrics"
    )
    rows = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith("vllm:request_success_total{")]
    return int(sum(map(float, rows)))


@pytest.fixture
def web(large: Serving, tmp_path: Path) -> Iterator[str]:
    """Open WebUI's address on this machine."""
    program = CLIENTS / "open-webui"
    if not (program / "bin/open-webui").exists():
        subprocess.run(["python3.11", "-m", "venv", str(program)], check=True, timeout=300)
        # the engine's torch: that of PyPI brings gigabytes for GPUs
        [torch] = TORCH.glob("torch-*.whl")
        command = [str(program / "bin/pip"), "install", "--quiet", str(torch), OPEN_WEBUI]
        subprocess.run(command, check=True, timeout=1800)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "DATA_DIR": str(tmp_path / "data"),
        "OPENAI_API_BASE_URL": f"{large.cluster.endpoint}/v1",
        "OPENAI_API_KEY": large.cluster.api_key,
        "WEBUI_SECRET_KEY": "of this test alone",
        "OFFLINE_MODE": "true",
        "ENABLE_OLLAMA_API": "false",
        "RAG_EMBEDDING_ENGINE": "openai",
    }
    log = (tmp_path / "log").open("wb")
    command = [str(program / "bin/open-webui"), "serve", "--host", "127.0.0.1", "--port", str(PORT)]
    process = subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        address = f"http://127.0.0.1:{PORT}"
        wait_for(f"{address}/health", process, tmp_path / "log")
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)
        log.close()


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 600
    while True:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(log.read_text()[-3000:]) from None
            time.sleep(2)


def call(address: str, body: dict[str, Any] | None = None, token: str = "") -> Any:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(address, json.dumps(body).encode() if body else None, headers)
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def test_open_webui_lists_the_model_and_answers(large: Serving, web: str) -> None:
    user = {"name": "owner", "email": "owner@example.org", "password": "Made-for-1-test"}
    token = call(f"{web}/api/v1/auths/signup", user)["token"]
    assert [row["id"] for row in call(f"{web}/api/models", token=token)["data"]] == [MODEL]
    question = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}], "stream": False}
    reply = call(f"{web}/api/chat/completions", question, token)
    print(reply)
    assert reply["usage"]["completion_tokens"] > 0
