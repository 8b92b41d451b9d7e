# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import contextlib
import http.server
import json
import os
import socket
import socketserver
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import serving
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import watchdog_service as service
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import (
    control as _serving_control,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import (
    ready,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import waiting as _waiting

from tests.unit import servers


class Engine:
    """A vLLM on a UNIX socket that answers as told."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.status = 200
        self.body: Any = {"choices": [{"text": "x"}]}
        self.delay = 0.0
        self.metrics = 'vllm:prompt_tokens_total{engine="0"} 1.0\nvllm:num_requests_running{engine="0"} 0.0\n'
        self.asked: list[dict[str, Any]] = []
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply(200, engine.metrics)

            def do_POST(self) -> None:
                engine.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                time.sleep(engine.delay)
                self.reply(engine.status, json.dumps(engine.body))

            def reply(self, status: int, text: str) -> None:
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text.encode())

            def address_string(self) -> str:
                return "unix"

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.server = Server(path, Handler)


class Systemd:
    """systemctl and journalctl as far as they are asked."""

    def __init__(self) -> None:
        self.unit = {
            "LoadState": "loaded",
            "ActiveState": "active",
            "SubState": "running",
            "InvocationID": "aaa",
            "MainPID": "7",
            "Result": "success",
            "NRestarts": "0",
        }
        self.log = ["INFO Starting to load model tiny"]
        self.enabled = True
        self.calls: list[list[str]] = []

    def __call__(self, argv: list[str], seconds: float) -> tuple[int, str, str]:
        if argv[:2] == ["systemctl", "show"]:
            return 0, "".join(f"{key}={value}\n" for key, value in self.unit.items()), ""
        if argv[:2] == ["systemctl", "is-enabled"]:
            return (0, "enabled\n", "") if self.enabled else (1, "disabled\n", "")
        if argv[0] == "journalctl":
            return 0, "\n".join(json.dumps({"MESSAGE": line}) for line in self.log), ""
        self.calls.append(argv[1:])
        if "enable" in argv:
            self.enabled = True
        if "disable" in argv:
            self.enabled = False
        if "stop" in argv:
            self.unit.update(ActiveState="inactive", SubState="dead", MainPID="0")
        if "start" in argv or "restart" in argv:
            self.unit.update(ActiveState="activating", SubState="start-pre", InvocationID="bbb", MainPID="0")
        return 0, "", ""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    one = Engine(str(tmp_path / "vllm.sock"))
    with servers.serving(one.server):
        yield one
    os.unlink(one.path)


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "vllm.yaml").write_text("model: x\n")
    path = tmp_path / "serving.json"
    path.write_text(
        json.dumps(
            {
                "unit": "sparkthor-vllm.service",
                "socket": str(tmp_path / "vllm.sock"),
                "model": "tiny",
                "inputs": [str(tmp_path / "vllm.yaml")],
                "settings": {"deadline": 20.0, "interval": 10.0},
            }
        )
    )
    return str(path)


def make_service(tmp_path: Path, config: str, systemd: Systemd, **more: Any) -> tuple[service.Service, list[str]]:
    said: list[str] = []
    one = service.Service(
        json.loads(Path(config).read_text()),
        runner=systemd,
        say=said.append,
        state_path=str(tmp_path / "run/state.json"),
        metrics_path=str(tmp_path / "run/metrics.prom"),
        draining_path=str(tmp_path / "draining"),
        maintenance_paths=(str(tmp_path / "maintenance"),),
        starts_path=str(tmp_path / "starts.json"),
        **more,
    )
    return one, said


def settle(one: service.Service) -> None:
    assert one._probe_thread is not None
    one._probe_thread.join(10)


def test_complete_kinds(engine: Engine, tmp_path: Path) -> None:
    assert serving.complete(engine.path, "tiny", 5).ok
    assert engine.asked == [{"model": "tiny", "prompt": "1", "max_tokens": 1, "temperature": 0}]
    engine.status, engine.body = 404, {"error": {"message": "no such model"}}
    probe = serving.complete(engine.path, "tiny", 5)
    assert (probe.kind, probe.text) == ("rejected", "completion answered 404: no such model")
    engine.status, engine.body = 500, {}
    assert serving.complete(engine.path, "tiny", 5).kind == "http"
    engine.status, engine.body = 200, {"choices": []}
    assert serving.complete(engine.path, "tiny", 5).kind == "http"
    engine.delay = 1.0
    slow = serving.complete(engine.path, "tiny", 0.1)
    assert (slow.kind, slow.text) == ("timeout", "completion timed out after 0 s")
    assert serving.complete(str(tmp_path / "none.sock"), "tiny", 5).kind == "refused"


def test_service_serves_then_restarts_a_broken_engine(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    one, said = make_service(tmp_path, config, systemd)
    (tmp_path / "starts.json").write_text('{"starts": 4}')
    assert one.round().state == "loading"
    settle(one)
    assert one.round().line == "serving"
    assert not (tmp_path / "starts.json").exists()
    state = json.loads((tmp_path / "run/state.json").read_text())
    assert state["healthy"] is True
    assert state["completion"]["latency"] is not None
    assert 'state="serving"} 1' in (tmp_path / "run/metrics.prom").read_text()
    engine.status = 500
    one.machine.probe_ended_at = float("-inf")
    one.round()
    settle(one)
    assert one.round().state == "degraded"
    settle(one)
    assert one.round().restart == "completion"
    assert [call for call in systemd.calls if "kill" in call or "restart" in call] == [
        ["kill", "--signal=SIGKILL", "sparkthor-vllm.service"],
        ["--no-block", "restart", "sparkthor-vllm.service"],
    ]
    assert said[-1].startswith("restarting: completion answered 500")
    assert said[-1].endswith("(restart, cause: completion)")


def test_what_served_is_kept_for_a_rollback(
    engine: Engine, tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "vllm.yaml"
    good = tmp_path / "good"
    monkeypatch.setattr(serving, "GOOD", (str(good),))
    monkeypatch.setattr(serving, "STARTED_WITH", str(tmp_path / "record.json"))
    Path(config).write_text(json.dumps({**json.loads(Path(config).read_text()), "kept": [str(kept)]}))
    record(tmp_path)
    one, _said = make_service(tmp_path, config, Systemd())
    one.round()
    assert not good.exists()  # nothing served yet
    settle(one)
    one.round()
    assert serving.kept_good(str(good)) == {str(kept): "model: x\n"}
    # declared anew while the start that served was on its way: nobody knows whether this would serve
    kept.write_text("model: y\n")
    two, _said = make_service(tmp_path, config, Systemd())
    two.round()
    settle(two)
    two.round()
    assert serving.kept_good(str(good)) == {str(kept): "model: x\n"}


def test_ranks_without_ray_are_what_the_heads_program_publishes(tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    config = {"group_state": str(path)}
    assert service.group_ranks(config) is None
    path.write_text(json.dumps({"updated": time.time(), "ranks": {"10.0.0.1": "a", "10.0.0.2": "b"}}))
    assert service.group_ranks(config) == {"10.0.0.1": "a", "10.0.0.2": "b"}


def test_service_goes_on_after_its_own_death(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    one, _said = make_service(tmp_path, config, systemd)
    one.round()
    settle(one)
    one.round()
    two, said = make_service(tmp_path, config, systemd)
    two.take_up()
    decision = two.round()
    assert (decision.state, decision.healthy) == ("serving", True)
    assert systemd.calls == []
    assert two.since == pytest.approx(one.since, abs=0.01)
    assert said == ["serving"]


def test_service_lives_with_a_full_disk_and_a_silent_systemd(
    engine: Engine, tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = Systemd()
    one, said = make_service(tmp_path, config, systemd)

    def full(path: str, content: str, mode: int = 0o644) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(service.serving, "write_file", full)
    assert one.round() is not None
    assert any("No space left" in line for line in said)
    one.runner = lambda argv, seconds: (124, "", "timeout")
    assert one.round() is None
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
    one, said = make_service(
        tmp_path, config, systemd, ranks=lambda _config: dict(alive), clock=lambda: now[0], degraded_path=str(marker)
    )
    assert one.round().line == "degraded: waiting for spark-02"
    assert one.served_model == "tiny"
    now[0] += 61
    assert one.round().restart == "degraded"
    assert json.loads(marker.read_text()) == {"without": {"10.0.0.2": "spark-02"}}
    assert one.served_model == "small"
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
    one, _said = make_service(
        *(tmp_path, config, systemd),
        ranks=lambda _config: dict(alive),
        clock=lambda: now[0],
        degraded_path=str(marker),
    )
    one.take_up()
    assert one.machine.without == ()
    # the unit's preparation and its gate read the file
    assert not marker.exists()
    one.round()
    settle(one)
    now[0] += 2
    assert one.round().state == "serving"
    assert one.served_model == "tiny"
    lost = next(address for address in expected if address != "10.0.0.1")
    del alive[lost]
    for _look in range(2):
        now[0] += 2
        decision = one.round()
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
    one, said = make_service(
        tmp_path, config, systemd, ranks=lambda _config: None, successor=successor, clock=lambda: now[0]
    )
    assert one.round().line == "starting: preparing the nodes"
    assert one.round().line == "starting: preparing the nodes"
    assert asked == [True, False], "not at every look"
    now[0] += 31
    assert one.round().line == "stopped: spark-02 was declared head"
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


def test_ray_ranks_reads_the_living_newest_last(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        types.SimpleNamespace(address="10.0.0.1", node_id="new", alive=True, started_ms=2),
        types.SimpleNamespace(address="10.0.0.1", node_id="old", alive=True, started_ms=1),
        types.SimpleNamespace(address="10.0.0.2", node_id="dead", alive=False, started_ms=1),
    ]
    answer = types.SimpleNamespace(ok=True, data="text")
    asked = []

    def probe_http(name: str, url: str, timeout: float, token: str) -> Any:
        asked.append((url, token))
        return answer

    monkeypatch.setattr(service.ray_config, "load_config", lambda path: types.SimpleNamespace(dashboard_port=8265))
    monkeypatch.setattr(service.ray_config, "read_token", lambda config: "token")
    monkeypatch.setattr(service.ray_probe, "probe_http", probe_http)
    monkeypatch.setattr(service.ray_members, "read_dashboard_nodes", lambda text: rows)
    assert service.ray_ranks()({}) == {"10.0.0.1": "new"}
    assert asked == [("http://127.0.0.1:8265/api/v0/nodes?detail=true&limit=10000", "token")]
    answer.ok = False
    assert service.ray_ranks()({}) is None


def test_health_socket(engine: Engine, tmp_path: Path, config: str) -> None:
    one, _said = make_service(tmp_path, config, Systemd())
    path = str(tmp_path / "health.sock")
    server = service.HealthServer(path, one)
    with servers.serving(server):
        assert serving.request(path, "GET", "/health", 5)[0] == 503
        one.round()
        settle(one)
        one.round()
        status, text = serving.request(path, "GET", "/health?x=1", 5)
        assert (status, json.loads(text)["status"]) == (200, "serving")
        status, text = serving.request(path, "GET", "/metrics", 5)
        assert status == 200
        assert "sparkthor_serving_healthy 1" in text
        assert os.stat(path).st_mode & 0o777 == 0o660
        with contextlib.closing(serving._UnixConnection(path, 5)) as asker:
            asker.request("HEAD", "/health")
            answer = asker.getresponse()
            assert (answer.status, answer.getheader("Content-Type"), answer.read()) == (200, "application/json", b"")
            assert int(answer.getheader("Content-Length") or 0) > 0


def test_starts_that_never_serve_slow_down(tmp_path: Path) -> None:
    path = str(tmp_path / "starts.json")
    assert [serving.note_start(path) for _unused in range(9)] == [0, 0, 0, 10, 20, 40, 80, 160, 300]
    (tmp_path / "starts.json").write_text("rubbish")
    assert serving.note_start(path) == 0


# -- readiness ------------------------------------------------------------------------------------------------------


def look(tmp_path: Path, config: str, systemd: Systemd, **more: Any) -> ready.Look:
    return ready.look(
        config_path=config,
        runner=systemd,
        state_path=str(tmp_path / "run/state.json"),
        record_path=str(tmp_path / "record.json"),
        maintenance_paths=(str(tmp_path / "maintenance"),),
        **more,
    )


def record(tmp_path: Path, invocation: str = "aaa") -> None:
    files = serving.fingerprint([str(tmp_path / "vllm.yaml")])
    (tmp_path / "record.json").write_text(json.dumps({"invocation": invocation, "files": files}))


def test_serving_group_without_a_change_is_ready_at_once(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    record(tmp_path)
    one, _said = make_service(tmp_path, config, systemd)
    one.round()
    settle(one)
    one.round()
    found = look(tmp_path, config, systemd, start=True)
    assert (found.ready, found.changed, found.line) == (True, False, "serving")
    assert systemd.calls == []


def test_changed_file_restarts_once(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    record(tmp_path)
    (tmp_path / "vllm.yaml").write_text("model: y\n")
    predicted = look(tmp_path, config, systemd, start=True, check=True)
    assert (predicted.changed, systemd.calls) == (True, [])
    found = look(tmp_path, config, systemd, start=True)
    assert found.changed
    assert found.stale == [str(tmp_path / "vllm.yaml")]
    assert ["--no-block", "restart", "sparkthor-vllm.service"] in systemd.calls
    count = len(systemd.calls)
    # the new start has not noted its files yet: it will read the ones that lie there
    again = look(tmp_path, config, systemd, start=True)
    assert (again.changed, len(systemd.calls)) == (False, count)


def test_a_rank_elsewhere_with_other_files_restarts_the_group_too(engine: Engine, tmp_path: Path, config: str) -> None:
    group = tmp_path / "group.json"
    Path(config).write_text(json.dumps({**json.loads(Path(config).read_text()), "group_state": str(group)}))
    record(tmp_path)
    slept: list[float] = []

    def report(seconds: float) -> None:
        slept.append(seconds)
        group.write_text(json.dumps({"updated": time.time(), "stale": {"spark-02": ["/etc/sparkthor/vllm.yaml"]}}))

    assert not look(tmp_path, config, Systemd(), start=True).changed
    systemd = Systemd()
    found = look(tmp_path, config, systemd, start=True, settle=4.0, sleep=report)
    assert slept == [4.0]
    assert found.changed
    assert found.stale == ["/etc/sparkthor/vllm.yaml on spark-02"]
    assert [call for call in systemd.calls if "restart" in call] == [
        ["--no-block", "restart", "sparkthor-vllm.service"]
    ]


def test_stopped_group_is_started_only_when_asked(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    systemd.unit.update(ActiveState="inactive", SubState="dead", MainPID="0")
    assert look(tmp_path, config, systemd).changed is False
    assert systemd.calls == []
    assert look(tmp_path, config, systemd, start=True).changed is True


def test_loading_group_is_not_asked(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    record(tmp_path)
    one, _said = make_service(tmp_path, config, systemd)
    engine.delay = 0.5
    one.round()
    found = look(tmp_path, config, systemd, start=True)
    assert (found.ready, found.state) == (False, "loading")
    settle(one)


def test_readiness_is_proved_even_without_a_watchdog(engine: Engine, tmp_path: Path, config: str) -> None:
    record(tmp_path)
    assert look(tmp_path, config, Systemd(), start=True).ready
    engine.status = 500
    found = look(tmp_path, config, Systemd(), start=True)
    assert not found.ready
    assert "answered 500" in found.line


def test_failed_start_is_explained(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    systemd.log = ["vllm: error: unrecognized arguments: --swap-space"]
    systemd.unit.update(ActiveState="activating", SubState="auto-restart", MainPID="0", Result="exit-code")
    record(tmp_path)
    found = look(tmp_path, config, systemd)
    assert found.failure["final"] is True
    assert found.failure["invocation"] == "aaa"
    systemd.unit.update(ActiveState="active", SubState="running", InvocationID="bbb", MainPID="9", NRestarts="1")
    engine.status = 500
    seen = look(tmp_path, config, systemd, known_invocation="aaa")
    assert seen.failure["invocation"] == "aaa"
    systemd.unit["NRestarts"] = "0"
    assert look(tmp_path, config, systemd, known_invocation="aaa").failure is None


def test_virgin_host(tmp_path: Path) -> None:
    systemd = Systemd()
    missing = str(tmp_path / "none.json")
    assert look(tmp_path, missing, systemd, start=True, check=True).changed is True
    with pytest.raises(ready.ReadyError, match="vllm_serve role"):
        look(tmp_path, missing, systemd, start=True)


def test_deadline_shorter_than_a_completion_is_refused_with_the_latency() -> None:
    assert ready.deadline_problem({"latency": 0.1, "median_latency": 0.2, "deadline": 20.0}) == ""
    assert ready.deadline_problem({"latency": None, "deadline": 20.0}) == ""
    # one slow answer of a busy server is no reason
    assert ready.deadline_problem({"latency": 19.0, "median_latency": 0.2, "deadline": 20.0}) == ""
    problem = ready.deadline_problem({"latency": 2.5, "median_latency": 3.0, "deadline": 4.0})
    assert "vllm_serve_watchdog_deadline: 4 s" in problem
    assert "2.50 s" in problem
    problem = ready.deadline_problem({"latency": 2.5, "median_latency": 3.0, "deadline": 20.0, "interval": 2.0})
    assert "vllm_serve_watchdog_interval: 2 s is too short: a one-token completion takes 2.50 s" in problem
    assert problem.endswith("set at least 10")


def test_waiting_speaks_every_ten_seconds_at_most() -> None:
    waiting = _waiting.Waiting("spark-01", 100, 3, 0.0)
    assert waiting.say({"line": "loading: a"}, 0.0) == "[spark-01] 0 s: loading: a"
    assert waiting.say({"line": "loading: b"}, 4.0) == ""
    assert waiting.say({"line": "loading: b"}, 12.0) == "[spark-01] 12 s: loading: b"
    assert waiting.say({"line": "loading: b"}, 30.0) == ""
    assert waiting.say({"line": "loading: b"}, 75.0) == "[spark-01] 1 min 15 s: loading: b"


def test_waiting_gives_up_with_the_reason() -> None:
    waiting = _waiting.Waiting("spark-01", 100, 2, 0.0)
    failure = {"reason": "OSError: x", "fix": "", "final": False, "invocation": "a"}
    assert waiting.verdict({"failure": failure}, 1.0) == ""
    assert waiting.verdict({"failure": failure}, 5.0) == ""  # the same failed start, seen again
    verdict = waiting.verdict({"failure": {**failure, "invocation": "b"}}, 9.0)
    assert verdict.startswith("vLLM failed to start 2 times on spark-01: OSError: x.")
    final = _waiting.Waiting("spark-01", 100, 5, 0.0)
    assert "Fix: correct it." in final.verdict({"failure": {**failure, "final": True, "fix": "correct it"}}, 1.0)
    late = _waiting.Waiting("spark-01", 100, 5, 0.0)
    assert "within vllm_serve_ready_timeout (1 min 40 s)" in late.verdict({"line": "loading: 41 %"}, 100.0)
    assert "loading: 41 %" in late.verdict({"line": "loading: 41 %"}, 100.0)
    assert late.unanswered("ssh", 0.0) == ""
    assert "gave no answer" in late.unanswered("ssh", 121.0)


# -- stop, start, drain ---------------------------------------------------------------------------------------------


def control(tmp_path: Path, config: str, systemd: Systemd, check: bool = False) -> _serving_control.Control:
    return _serving_control.Control(
        check=check,
        config_path=config,
        draining=str(tmp_path / "draining"),
        marker=str(tmp_path / "maintenance"),
        markers=(str(tmp_path / "maintenance"), str(tmp_path / "maintenance2")),
        runner=systemd,
        connections=lambda path: 0,
        sleep=lambda seconds: None,
    )


def test_stop_and_start(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    predicted = control(tmp_path, config, systemd, check=True).apply("stopped", "cables", 0)
    assert predicted.changed
    assert not (tmp_path / "maintenance").exists()
    assert systemd.calls == []
    done = control(tmp_path, config, systemd).apply("stopped", "cables", 0)
    assert done.steps == predicted.steps
    assert serving.maintenance([str(tmp_path / "maintenance")]) == "cables"
    assert (systemd.enabled, systemd.unit["ActiveState"]) == (False, "inactive")
    assert control(tmp_path, config, systemd).apply("stopped", "cables", 0).changed is False
    (tmp_path / "draining").touch()
    started = control(tmp_path, config, systemd).apply("started", "", 0)
    assert started.changed
    assert (systemd.enabled, systemd.unit["ActiveState"]) == (True, "activating")
    assert not (tmp_path / "maintenance").exists()
    assert not (tmp_path / "draining").exists()
    assert control(tmp_path, config, systemd).apply("started", "", 0).changed is False


def test_restart_after_stop_serves_after_a_reboot_too(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    control(tmp_path, config, systemd).apply("stopped", "cables", 0)
    predicted = control(tmp_path, config, systemd, check=True).apply("restarted", "", 0)
    assert (systemd.enabled, systemd.unit["ActiveState"]) == (False, "inactive")
    done = control(tmp_path, config, systemd).apply("restarted", "", 0)
    assert done.steps == predicted.steps
    assert (systemd.enabled, systemd.unit["ActiveState"]) == (True, "activating")
    assert not (tmp_path / "maintenance").exists()
    again = control(tmp_path, config, systemd).apply("restarted", "", 0)
    assert [step for step in again.steps if step.startswith("enable")] == []


def test_a_restart_that_cannot_drain_leaves_what_was_said(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    systemd.enabled = False
    (tmp_path / "maintenance").write_text("cables\n")
    engine.metrics = 'vllm:num_requests_running{engine="0"} 2.0\n'
    one = control(tmp_path, config, systemd)
    clock = iter(range(0, 1000, 10))
    one.clock = lambda: float(next(clock))
    with pytest.raises(_serving_control.ControlError, match="still running"):
        one.apply("restarted", "", 30)
    assert not systemd.enabled
    assert (tmp_path / "maintenance").exists()


def test_drain_waits_for_running_requests(engine: Engine, tmp_path: Path, config: str) -> None:
    engine.metrics = 'vllm:num_requests_running{engine="0"} 2.0\nvllm:num_requests_waiting{engine="0"} 1.0\n'
    one = control(tmp_path, config, Systemd())
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == 3:
            engine.metrics = 'vllm:num_requests_running{engine="0"} 0.0\n'

    one.sleep = sleep
    outcome = one.apply("drained", "", 60)
    # once more after the first look without requests
    assert (outcome.changed, outcome.in_flight, len(sleeps)) == (True, 0, 4)
    assert (tmp_path / "draining").exists()
    assert control(tmp_path, config, Systemd()).apply("drained", "", 60).changed is False


def test_drain_sees_a_request_that_the_gauges_do_not_show(engine: Engine, tmp_path: Path, config: str) -> None:
    """A lone request in its first step: vLLM's gauges say 0, its connection is open."""
    one = control(tmp_path, config, Systemd())
    # the request, the front that hands on one more, and the watchdog's own probe
    seen = iter([1, 1, 0, 1, 0, 1, 0, 0])
    looks: list[str] = []

    def connections(path: str) -> int:
        looks.append(path)
        return next(seen)

    one.connections = connections
    outcome = one.apply("drained", "", 60)
    assert (outcome.in_flight, len(looks)) == (0, 8)
    assert set(looks) == {engine.path}
    late = control(tmp_path, config, Systemd())
    late.connections = lambda path: 1
    clock = iter(range(0, 1000, 10))
    late.clock = lambda: float(next(clock))
    with pytest.raises(_serving_control.ControlError, match="1 requests are still running after 30 s"):
        late.apply("drained", "", 30)


def test_drain_of_an_engine_without_gauges(engine: Engine, tmp_path: Path, config: str) -> None:
    engine.metrics = "python_info 1.0\n"
    assert control(tmp_path, config, Systemd()).apply("drained", "", 60).in_flight == 0
    blind = control(tmp_path, config, Systemd())
    blind.connections = lambda path: None
    clock = iter(range(0, 1000, 10))
    blind.clock = lambda: float(next(clock))
    with pytest.raises(_serving_control.ControlError, match="an unknown number of requests"):
        blind.apply("drained", "", 30)


def test_open_connections_are_counted_from_their_first_moment(tmp_path: Path) -> None:
    path = str(tmp_path / "a socket")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(path)
        server.listen()
        assert serving.connections(path) == 0
        client.connect(path)
        assert serving.connections(path) == 1, "not accepted yet"
        door, _address = server.accept()
        assert serving.connections(path) == 1
        door.close()
        assert serving.connections(path) == 0
    assert serving.connections(path, str(tmp_path / "absent")) is None


def test_drain_that_does_not_end_says_what_is_left(engine: Engine, tmp_path: Path, config: str) -> None:
    engine.metrics = 'vllm:num_requests_running{engine="0"} 2.0\n'
    one = control(tmp_path, config, Systemd())
    clock = iter(range(0, 1000, 10))
    one.clock = lambda: float(next(clock))
    with pytest.raises(_serving_control.ControlError, match="2 requests are still running after 30 s"):
        one.apply("drained", "", 30)


def test_unit_that_is_not_there(tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    systemd.unit["LoadState"] = "not-found"
    with pytest.raises(_serving_control.ControlError, match="vllm_serve role"):
        control(tmp_path, config, systemd).apply("started", "", 0)
