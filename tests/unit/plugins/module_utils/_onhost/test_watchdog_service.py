# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import peer
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    former_head,
    hang,
    patience,
    places,
    serving,
    watchdog_hands,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import watchdog_service as service

from tests.unit import servers
from tests.unit.plugins.module_utils.serving_head import Engine, Systemd, make_service, settle


def test_service_serves_then_restarts_a_broken_engine(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    watchdog, said = make_service(tmp_path, config, systemd)
    (tmp_path / "starts.json").write_text('{"starts": 4}')
    assert watchdog.round().state == "loading"
    settle(watchdog)
    assert watchdog.round().line == "serving"
    assert not (tmp_path / "starts.json").exists()
    state = json.loads((tmp_path / "run/state.json").read_text())
    assert state["healthy"] is True
    assert state["completion"]["latency"] is not None
    assert 'state="serving"} 1' in (tmp_path / "run/metrics.prom").read_text()
    engine.status = 500
    watchdog.machine.probe_ended_at = float("-inf")
    watchdog.round()
    settle(watchdog)
    assert watchdog.round().state == "degraded"
    settle(watchdog)
    assert watchdog.round().restart == "completion"
    assert [call for call in systemd.calls if "kill" in call or "restart" in call] == [
        ["kill", "--signal=SIGKILL", "sparkthor-vllm.service"],
        ["--no-block", "restart", "sparkthor-vllm.service"],
    ]
    assert said[-1].startswith("restarting: completion answered 500")
    assert said[-1].endswith("(restart, cause: completion)")


def watched(tmp_path: Path, config: str, **more: Any) -> tuple[service.Service, Systemd, list[str]]:
    """A watchdog whose configuration says what is loaded, and a clock that the test moves."""
    settings = json.loads(Path(config).read_text())
    settings["loads"] = str(tmp_path / "lasting/loads.json")
    settings["load"] = {"engine": str(tmp_path / "none"), "model": str(tmp_path), "split": "TP=1 PP=3"}
    Path(config).write_text(json.dumps(settings))
    systemd = Systemd()
    one, said = make_service(tmp_path, config, systemd, **more)
    return one, systemd, said


def test_a_load_is_timed_and_the_next_one_estimated(tmp_path: Path, config: str) -> None:
    socket, now = json.loads(Path(config).read_text())["socket"], [50.0]
    watchdog, systemd, said = watched(tmp_path, config, clock=lambda: now[0], wall=lambda: 7.0)
    systemd.unit["ExecMainStartTimestampMonotonic"] = "40000000"
    assert watchdog.round().line.startswith("loading: 20 % · loading weights")
    state = json.loads((tmp_path / "run/state.json").read_text())
    assert (state["load"]["stage"], state["load"]["seconds"], state["load"]["left"]) == ("loading weights", 10.0, None)
    now[0] = 100.0
    with Engine(socket).server as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        watchdog.round()
        settle(watchdog)
        assert watchdog.round().line == "serving"
        server.shutdown()
    [load] = json.loads((tmp_path / "lasting/loads.json").read_text())["loads"]
    assert (load["seconds"], load["stages"], load["ended"]) == (60.0, {"loading weights": 10.0}, 7.0)
    assert "loaded in 1 min 00 s: before its first line 10 s, loading weights 50 s" in said
    assert json.loads((tmp_path / "run/state.json").read_text())["load"] is None

    again, _systemd, _said = watched(tmp_path, config, clock=lambda: 55.0)
    os.unlink(socket)
    again.runner.unit["ExecMainStartTimestampMonotonic"] = "40000000"  # type: ignore[attr-defined]  # our Systemd
    assert again.round().line.endswith("about 50 s left")


def test_an_engine_that_served_before_its_watchdog_came_is_no_load(engine: Engine, tmp_path: Path, config: str) -> None:
    one, _systemd, _said = watched(tmp_path, config)
    one.round()
    settle(one)
    assert one.round().line == "serving"
    assert not (tmp_path / "lasting/loads.json").exists()


def hung(engine: Engine, watchdog: service.Service) -> None:
    """Two completions in a row that fail."""
    watchdog.round()
    settle(watchdog)
    watchdog.round()
    engine.status = 500
    watchdog.machine.probe_ended_at = float("-inf")
    watchdog.round()
    settle(watchdog)
    watchdog.round()
    settle(watchdog)


def test_what_the_ranks_do_is_kept_before_the_restart(engine: Engine, tmp_path: Path, config: str) -> None:
    paths = hang.Paths(*(str(tmp_path / name) for name in ("wanted", "request", "taken", "others", "folder")))
    kept_at: list[bool] = []

    class Noting(Systemd):
        def __call__(self, argv: list[str], seconds: float) -> tuple[int, str, str]:
            if "restart" in argv:
                kept_at.append(os.path.exists(paths.taken))
            return super().__call__(argv, seconds)

    class Hands(watchdog_hands.Hands):
        def write(self, path: str, text: str) -> None:
            super().write(path, text)
            if path == paths.wanted:
                Path(paths.taken).write_text("now")

    one, said = make_service(tmp_path, config, Noting(), hands=Hands())
    one.keeps = paths
    hung(engine, one)
    assert one.round().restart == "completion"
    assert kept_at == [True]
    assert Path(paths.wanted).read_text().startswith("sparkthor-vllm.service: completion answered 500")
    assert not any("has not kept" in line for line in said)


def test_the_restart_does_not_wait_for_a_host_that_keeps_nothing(
    engine: Engine, tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hang, "DEADLINE", 0.3)
    paths = hang.Paths(*(str(tmp_path / name) for name in ("wanted", "request", "taken", "others", "folder")))
    systemd = Systemd()
    one, said = make_service(tmp_path, config, systemd)
    one.keeps = paths
    hung(engine, one)
    assert one.round().restart == "completion"
    assert ["--no-block", "restart", "sparkthor-vllm.service"] in systemd.calls
    assert any("this host has not kept within" in line for line in said)


def answering(engine: Engine, tmp_path: Path, config: str) -> tuple[service.Service, Systemd]:
    settings = {**json.loads(Path(config).read_text()), "answers": True}
    Path(config).write_text(json.dumps(settings))
    systemd = Systemd()
    one, _said = make_service(tmp_path, config, systemd)
    engine.routes["/v1/chat/completions"] = (200, {"choices": [{"message": {"content": "!!!"}}]})
    one.round()
    settle(one)
    assert one.round().line == "serving"
    return one, systemd


def test_service_asks_simple_tasks_after_the_start(engine: Engine, tmp_path: Path, config: str) -> None:
    one, _systemd = answering(engine, tmp_path, config)
    assert one._ask_thread is not None
    one._ask_thread.join(10)
    assert one.round().line.startswith("serving: the model answers 0 of 4 simple tasks rightly")
    state = json.loads((tmp_path / "run/state.json").read_text())
    assert (state["healthy"], state["answers"]["right"]) == (True, 0)
    assert "sparkthor_serving_answers_right 0" in (tmp_path / "run/metrics.prom").read_text()


def test_what_an_engine_answered_is_not_said_of_the_next_one(engine: Engine, tmp_path: Path, config: str) -> None:
    one, systemd = answering(engine, tmp_path, config)
    assert one._ask_thread is not None
    one._ask_thread.join(10)
    systemd.unit["InvocationID"] = "bbb"
    one.round()
    assert one.machine.answers == {}


def test_a_completion_of_an_engine_is_not_said_of_the_next_one(engine: Engine, tmp_path: Path, config: str) -> None:
    """A play restarts the unit between two rounds, after the old engine answered."""
    systemd = Systemd()
    watchdog, _said = make_service(tmp_path, config, systemd)
    watchdog.round()
    settle(watchdog)
    systemd.unit["InvocationID"] = "bbb"
    assert watchdog.round().state == "loading"
    assert not watchdog.machine.served
    settle(watchdog)
    assert watchdog.round().line == "serving"


def test_an_engine_that_somebody_started_since_the_look_is_not_restarted(
    engine: Engine, tmp_path: Path, config: str
) -> None:
    systemd = Systemd()
    watchdog, _said = make_service(tmp_path, config, systemd)
    watchdog.round()
    settle(watchdog)
    watchdog.round()
    engine.status = 500
    watchdog.machine.probe_ended_at = float("-inf")
    watchdog.round()
    settle(watchdog)
    watchdog.round()
    settle(watchdog)
    look, acts = watchdog.observe, len(systemd.calls)

    def slow() -> service.observation.Observation | None:
        seen = look()
        systemd.unit["InvocationID"] = "bbb"
        return seen

    watchdog.observe = slow  # type: ignore[method-assign]
    assert watchdog.round().restart == "completion"
    assert systemd.calls[acts:] == []
    watchdog.observe = look  # type: ignore[method-assign]
    assert watchdog.round().state == "loading"


def test_ranks_without_ray_are_what_the_heads_program_publishes(tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    config = {"group_state": str(path)}
    assert service.group_ranks(config) is None
    path.write_text(json.dumps({"updated": time.time(), "ranks": {"10.0.0.1": "a", "10.0.0.2": "b"}}))
    assert service.group_ranks(config) == {"10.0.0.1": "a", "10.0.0.2": "b"}


def test_service_goes_on_after_its_own_death(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    watchdog, _said = make_service(tmp_path, config, systemd)
    watchdog.round()
    settle(watchdog)
    watchdog.round()
    two, said = make_service(tmp_path, config, systemd)
    two.take_up()
    decision = two.round()
    assert (decision.state, decision.healthy) == ("serving", True)
    assert systemd.calls == []
    assert two.since == pytest.approx(watchdog.since, abs=0.01)
    assert said == ["serving"]


def test_service_lives_with_a_full_disk_and_a_silent_systemd(
    engine: Engine, tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = Systemd()
    watchdog, said = make_service(tmp_path, config, systemd)

    def full(path: str, content: str, mode: int = 0o644) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(service.serving, "write_file", full)
    assert watchdog.round() is not None
    assert any("No space left" in line for line in said)
    watchdog.runner = lambda argv, seconds: (124, "", "timeout")
    assert watchdog.round() is None
    assert said[-1].startswith("systemd gives no answer")


def test_service_leaves_a_host_out_and_takes_it_in_again(engine: Engine, tmp_path: Path, config: str) -> None:
    data = json.loads(Path(config).read_text())
    data["settings"].update(
        expected={"10.0.0.1": "spark-01", "10.0.0.2": "spark-02"}, degraded_after=60.0, degraded_hosts=1
    )
    data["degraded"] = {"model": "small"}
    Path(config).write_text(json.dumps(data))
    systemd = Systemd()
    systemd.unit.update(ActiveState="activating", SubState="start-pre", MainPID="0")
    alive = {"10.0.0.1": "n1"}
    now = [1000.0]
    marker = tmp_path / "run/degraded.json"
    watchdog, said = make_service(
        tmp_path, config, systemd, ranks=lambda _config: dict(alive), clock=lambda: now[0], degraded_path=str(marker)
    )
    assert watchdog.round().line == "degraded: waiting for spark-02"
    assert watchdog.served_model == "tiny"
    now[0] += 61
    assert watchdog.round().restart == "degraded"
    assert json.loads(marker.read_text()) == {"without": {"10.0.0.2": "spark-02"}}
    assert watchdog.served_model == "small"
    assert said[-1] == "restarting: spark-02 stayed away for 60 s: serving without (restart, cause: degraded)"
    # another life of the watchdog goes on with it
    two, _said = make_service(
        tmp_path, config, systemd, ranks=lambda _config: dict(alive), clock=lambda: now[0], degraded_path=str(marker)
    )
    two.take_up()
    assert two.machine.without == ("10.0.0.2",)
    alive["10.0.0.2"] = "n2"
    two.round()
    now[0] += 16
    assert two.round().restart == "restored"
    assert not marker.exists()
    assert [call for call in systemd.calls if "restart" in call] == [
        ["--no-block", "restart", "sparkthor-vllm.service"],
        ["--no-block", "restart", "sparkthor-vllm.service"],
    ]


@pytest.mark.parametrize(
    ("expected", "after"),
    [
        pytest.param({"10.0.0.1": "spark-01", "10.0.0.2": "spark-02"}, 60.0, id="taken out of the inventory"),
        pytest.param({"10.0.0.1": "spark-01", "10.0.0.3": "spark-04"}, 60.0, id="its address is another's"),
        pytest.param({"10.0.0.1": "spark-01", "10.0.0.3": "spark-03"}, 0.0, id="degraded mode was switched off"),
    ],
)
def test_nobody_is_left_out_of_another_cluster(
    engine: Engine, tmp_path: Path, config: str, expected: dict[str, str], after: float
) -> None:
    data = json.loads(Path(config).read_text())
    data["settings"].update(expected=expected, degraded_after=after, degraded_hosts=1)
    data["degraded"] = {"model": "small"}
    Path(config).write_text(json.dumps(data))
    marker = tmp_path / "degraded.json"
    marker.write_text(json.dumps({"without": {"10.0.0.3": "spark-03"}}))
    alive = {address: f"n{address}" for address in expected}
    now = [1000.0]
    systemd = Systemd()
    watchdog, _said = make_service(
        *(tmp_path, config, systemd),
        ranks=lambda _config: dict(alive),
        clock=lambda: now[0],
        degraded_path=str(marker),
    )
    watchdog.take_up()
    assert watchdog.machine.without == ()
    # the unit's preparation and its gate read the file
    assert not marker.exists()
    watchdog.round()
    settle(watchdog)
    now[0] += 2
    assert watchdog.round().state == "serving"
    assert watchdog.served_model == "tiny"
    lost = next(address for address in expected if address != "10.0.0.1")
    del alive[lost]
    for _round in range(2):
        now[0] += 2
        decision = watchdog.round()
    assert decision.restart == "lost_rank"


def test_of_two_that_were_left_out_one_may_stay_so(engine: Engine, tmp_path: Path, config: str) -> None:
    data = json.loads(Path(config).read_text())
    data["settings"].update(expected={"10.0.0.1": "a", "10.0.0.2": "b"}, degraded_after=60.0, degraded_hosts=1)
    Path(config).write_text(json.dumps(data))
    marker = tmp_path / "degraded.json"
    marker.write_text(json.dumps({"without": {"10.0.0.2": "b", "10.0.0.3": "c"}}))
    one, _said = make_service(tmp_path, config, Systemd(), ranks=lambda _config: {}, degraded_path=str(marker))
    assert one.machine.without == ("10.0.0.2",)
    assert json.loads(marker.read_text()) == {"without": {"10.0.0.2": "b"}}


def test_service_of_a_former_head_keeps_still(engine: Engine, tmp_path: Path, config: str) -> None:
    data = json.loads(Path(config).read_text())
    data["settings"]["expected"] = {"10.0.0.1": "spark-01", "10.0.0.2": "spark-02"}
    Path(config).write_text(json.dumps(data))
    systemd = Systemd()
    systemd.unit.update(ActiveState="activating", SubState="start-pre", MainPID="0")
    asked: list[bool] = []

    def successor(ask: bool) -> str:
        asked.append(ask)
        return "spark-02 was declared head" if sum(asked) == 2 else ""

    now = [1000.0]
    # its Ray stays down, so there is nobody to ask for the ranks
    watchdog, said = make_service(
        tmp_path, config, systemd, ranks=lambda _config: None, successor=successor, clock=lambda: now[0]
    )
    assert watchdog.round().line == "starting: preparing the nodes"
    assert watchdog.round().line == "starting: preparing the nodes"
    assert asked == [True, False], "not in every round"
    now[0] += 31
    assert watchdog.round().line == "stopped: spark-02 was declared head"
    assert said[-1] == "stopped: spark-02 was declared head"
    assert systemd.calls == []


def test_ray_that_throws_does_not_end_the_supervision(engine: Engine, tmp_path: Path, config: str) -> None:
    data = json.loads(Path(config).read_text())
    data["settings"]["expected"] = {"10.0.0.1": "spark-01"}
    Path(config).write_text(json.dumps(data))

    def ranks(_config: Any) -> dict[str, str]:
        raise RuntimeError("odd answer")

    one, said = make_service(tmp_path, config, Systemd(), ranks=ranks)
    assert one.round().state == "loading"
    assert "Ray cannot be asked: odd answer" in said


def stalled(tmp_path: Path, config: str, signs: Any) -> tuple[service.Service, list[str], list[float]]:
    """A service that served, with a client whose request hangs: rounds 2 s apart on a clock of its own."""
    data = json.loads(Path(config).read_text())
    data["settings"]["expected"] = {"10.0.0.1": "spark-01", "10.0.0.2": "spark-02"}
    Path(config).write_text(json.dumps(data))
    now = [1000.0]
    ranks = {"10.0.0.1": "n1", "10.0.0.2": "n2"}
    watchdog, said = make_service(
        tmp_path, config, Systemd(), ranks=lambda _config: ranks, signs=signs, clock=lambda: now[0]
    )
    watchdog.round()
    settle(watchdog)
    now[0] += 2
    assert watchdog.round().line == "serving"
    return watchdog, said, now


@contextlib.contextmanager
def hanging(engine: Engine, watchdog: service.Service) -> Iterator[None]:
    """A client that waits for its answer."""
    engine.delay = 30
    with contextlib.closing(peer.opened(peer.unix(engine.path), 120)) as client:
        client.request("POST", "/v1/completions", "{}")
        try:
            yield
        finally:
            engine.released.set()
            settle(watchdog)
            client.getresponse().read()


def test_hosts_are_asked_for_signs_of_life_only_while_a_token_is_overdue(
    engine: Engine, tmp_path: Path, config: str
) -> None:
    asked = []

    def signs(_config: Any, ranks: Any) -> dict[str, patience.Signs]:
        asked.append(dict(ranks))
        return {"spark-01": patience.Signs(cores=1.0)}

    watchdog, _said, now = stalled(tmp_path, config, signs)
    with hanging(engine, watchdog):
        for _unused in range(3):
            now[0] += 2
            watchdog.round()
        assert asked == []
        for _unused in range(7):
            now[0] += 2
            decision = watchdog.round()
        assert asked == [{"10.0.0.1": "n1", "10.0.0.2": "n2"}] * 2  # every 6 s
        assert (decision.state, decision.healthy) == ("serving", True)
        assert "slow: no token for" in decision.detail
        assert "spark-01 is busy" in decision.detail
        state = json.loads((tmp_path / "run/state.json").read_text())
        assert state["stall"]["overdue"] is True
        assert state["stall"]["evidence"] == patience.BUSY
        assert "sparkthor_serving_stall_seconds 1" in (tmp_path / "run/metrics.prom").read_text()
    engine.metrics = engine.metrics.replace("1.0", "2.0")
    now[0] += 2
    watchdog.round()
    assert json.loads((tmp_path / "run/state.json").read_text())["stall"]["overdue"] is False


def test_hanging_processes_are_looked_for_only_while_a_token_is_overdue(
    engine: Engine, tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def in_the_kernel(units: Any) -> dict[int, str]:
        asked.append(tuple(units))
        return {812: "VLLM::EngineCore"}

    watchdog, _said, now = stalled(tmp_path, config, None)
    monkeypatch.setattr(service.life, "in_the_kernel", in_the_kernel)
    with hanging(engine, watchdog):
        for _unused in range(3):
            now[0] += 2
            watchdog.round()
        assert asked == []
        for _unused in range(12):
            now[0] += 2
            decision = watchdog.round()
    assert set(asked) == {("sparkthor-vllm.service", "sparkthor-ray.service")}
    assert decision.healthy
    assert "VLLM::EngineCore (process 812) hangs in the kernel" in decision.detail


def test_signs_that_cannot_be_read_are_unknown_and_said_once(engine: Engine, tmp_path: Path, config: str) -> None:
    def signs(_config: Any, _ranks: Any) -> dict[str, patience.Signs]:
        raise RuntimeError("odd answer")

    watchdog, said, now = stalled(tmp_path, config, signs)
    with hanging(engine, watchdog):
        for _unused in range(12):
            now[0] += 2
            watchdog.round()
    assert said.count("the ranks' signs of life cannot be read: odd answer") == 1
    assert watchdog.machine.verdict.kind == patience.UNKNOWN


@pytest.mark.parametrize(("answers", "restarts"), [([True, False], {}), ([True, True], {"lost_rank": 1})])
def test_a_rank_that_ended_is_asked_for_again_before_anything_is_done(
    engine: Engine, tmp_path: Path, config: str, answers: list[bool], restarts: dict[str, int]
) -> None:
    left = list(answers)

    def signs(_config: Any, _ranks: Any) -> dict[str, patience.Signs]:
        return {"spark-01": patience.Signs(cores=1.0, ended=left.pop(0) if left else False)}

    one, _said, now = stalled(tmp_path, config, signs)
    with hanging(engine, one):
        for _unused in range(7):
            now[0] += 2
            one.round()
    assert one.machine.restarts == restarts
    assert not left


def test_health_socket(engine: Engine, tmp_path: Path, config: str) -> None:
    walls = [1_000_000.0]
    identity = former_head.Identity("spark-01", "one", 3, "a-token")
    watchdog, _said = make_service(tmp_path, config, Systemd(), wall=lambda: walls[0], identity=lambda: identity)
    path = str(tmp_path / "health.sock")
    server = service.HealthServer(path)
    server.service = watchdog
    with servers.serving(server):
        assert serving.request(path, "GET", "/health", 5)[0] == 503
        watchdog.round()
        settle(watchdog)
        watchdog.round()
        status, text = serving.request(path, "GET", "/health?x=1", 5)
        assert (status, json.loads(text)["status"]) == (200, "serving")
        assert (json.loads(text)["generation"], "proof" in json.loads(text)) == (3, False)
        # who asks with a nonce gets a proof of it, and the token stays here
        for nonce in ("0" * 32, "1" * 32):
            _status, text = serving.request(path, "GET", f"/health?nonce={nonce}", 5)
            assert json.loads(text)["proof"] == identity.proof(nonce)
        assert "a-token" not in text + (tmp_path / "run/state.json").read_text()
        # a clock that is set, by an hour and in whichever direction, is no watchdog that hangs
        for wall in (walls[0] + 3600, walls[0] - 3600):
            walls[0] = wall
            assert serving.request(path, "GET", "/health", 5)[0] == 200
        status, text = serving.request(path, "GET", "/metrics", 5)
        assert status == 200
        assert "sparkthor_serving_healthy 1" in text
        assert os.stat(path).st_mode & 0o777 == 0o660
        with contextlib.closing(peer.opened(peer.unix(path), 5)) as asker:
            asker.request("HEAD", "/health")
            answer = asker.getresponse()
            assert (answer.status, answer.getheader("Content-Type"), answer.read()) == (200, "application/json", b"")
            assert int(answer.getheader("Content-Length") or 0) > 0


def test_the_watchdog_of_a_group_beside_another_writes_its_own_files_alone() -> None:
    of_host, beside = (set(service.written(config)) for config in ({}, {"beside": "embed"}))
    assert of_host == {
        *(serving.STATE, serving.STARTS, serving.DEGRADED, "/run/sparkthor/watchdog/metrics.prom"),
        *(hang.WANTED, former_head.MARKER, places.OWN.loads),
    }
    run = "/run/sparkthor/beside/embed"
    own = ("state.json", "vllm-starts.json", "degraded.json", "watchdog/metrics.prom")
    loads = "/var/lib/sparkthor/beside/embed/loads.json"
    assert beside == {hang.WANTED, loads, *(f"{run}/{name}" for name in own)}


def test_only_the_watchdog_of_the_hosts_own_group_asks_for_another_head(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    class Once:
        def __init__(self, config: Mapping[str, Any], *_ranks: Any, **given: Any) -> None:
            made.append(given)
            raise InterruptedError

    monkeypatch.setattr(service, "Service", Once)
    for config in ({}, {"beside": "embed", "group_state": "/g"}):
        with pytest.raises(InterruptedError):
            service.supervise(config, object(), watchdog_hands.Hands())
    of_host, beside = made
    assert {"successor", "identity"} <= set(of_host)
    assert not {"successor", "identity"} & set(beside)
    assert (of_host["draining_path"], of_host["maintenance_paths"]) == (serving.DRAINING, serving.MAINTENANCE)
    assert beside["draining_path"] == "/run/sparkthor/beside/embed/draining"
    assert beside["maintenance_paths"][0] == "/var/lib/sparkthor/beside/embed/maintenance"
    # its rank's signs of life come from its own program
    assert beside["signs"] is service.group_signs
