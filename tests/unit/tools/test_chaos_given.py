# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chaos on labs that another tool deployed: many clusters on one GPU, each its own reference, cut short in the end."""

from __future__ import annotations

import json
import lzma
import random
import signal
import socket
import sys
import tarfile
import time
from collections import UserList
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tools.chaos import __main__ as command
from tools.chaos import clients, cluster, judge, lay, schedule
from tools.faults.observe import Endpoint, Request
from tools.faults.site import FaultError, Site
from tools.gpu import clusters, collect, model, shared, suite

HOSTS = ["a-01", "a-02", "a-03"]


@pytest.fixture(autouse=True)
def calm() -> Iterator[None]:
    """No alarm and no handler outlives its test."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGTERM)}
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in kept.items():
        signal.signal(number, handler)


# -- whom it is laid on -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", clusters.CHAOS)
def test_a_deployed_cluster_is_read_from_its_inventory(tmp_path: Path, name: str) -> None:
    found = cluster.given(str(clusters.CHAOS[name].write(name, 3, tmp_path)))
    assert (found.executor, found.model) == (clusters.CHAOS[name].executor, "random-qwen3")
    assert found.without == cluster.SHARED
    # a play that changes an argument keeps the others: without them the engine would take the whole GPU
    changed = [found.change(number) for number in range(len(schedule.CHANGES))]
    assert [each.get("vllm_serve_args", found.args) for each in changed][:2] == [found.args, found.args]
    assert changed[2]["vllm_serve_args"] == {**found.args, "max-num-seqs": 3}
    assert found.args["gpu-memory-utilization"] == 0.03


def test_the_lab_on_cpus_is_laid_on_as_before(tmp_path: Path) -> None:
    mp = cluster.CLUSTERS["mp"]
    assert mp.change(2) == {"vllm_serve_executor": "mp", "vllm_serve_args": {"max-num-seqs": 3}}
    assert mp.without == frozenset()
    assert command.parse(["--cluster", "mp"]).results == command.RESULTS
    place = tmp_path / "group_vars"
    place.mkdir()
    (place / "cluster.yml").write_text("lab_name: x\n")
    assert cluster.given(str(tmp_path)).without == frozenset()


@pytest.mark.parametrize(("named", "asked"), [("one", "one"), (["one", "two"], "one"), (None, ""), ([], "")])
def test_clients_ask_for_the_first_of_the_declared_names(tmp_path: Path, named: Any, asked: str) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/cluster.yml").write_text(yaml.safe_dump({"vllm_serve_served_model_name": named}))
    assert cluster.given(str(tmp_path)).model == asked


def test_what_reaches_beyond_a_host_with_a_gpu_is_not_drawn() -> None:
    assert set(schedule.KINDS) > cluster.SHARED
    rounds = [schedule.draw(1, number, HOSTS, "ray", cluster.SHARED) for number in range(1, 400)]
    assert {fault.kind for each in rounds for fault in each.faults} == set(schedule.KINDS) - cluster.SHARED


@pytest.mark.parametrize("words", ["--lab x", "--inventory x", "--lab x --inventory x --cluster ray"])
def test_a_lab_needs_its_inventory_and_nothing_else(words: str) -> None:
    with pytest.raises(SystemExit):
        command.parse(words.split())


def test_an_inventory_may_be_named_from_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert command.parse(["--lab", "x", "--inventory", "mine"]).inventory == str(tmp_path / "mine")
    assert command.parse(["--lab", "x", "--inventory", "3spark"]).inventory == "3spark"
    (tmp_path / "lab").mkdir()  # as beside the Makefile, where the simulator lies
    assert command.parse(["--lab", "x", "--inventory", "lab"]).inventory == "lab"


def test_only_secrets_are_searched_for(tmp_path: Path) -> None:
    for name, text in {"vllm_api_key": "sk-1\n", "empty": "", ".gitignore": "*\n"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "folder").mkdir()
    assert command.kept_secrets(tmp_path) == {"vllm_api_key": "sk-1"}


# -- its own reference ------------------------------------------------------------------------------------------------


class Engine(clients.Asking):
    """Answers without a connection; ``strange`` is the number of the answer that is another one."""

    strange = -1
    count = 0
    text = "one two three"

    def answer(
        self,
        tokens: int,
        *,
        stream: bool,
        timeout: float,
        prompt: str = clients.PROMPT,
        connected: Callable[[socket.socket], None] = lambda _socket: None,
    ) -> tuple[str, str]:
        self.count += 1
        said = "one four" if self.count == self.strange else self.text
        return (said if tokens == self.whole else said.split()[0] if said else ""), ""


def engine() -> Engine:
    return Engine("127.0.0.1", 1, "key", "model", whole=3)


def test_the_reference_is_what_it_says_each_time_alone_and_in_company() -> None:
    asked = engine()
    assert clients.agreed(asked) == "one two three"
    assert asked.count == 11
    asked.expected = "one two three"
    assert asked.complete(3, stream=False, timeout=1) == ""
    assert asked.complete(1, stream=True, timeout=1) == ""
    asked.text = "one four"
    assert asked.complete(3, stream=False, timeout=1).startswith(judge.WRONG)


@pytest.mark.parametrize("strange", [1, 2, 4])
def test_without_the_same_answer_each_time_there_is_no_reference(strange: int) -> None:
    asked = engine()
    asked.strange = strange
    with pytest.raises(FaultError, match="greedy answers differ: 'one four'; 'one two three'"):
        clients.agreed(asked)


def test_nothing_said_is_no_reference() -> None:
    asked = engine()
    asked.text = ""
    with pytest.raises(FaultError, match="no reference: an empty answer"):
        clients.agreed(asked)


def test_limits_follow_from_the_clean_start_and_the_answer_must_outlast_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["one", "one", "one", "two"]
    monkeypatch.setattr(command, "agreed", lambda _endpoint: answers.pop(0))
    monkeypatch.setattr(command, "clean_start", lambda _site, _age: 100.0)
    site = SimpleNamespace(endpoint=Endpoint("127.0.0.1", 1, "key", "model"))
    run = command.Run(site, cluster.Cluster("x", "ray"), tmp_path)  # type: ignore[arg-type]  # a stand-in for the lab
    command.prepare(run)
    assert (run.endpoint.expected, run.endpoint.whole) == ("one", clients.FEW_TOKENS)
    assert (round(run.limit), run.sight) == (130 + 60 + 120, 100.0)
    with pytest.raises(FaultError, match="after a clean start it answers otherwise"):
        command.prepare(run)


def test_a_model_that_is_sure_names_words_alone() -> None:
    config = model.make_model.documents()  # type: ignore[attr-defined]  # a program that it imports
    vocabulary = dict(model.padded(config["tokenizer.json"])["vocab"])  # type: ignore[call-overload]  # JSON
    names = {number: name for name, number in vocabulary.items()}
    size = int(str(model.SHAPE["vocab_size"]))
    following = {model.successor(token, size) for token in range(size)}
    assert following == set(range(size // 2, size))
    assert all(names[token] == f"w{token}" for token in following)
    # many tokens long, an answer does not come back to where it was
    seen = [7]
    while len(seen) < 100:
        seen.append(model.successor(seen[-1], size))
    assert len(set(seen)) == 100


class Row:
    def __init__(self, values: Iterable[float]) -> None:
        self.values = list(values)

    def __mul__(self, factor: float) -> Row:
        return Row(one * factor for one in self.values)

    def __add__(self, other: Row) -> Row:
        return Row(mine + its for mine, its in zip(self.values, other.values, strict=True))


class Matrix(UserList[Row]):
    def __imul__(self, factor: float) -> Matrix:
        self.data = [row * factor for row in self.data]
        return self


def test_the_successor_wins_by_far() -> None:
    dice = random.Random(1)
    size, width = 32, 64
    weights = {
        name: Matrix([Row(dice.gauss(0, 0.02) for _column in range(width)) for _row in range(size)])
        for name in ("model.embed_tokens.weight", "lm_head.weight")
    }
    model.assure(weights)
    for token, row in enumerate(weights["model.embed_tokens.weight"]):
        rows = weights["lm_head.weight"]
        logits = [sum(a * b for a, b in zip(row.values, other.values, strict=True)) for other in rows]
        assert max(range(size), key=logits.__getitem__) == model.successor(token, size)


def test_a_host_with_one_nic_loses_that_one() -> None:
    told: list[tuple[Any, ...]] = []
    hosts = {"a-01": SimpleNamespace(nics=["eno1"], management="eno1"),
             "spark-01": SimpleNamespace(nics=["eno1", "p0", "p1"], management="eno1")}  # fmt: skip
    lab = SimpleNamespace(
        plan=SimpleNamespace(host=hosts.__getitem__),
        cut=lambda *words, silent=False: told.append((*words, silent)),
        loss=lambda *words: told.append(words),
        rate=lambda *words: told.append(words),
    )
    site: Any = SimpleNamespace(lab=lab)
    for host in hosts:
        for kind in ("link", "carrier", "loss", "rate"):
            lay.LAY[kind][0](site, schedule.Fault(kind, host, amount=5))
    assert told[:4] == [("a-01", "eno1", True), ("a-01", "eno1", False), ("a-01", 5, "eno1"), ("a-01", ("eno1",), 5)]
    assert told[4:] == [("spark-01", True), ("spark-01", False), ("spark-01", 5), ("spark-01", (), 5)]


# -- cut short --------------------------------------------------------------------------------------------------------


def history(**change: Any) -> judge.History:
    made = judge.History(
        pulses=[Request(float(second), second + 0.5, ok=True) for second in range(100)],
        states=[(0.0, "serving", "serving")],
        rounds=[judge.Laid(1, ["gcs a-01 at 0 s"], began=90.0)],
        ended=100.0,
        cut=True,
    )
    for name, value in change.items():
        setattr(made, name, value)
    return made


def test_what_had_not_come_to_its_end_is_no_finding() -> None:
    assert judge.findings(history(), 50.0) == []
    assert judge.findings(history(rounds=[judge.Laid(1, [], 0.0, whole=60.0)]), 50.0) == []
    [late] = judge.findings(history(rounds=[judge.Laid(1, [], 0.0, whole=40.0)]), 50.0)
    assert late.startswith("round 1: did not serve again")
    found = judge.findings(history(cut=False), 50.0)
    assert [line.split(" (")[0] for line in found] == [
        "round 1: did not serve again",
        "the plays at the end were not run",
    ]


def test_a_request_may_be_open_as_long_as_a_start_takes_there() -> None:
    slow = history(requests=[Request(0.0)], ended=400.0, states=[(0.0, "serving", "serving")], rounds=[])
    assert judge.findings(slow, 50.0, 420.0) == []
    [found] = judge.findings(slow, 50.0)
    assert found.endswith("open for 400 s, allowed 300 s")


class Quiet:
    """Clients and a watch that see a serving cluster."""

    def __init__(self, *_words: Any, **_more: Any) -> None:
        self.state, self.newest = "serving", dict[str, Any]()
        self.requests, self.pulses = list[Request](), [Request(time.monotonic(), time.monotonic(), ok=True)]
        self.changes, self.stale = [(time.monotonic(), "serving", "serving")], list[tuple[float, float]]()

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *_words: object) -> None:
        pass

    def first_success(self, since: float) -> float:
        return since


def test_a_run_is_judged_at_the_moment_that_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def long(*_words: Any) -> bool:
        time.sleep(30)
        return True

    place = clusters.CHAOS["cmp1"].write("cmp1", 1, tmp_path)
    site = SimpleNamespace(endpoint=Endpoint("127.0.0.1", 1, "key", "x"), model="x", hosts=HOSTS, leader=None)
    monkeypatch.setattr(Site, "open", lambda *_words: site)
    monkeypatch.setattr(command, "prepare", lambda run: setattr(run, "limit", 60.0))
    monkeypatch.setattr(command, "Clients", Quiet)
    monkeypatch.setattr(command, "Watch", Quiet)
    monkeypatch.setattr(command.Run, "round", long)
    words = ["--lab", "cmp1", "--inventory", str(place), "--results", str(tmp_path / "results"), "--seed", "5"]
    begun = time.monotonic()
    assert command.main([*words, "--ends", str(time.time() + 0.1)]) == 0
    assert time.monotonic() - begun < 20
    folder = tmp_path / "results" / "cmp1-5"
    found = json.loads((folder / "result.json").read_text())
    assert (found["cut"], found["findings"], found["executor"]) == (True, [], "mp")
    assert json.loads((folder / "plan.json").read_text())["cluster"] == "cmp1"
    assert site.model == "random-qwen3"


# -- many of them -----------------------------------------------------------------------------------------------------


def test_each_cluster_has_a_seed_of_its_own_and_all_end_together() -> None:
    deploys, measured, runs = suite.chaotic(40, 8, 1234.0)
    everywhere = [*clusters.DOORS, *clusters.CHAOS]
    assert [(chain[0].cluster, chain[0].stages) for chain in deploys.chains] == [
        (name, "deploy") for name in everywhere
    ]
    # what the way through two front proxies costs is measured while no other cluster computes
    assert [[step.stages for step in chain] for chain in measured.chains] == [["chain"]]
    told = []
    for chain in runs.chains:
        [step] = chain
        assert (step.program, step.stages) == ("tools.chaos", "")
        told.append(command.parse([*step.options.split(), "--inventory", "x", "--results", "y", "--lab", step.cluster]))
    assert [options.lab for options in told] == list(clusters.CHAOS)
    assert [options.seed for options in told] == list(range(40, 40 + len(told)))
    assert {(options.minutes, options.ends) for options in told} == {(8.0, 1234.0)}


def test_all_ranks_fit_on_one_gpu() -> None:
    # memory that an engine wants to find free, of all ranks together
    ranks = sum(len(each.gpus) for each in clusters.CHAOS.values())
    assert {number for each in clusters.CHAOS.values() for number in each.gpus} == {0}
    small = float(clusters._SMALL["gpu-memory-utilization"])
    assert ranks * small < 0.6
    [doors] = clusters.DOORS.values()
    large = float(doors.groups["far"]["vllm_serve_args"]["gpu-memory-utilization"])
    assert (ranks + 1) * small + large < 0.95


def test_a_step_runs_its_program_on_its_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[list[str]] = []

    def noted(words: Sequence[str], *_more: Any) -> int:
        told.append(list(words))
        return 0

    monkeypatch.setattr(suite, "RESULTS", tmp_path)
    monkeypatch.setattr(suite, "ended", noted)
    monkeypatch.setattr(clusters, "FOLDER", tmp_path / "inventories")
    runner = suite.Runner({}, ["cmp1"])
    runner.places = {"cmp1": tmp_path / "cmp1"}
    assert runner.run(suite.chaotic(1, 2)) == 0
    assert [words[2:4] for words in told] == [["tools.gpu", "deploy"], ["tools.chaos", "--seed"]]
    assert all(words[-2:] == ["--lab", "cmp1"] for words in told)


def test_ranks_that_share_a_gpu_are_hosts_of_their_own() -> None:
    assert shared.words(1, 3)[:6] == ["unshare", "--uts", "bash", "-c", shared._HOST, "shared"]
    assert shared.words(1, 3)[6:] == ["rank-1", sys.executable, shared.__file__, "rank", "1", "3"]
    declared = yaml.safe_load((clusters.BASE / "group_vars" / "cluster.yml").read_text())["engine_extra_env"]
    assert {key: value for key, value in declared.items() if key.startswith("NCCL_")}.items() <= shared.NCCL.items()


def test_ranks_that_cannot_share_a_gpu_end_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shared, "words", lambda number, _ranks: ["bash", "-c", f"exit {number}"])
    assert shared.main(["1"]) == 0
    assert shared.main(["2"]) == 1
    assert capfd.readouterr().err == "NCCL does not let ranks share this GPU: deploy no cluster on it\n"


RESULT = {
    **{"cluster": "cmp1", "seed": 5, "executor": "mp", "rounds": 3, "laid": {"front": 1, "link": 2}, "minutes": 9.5},
    **{"limit": 250, "findings": ["at 3 s: it was wrong"], "healed": [10, 70], "cut": True, "missed": {}},
}


def test_what_was_found_comes_back_in_few_small_files(tmp_path: Path) -> None:
    for cluster_name, change in (("cmp1", {}), ("ctp1", {"cluster": "ctp1", "findings": None, "cut": False})):
        folder = tmp_path / "results" / cluster_name / f"{cluster_name}-5"
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps({**RESULT, **change}))
    lines = collect.summary(tmp_path / "results")
    assert lines == [
        "2 runs, 19 min of chaos",
        "cmp1 (mp) seed 5: 9.5 min, 3 rounds, 3 faults, 1 findings, cut short; healed after [10, 70] s of 250; "
        "front=1 link=2",
        "ctp1 (mp) seed 5: 9.5 min, 3 rounds, 3 faults, goes on; healed after [10, 70] s of 250; front=1 link=2",
        "cmp1 seed 5: FINDING  at 3 s: it was wrong",
    ]
    assert collect.pack(tmp_path / "results", tmp_path, size=100, most=30) == 0
    pieces = sorted(tmp_path.glob("chaos.tar.xz.*"), key=lambda path: int(path.suffix[1:]))
    assert [path.stat().st_size for path in pieces[:-1]] == [100] * (len(pieces) - 1)
    whole = b"".join(path.read_bytes() for path in pieces)
    with tarfile.open(fileobj=BytesIO(lzma.decompress(whole))) as archive:
        assert "./cmp1/cmp1-5/result.json" in archive.getnames()
    assert collect.pack(tmp_path / "results", tmp_path, size=100, most=1) == len(whole) - 100
    with pytest.raises(OSError, match="ended with 2"):
        collect.pack(tmp_path / "nothing", tmp_path)
