# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real llama.cpp on loopback, without a lab: what is read of it, what it takes, and how it ends.

LLAMA_PROGRAMS is a folder with its programs, as tools/llama_programs.sh makes one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import httpx
import openai
import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import peer
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import gguf, gguf_memory
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import progress, serving, watchdog_report
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.llama_cpp import LLAMA_CPP

from tests.unit.gguf_files import speaking_model
from tests.unit.plugins.module_utils._onhost.rank_site import HOSTS, Site, run, until
from tests.unit.plugins.module_utils._onhost.server_site import (
    WORKERS,
    Engines,
    a_worker_is_killed,
    a_worker_stops_in_a_request,
    watched,
)

PROGRAMS = Path(os.environ.get("LLAMA_PROGRAMS", ""))
pytestmark = pytest.mark.skipif(
    not os.access(PROGRAMS / "llama-server", os.X_OK),
    reason="LLAMA_PROGRAMS names no folder with llama-server (tools/llama_programs.sh makes one)",
)
MIB = 2**20


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speaking_model(tmp_path_factory.mktemp("model") / "m.gguf")


def ended(*words: str) -> tuple[int, list[str]]:
    """How llama-server ends by itself, and what it said."""
    done = subprocess.run(
        [str(PROGRAMS / "llama-server"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "GGML_NO_BACKTRACE": "1"},
    )
    return done.returncode, done.stdout.splitlines()


async def read(place: str, running: int) -> tuple[int | None, tuple[float, ...] | None]:
    """Requests in flight and the counters, as soon as so many requests are."""
    for _time in range(600):
        text = await asyncio.to_thread(serving.metrics, place)
        told = watchdog_report.requests_in_flight(text, LLAMA_CPP.metrics)
        if told == running:
            return told, watchdog_report.engine_counters(text, LLAMA_CPP.metrics)
        await asyncio.sleep(0.1)
    raise AssertionError(text)


def buffers(lines: list[str], what: str) -> dict[str, float]:
    """MiB of a kind of buffer by device."""
    found = (re.search(rf"(\S+) +{what} buffer size = +([0-9.]+) MiB", line) for line in lines)
    return {one[1]: float(one[2]) for one in found if one}


def test_the_files_of_the_plan_start_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    async def story(site: Site) -> None:
        engines = Engines(site, monkeypatch, PROGRAMS, model)
        engines.start_by_files(tmp_path / "m@1")
        await a_worker_is_killed(engines)

    run(tmp_path, story)


def test_an_idle_group_has_no_work_and_a_long_request_is_counted_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path
) -> None:
    async def story(site: Site) -> None:
        engines = Engines(site, monkeypatch, PROGRAMS, model)
        for name in HOSTS.values():
            engines.start(name)
        await engines.serves()
        place, names = str(engines.socket), LLAMA_CPP.metrics
        own, _systemd = watched(engines)
        for _time in range(10):
            await until(lambda: serving.connections(place) == 0)
            seen = await asyncio.to_thread(own.observe)
            assert seen is not None
            assert (seen.counters is not None, seen.in_flight) == (True, 0)
        text = serving.metrics(place)
        assert [name for name in names.figures().values() if f"\n{name} " not in text] == []
        body = json.dumps({"model": "m", "prompt": "x", "max_tokens": 1900, "ignore_eos": True})
        with contextlib.closing(peer.opened(peer.unix(place), 300)) as client:
            client.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            first = (await read(place, running=1))[1]
            for _time in range(600):
                running, counters = await read(place, running=1)
                if counters != first:
                    break
            assert (running, counters == first) == (1, False)
        # who leaves ends his request
        await read(place, running=0)
        said = list(site.sides["one"].rank.lines)
        assert any(LLAMA_CPP.log.serves.search(progress.plain(line, LLAMA_CPP.log)) for line in said)
        assert progress.progress(said, form=LLAMA_CPP.log).name == "first completion"

    run(tmp_path, story)


def test_a_worker_that_stops_in_a_request_is_named_and_the_group_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path
) -> None:
    async def story(site: Site) -> None:
        lines = await a_worker_stops_in_a_request(Engines(site, monkeypatch, PROGRAMS, model))
        assert "a process of the rank on two is stopped" in lines[-1]

    run(tmp_path, story)


