# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two splits measured on hosts that serve, the better one kept, and back again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Cluster
from tests.integration.serve.conftest import Serving
from tools.playbooks import Outcome

BENCH: dict[str, Any] = {
    **{"bench_tokenizer": "the lab's", "bench_prompts": [8], "bench_streams": [1, 4], "bench_prompt": 8},
    **{"bench_tokens": 16, "bench_runs": 2, "tune_splits": 2, "upgrade_wait": 300},
}


class Tuned(Serving):
    """The lab, and the split that its head's vLLM was started with."""

    def tune(self, arguments: list[str] | None = None, **variables: Any) -> Outcome:
        return self.play("playbooks/tune.yml", arguments, **{**BENCH, **variables})

    def split(self) -> tuple[int, int]:
        text = self.cluster.run(self.cluster.head, "cat /etc/sparkthor/vllm.yaml")
        sizes = dict(re.findall(r"^(tensor|pipeline)-parallel-size: (\d+)$", text, re.MULTILINE))
        return int(sizes.get("tensor", 1)), int(sizes.get("pipeline", 1))

    def kept(self) -> str:
        index = self.cluster.run(self.cluster.head, "cat /var/lib/sparkthor-last-good/index.json")
        return str(json.loads(index)["kept"][0]["name"])


@pytest.fixture(scope="session")
def lab(cluster: Cluster) -> Tuned:
    return Tuned(cluster)


@pytest.fixture(autouse=True)
def tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are real ones; what sends them is a stand-in for llama-benchy."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parent))


def test_what_measuring_cannot_tell_is_refused(lab: Tuned) -> None:
    outcome = lab.tune(tune_goal="context")
    assert outcome.rc != 0
    assert "Nothing was changed: tune_goal: context: splits are compared by latency or throughput." in outcome.output


def test_check_mode_says_what_would_be_measured(lab: Tuned) -> None:
    before = lab.units(), lab.files()
    outcome = lab.tune(["--check"])
    assert outcome.rc == 0, outcome.failures
    assert "measured one after the other: TP=1 PP=3, TP=3 PP=1" in outcome.output
    assert (lab.units(), lab.files()) == before


def test_the_better_one_serves_and_there_is_a_way_back(lab: Tuned) -> None:
    assert lab.split() == (1, 3)
    first = lab.kept()
    outcome = lab.tune(tune_goal="latency")
    assert outcome.rc == 0, outcome.failures
    lines = re.findall(r"(TP=\d PP=\d): ([\d.]+) tokens/s of one stream(, and serves)?", outcome.output)
    print(lines, flush=True)
    shown = {split: (float(speed), bool(serves)) for split, speed, serves in lines}
    assert set(shown) == {"TP=1 PP=3", "TP=3 PP=1"}
    wins = shown["TP=3 PP=1"][0] > 1.03 * shown["TP=1 PP=3"][0]
    assert shown["TP=3 PP=1"][1] is wins
    assert shown["TP=1 PP=3"][1] is not wins
    assert lab.split() == ((3, 1) if wins else (1, 3))
    lab.assert_answers_as_one_host()
    if wins:
        assert "vllm_serve_tensor_parallel_size: 3, vllm_serve_pipeline_parallel_size: 1" in outcome.output
        assert f"rollback.yml -e roll_back_to={first}" in outcome.output
        back = lab.play("playbooks/rollback.yml", roll_back_to=first)
        assert back.rc == 0, back.failures
    assert lab.split() == (1, 3)
    assert lab.kept() == first
    lab.assert_answers_as_one_host()


#: the other tests' model is not compiled, because that takes minutes here; a split over hosts alike compiles the same
COMPILED: dict[str, Any] = {
    **{"vllm_serve_tensor_parallel_size": 3, "vllm_serve_pipeline_parallel_size": 1},
    "vllm_serve_args": {"compilation-config": {"mode": 2, "backend": "inductor"}},
}
CACHE = "/var/lib/sparkthor/cache"


def kernels(lab: Tuned, host: str) -> dict[str, tuple[str, str]]:
    """Of each library that torch.compile made, below the cache: SHA-256 and the second in which it was made."""
    listed = lab.cluster.run(
        host, f"cd {CACHE} && find . -name '*.so' -exec sha256sum {{}} + -exec stat -c '%n %Y' {{}} +", check=False
    )
    found: dict[str, list[str]] = {}
    for first, second in (line.split() for line in listed.splitlines()):
        name, value = (second, first) if len(first) == 64 else (first, second)
        found.setdefault(name, []).append(value)
    return {name: (values[0], values[1]) for name, values in found.items()}


def loaded(lab: Tuned, host: str) -> set[str]:
    """Those that a process there has mapped."""
    maps = lab.cluster.run(host, f"grep -ho '{CACHE}/.*\\.so$' /proc/[0-9]*/maps", check=False)
    return {line.replace(CACHE, ".", 1) for line in maps.splitlines()}


def test_a_host_that_has_nothing_compiled_takes_it_from_another(lab: Tuned) -> None:
    assert lab.play(**COMPILED).rc == 0
    first, last = lab.cluster.hosts[0], lab.cluster.hosts[-1]
    given, own = kernels(lab, first), kernels(lab, last)
    print(f"compiled: {len(given)} libraries on {first}, {len(own)} on {last}", flush=True)
    assert given
    assert own
    # as on a machine that was installed anew, and has something to do besides
    lab.cluster.run(last, f"systemctl stop sparkthor-ray; rm -rf {CACHE}/* {CACHE}/.[!.]* /etc/sparkthor/ray.env")
    looked = lab.play(arguments=["--check"], **COMPILED)
    assert looked.rc == 0, looked.failures
    assert f"{last}: would take what {first} compiled" in looked.output
    assert kernels(lab, last) == {}
    outcome = lab.play(**COMPILED)
    assert outcome.rc == 0, outcome.failures
    print(re.findall(rf"{last}: \d+ files .*", outcome.output), flush=True)
    assert f"that {first} compiled" in outcome.output
    now = kernels(lab, last)
    # what was laid there is as it was made on the other host, and the ranks run it
    assert given.items() <= now.items()
    used = loaded(lab, last) & given.keys()
    print(f"{last}: runs {len(used)} of {first}'s, compiled {len(now.keys() - given.keys())} itself", flush=True)
    assert used
    assert len(now.keys() - given.keys()) < len(own)
    owners = lab.cluster.run(last, f"find {CACHE} -mindepth 1 ! -user sparkthor")
    assert owners == ""
    assert lab.cluster.run(last, "ls -A /opt/sparkthor/compiled/compiled 2>/dev/null", check=False) == ""
    again = lab.play(**COMPILED)
    assert (again.rc, sum(again.changed.values())) == (0, 0), again.changes
    lab.assert_answers_as_one_host()
