#!/usr/bin/env python3
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask one host alone: start vLLM without Ray on this machine, print its greedy answer as JSON, stop it.

The answer depends on the model and the engine alone, so it is kept in the cache under the digest of both; ``--fresh``
asks again. Tests compare a cluster's answer with it, ``make up`` does so too.

    reference_answer.py [--prompt TEXT] [--max-tokens N] [--fresh]
    {"content": " blue base …", "margin": 0.057, "model": "…", "prompt": "hello", "seconds": 46.1, …}

``margin`` is the smallest lead, in log-probability, of a chosen token over the second best: how far rounding would
have to move a value before two correct engines could differ.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

import prepare

PROMPT = "hello"
MAX_TOKENS = 16
START_LIMIT = 600.0
# what one host and every stage of a cluster share; the collection's lab recipe holds the same values
ENGINE_OPTIONS: dict[str, Any] = {
    "served-model-name": ["tiny"],
    "dtype": "float32",
    "max-model-len": 512,
    "max-num-seqs": 4,
    "kv-cache-memory-bytes": 67108864,
    "compilation-config": {"mode": 2, "backend": "eager"},
}


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def request(path: str, method: str, url: str, body: dict[str, Any] | None = None, timeout: float = 180.0) -> Any:
    connection = UnixConnection(path, timeout)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, url, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
        if response.status != 200:
            raise RuntimeError(f"{method} {url}: {response.status} {text[:500]}")
        return json.loads(text) if text else None
    finally:
        connection.close()


def read_answer(document: dict[str, Any]) -> dict[str, Any]:
    """What a test compares, out of a chat completion with log-probabilities."""
    choice = document["choices"][0]
    margins = [
        token["top_logprobs"][0]["logprob"] - token["top_logprobs"][1]["logprob"]
        for token in choice["logprobs"]["content"]
    ]
    message = choice["message"]
    return {
        "content": message.get("content") or message.get("reasoning") or "",
        "tokens": document["usage"]["completion_tokens"],
        "margin": round(min(margins), 4),
    }


def engine_environment(home: str, venv: str) -> dict[str, str]:
    return {
        "HOME": home,
        "PATH": f"{venv}/bin:/usr/local/bin:/usr/bin:/bin",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }


def ask_one_host(venv: str, model: str, prompt: str, max_tokens: int) -> dict[str, Any]:
    """Start the engine, ask, stop it. Nothing stays behind, whatever happens."""
    # a short folder: the path of a UNIX socket holds 107 bytes
    home = tempfile.mkdtemp(prefix="sparkthor-ref-")
    log_path, socket_path = os.path.join(home, "vllm.log"), os.path.join(home, "vllm.sock")
    config = os.path.join(home, "vllm.yaml")
    with open(config, "w", encoding="utf-8") as file:
        json.dump({"model": model, "uds": socket_path, **ENGINE_OPTIONS}, file)  # JSON is YAML
    began = time.monotonic()
    with open(log_path, "wb") as log:
        process = subprocess.Popen(
            [f"{venv}/bin/vllm", "serve", "--config", config],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=home,
            env=engine_environment(home, venv), start_new_session=True,
        )  # fmt: skip
    try:
        while True:
            if process.poll() is not None or time.monotonic() - began > START_LIMIT:
                with open(log_path, encoding="utf-8", errors="replace") as file:
                    tail = file.read()[-3000:]
                state = "did not answer in time" if process.poll() is None else f"ended with {process.returncode}"
                raise RuntimeError(f"vllm serve {state}; its last lines:\n{tail}")
            # the socket is bound long before the engine accepts: a refused or silent one only means "not yet"
            with contextlib.suppress(OSError, http.client.HTTPException, RuntimeError):
                request(socket_path, "GET", "/health", timeout=5)
                break
            time.sleep(0.5)
        ready = time.monotonic() - began
        answer = read_answer(
            request(
                socket_path,
                "POST",
                "/v1/chat/completions",
                {
                    "model": "tiny",
                    "messages": [{"role": "user", "content": prompt}],
                    "max_tokens": max_tokens,
                    "temperature": 0,
                    "logprobs": True,
                    "top_logprobs": 2,
                },
            )
        )
    finally:
        _stop(process)
        shutil.rmtree(home, ignore_errors=True)
    return {**answer, "prompt": prompt, "model": model, "seconds": round(ready, 1)}


def _stop(process: subprocess.Popen[bytes]) -> None:
    for sign, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 10)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            break
    # the engine core and its worker share the session: none outlives the server
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def reference_answer(
    prompt: str = PROMPT, max_tokens: int = MAX_TOKENS, fresh: bool = False, cache: str | None = None
) -> dict[str, Any]:
    paths = prepare.prepare(cache, venv=True)
    kept = os.path.join(paths["cache"], "answers", f"{paths['lock_hash']}-{os.path.basename(paths['model'])}.json")
    answers: dict[str, Any] = {}
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError), open(kept, encoding="utf-8") as file:
        answers = json.load(file)
    key = f"{max_tokens} {prompt}"
    if fresh or key not in answers:
        answers[key] = ask_one_host(paths["venv"], paths["model"], prompt, max_tokens)
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        scratch = f"{kept}.{os.getpid()}"
        with open(scratch, "w", encoding="utf-8") as file:
            json.dump(answers, file, indent=1)
        os.replace(scratch, kept)
    return answers[key]


def main() -> int:
    parser = argparse.ArgumentParser(description="Print the greedy answer of one host alone as JSON.")
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--max-tokens", type=int, default=MAX_TOKENS)
    parser.add_argument("--fresh", action="store_true", help="ask again although the answer is kept")
    parser.add_argument("--cache", help="the lab's cache folder")
    arguments = parser.parse_args()
    try:
        answer = reference_answer(arguments.prompt, arguments.max_tokens, arguments.fresh, arguments.cache)
    except (RuntimeError, prepare.PrepareError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(answer, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