def test_the_openai_client_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    """At the engine itself, without the front proxy."""

    def ask(place: str) -> None:
        with httpx.Client(transport=httpx.HTTPTransport(uds=place), timeout=300) as through:
            client = openai.OpenAI(base_url="http://engine/v1", api_key="none", http_client=through, max_retries=0)
            said = [{"role": "user", "content": "word1"}]
            reply = client.chat.completions.create(model="m", messages=said, max_tokens=6)
            assert (reply.choices[0].finish_reason, reply.usage.completion_tokens) == ("length", 6)
            parts = client.completions.create(model="m", prompt="word1", max_tokens=6, stream=True)
            assert len([part for part in parts if part.choices]) > 3
            with pytest.raises(openai.APIStatusError) as refused:
                client.embeddings.create(model="m", input="word1")
            assert refused.value.status_code == 501

    async def story(site: Site) -> None:
        engines = Engines(site, monkeypatch, PROGRAMS, model)
        for name in HOSTS.values():
            engines.start(name)
        await engines.serves()
        await asyncio.to_thread(ask, str(engines.socket))

    run(tmp_path, story)


def test_memory_is_as_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    found = gguf_memory.plan(
        gguf.read_gguf(str(model)),
        head_computes=False,
        hosts=["head", *WORKERS],
        pipeline_parallel=3,
        layer_partition="0,4,4",
        max_model_len=2048,
    )

    async def story(site: Site) -> None:
        engines = Engines(site, monkeypatch, PROGRAMS, model)
        command = [*engines.part("one")["command"], "--tensor-split", found["arguments"]["tensor-split"]]
        for name in WORKERS:
            engines.start(name)
        engines.start("one", command=command)
        await engines.serves()
        said = list(site.sides["one"].rank.lines)
        places = [f"RPC0[{address}:{engines.port}]" for address in WORKERS.values()]
        weights, cache, compute = (buffers(said, what) for what in ("model", "KV", "compute"))
        ranks = found["ranks"]
        planned = [[round(number / MIB, 2) for number in ranks[name]] for name in ("weights_bytes", "kv_cache_bytes")]
        assert planned[0] == [weights["CPU_Mapped"], *(weights[place] for place in places)]
        assert planned[1] == [0, *(cache[place] for place in places)]
        taken = max(compute[place] for place in places)
        assert ranks["compute_bytes"][1] / MIB == pytest.approx(taken, rel=0.03), compute

    run(tmp_path, story)


def test_memory_of_one_host_is_what_llama_fit_params_says(model: Path) -> None:
    program = PROGRAMS / "llama-fit-params"
    # a build of one's own may bring the servers alone
    if not program.exists():
        pytest.skip("the folder has no llama-fit-params")
    words = ["-m", str(model), "-c", "2048", "-np", "1", "--fit-print", "on"]
    done = subprocess.run([str(program), *words], capture_output=True, text=True, timeout=300, check=True)
    [told] = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("Host ")]
    ranks = gguf_memory.plan(gguf.read_gguf(str(model)), head_computes=False, max_model_len=2048)["ranks"]
    weights, cache, compute = (int(number) for number in told)
    assert abs(weights - ranks["weights_bytes"][0] / MIB) < 1
    assert abs(cache - ranks["kv_cache_bytes"][0] / MIB) < 1
    assert compute <= ranks["compute_bytes"][0] / MIB + 1


@pytest.mark.parametrize(
    ("words", "code", "fix"),
    [
        (["--no-such-option", "--version"], 1, "correct vllm_serve_args"),
        (["--cache-type-k", "q9", "--version"], 1, "correct vllm_serve_args"),
        (["--ctx-size", "many", "--version"], 1, "correct vllm_serve_args"),
        (["--rpc", "127.0.0.9:1"], -signal.SIGABRT, "a worker's server does not listen there"),
        (["--model", "/dev/null", "--port", "18099"], 1, "the model is not complete on the head"),
    ],
)
def test_how_it_ends_is_read_rightly(words: list[str], code: int, fix: str) -> None:
    status, said = ended(*words)
    found = progress.explain(said, LLAMA_CPP.log)
    assert (status, fix in found.fix) == (code, True), said[-5:]


def test_options_that_are_right_are_taken_without_a_start() -> None:
    status, said = ended("--model", "/dev/null", "--metrics", "--offline", "--no-ui", "--fit", "off", "--version")
    assert (status, any("version" in line for line in said)) == (0, True), said
