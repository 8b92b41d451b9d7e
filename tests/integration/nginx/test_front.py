# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a real nginx with the planned configuration tells the exporter: who asked for what, and how many tokens it took.

It needs no lab, but nginx with its JavaScript module (``nginx-light`` and ``libnginx-mod-http-js``), installed or
unpacked below ``NGINX_ROOT``: make nginx
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import http.server
import json
import os
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import front_counts, on_demand
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import on_demand_service as service
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import front

from tests.unit.plugins.plugin_utils._plan.test_door import CONF, of_group, with_beside
from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan
from tests.unit.ports import free_port
from tests.unit.servers import serving

ROOT = os.environ.get("NGINX_ROOT", "")
JS_MODULE = "/usr/lib/nginx/modules/ngx_http_js_module.so"
MODULE = Path(f"{ROOT}{JS_MODULE}")
NGINX = f"{ROOT}/usr/sbin/nginx" if ROOT else shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or ""
#: the front proxy's port and the door's in the plan; each test has others in their place
PORT, DOOR = 23456, 23457
KEY, NARROW, LIMITED = "k" * 20, "n" * 20, "l" * 20
ACCOUNT = b'{"id":"x","choices":[{"text":"said \\"usage\\":{\\"prompt_tokens\\":99"}],"usage":{"prompt_tokens":12,'
ACCOUNT_END = b'"total_tokens":46,"completion_tokens":34,"prompt_tokens_details":null}}'
EVENT = b'data: {"id":"x","choices":[{"delta":{"content":"a"}}],"usage":null}\n\n'
#: path -> what the engine sends, with a pause after each part
ANSWERS: dict[str, list[bytes]] = {
    "/v1/whole": [ACCOUNT + ACCOUNT_END],
    "/v1/torn": [b"0" * 5000, ACCOUNT[:-3], ACCOUNT[-3:], ACCOUNT_END[:40], ACCOUNT_END[40:]],
    "/v1/stream": [EVENT] * 5 + [b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6}}\n\n'],
    "/v1/long": [EVENT] * 200,
    "/v1/late": [b"{}"],
    "/v1/silent": [EVENT] * 5 + [b"data: [DONE]\n\n"],
    "/v1/messages": [
        b'data: {"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":0}}}\n\n',
        b'data: {"type":"message_delta","usage":{"input_tokens":7,"output_tokens":8}}\n\n',
    ],
}


class Engine(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/late":
            time.sleep(1)
        if self.path not in ANSWERS:
            return self.send_error(404)
        parts = ANSWERS[self.path]
        self.send_response(200)
        # as vLLM says it
        stream = b"".join(parts).startswith((b"data: ", b"event: "))
        kind = "text/event-stream; charset=utf-8" if stream else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(sum(map(len, parts))))
        self.end_headers()
        # a client may be gone
        with contextlib.suppress(OSError):
            for part in parts:
                self.wfile.write(part)
                time.sleep(0.02)

    def address_string(self) -> str:
        return ""

    def log_message(self, *_arguments: Any) -> None:
        pass


class Front:
    def __init__(self, port: int, counter: Path) -> None:
        self.port = port
        self.counts = front_counts.FrontCounts()
        self._path = str(counter)
        self.begin()

    def begin(self) -> None:
        lines = front_counts.listen(self._path)
        self._thread = threading.Thread(target=front_counts.follow, args=(self.counts, lines))
        self._thread.start()

    def end(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"", self._path)
        self._thread.join(60)

    def ask(self, path: str, key: str = KEY, model: str = "mini", method: str = "POST") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = json.dumps({"model": model, "prompt": "x"})
        connection.request(method, path, body, {"Authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    def answer(self, method: str, path: str, model: str) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = json.dumps({"model": model, "prompt": "x"}) if model else None
        connection.request(method, path, body, {"Authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read().decode()
        connection.close()
        return found

    def says(self, *values: str) -> None:
        """Wait for these values of metrics: nginx tells of a request after its answer."""
        until = time.monotonic() + 60
        while not set(values) <= set(self.counts.lines()):
            assert time.monotonic() < until, f"{values} are not in {self.counts.lines()}"
            time.sleep(0.02)


@functools.cache
def planned(given: str) -> dict[str, str]:
    """The texts of all files by path; tests with the same plan but for the ports share it."""
    return files(plan(json.loads(given)))


@contextlib.contextmanager
def running(
    tmp_path: Path, variables: dict[str, Any], gone_back: dict[str, str] | None = None, **limits: int
) -> Iterator[Front]:
    """nginx with this plan, its paths below a folder, before an engine that answers as above.

    Files by their path are as they were ``gone_back`` to.
    """
    own = {"vllm_serve_api_port": PORT, "vllm_serve_listen": ["127.0.0.1"], "vllm_serve_front_access_log": False}
    keys: list[dict[str, Any]] = [{"name": "narrow", "key": NARROW, "models": ["chat"], "requests_per_minute": 1}]
    if limits:
        keys.append({"name": "limited", "key": LIMITED, **limits})
    given = {**variables, **own, "vllm_serve_api_keys": keys, "vllm_serve_door_port": DOOR}
    port, door = free_port(), free_port()
    folder = tmp_path / "front"
    for name in ("front", "cache", "run/vllm", "run-exporter", "run-tokens", "lasting", "run/front"):
        (tmp_path / name).mkdir(parents=True)
    for path, text in (planned(json.dumps(given)) | (gone_back or {})).items():
        if path.startswith(str(Path(CONF).parent)):
            for place, here in (
                (str(PORT), str(port)),
                (str(DOOR), str(door)),
                (JS_MODULE, str(MODULE)),
                ("/run/sparkthor", f"{tmp_path}/run"),
                ("/var/cache/sparkthor-front", f"{tmp_path}/cache"),
                ("listen 8002 ", f"listen 127.0.0.1:{free_port()} "),
                (f"10.100.0.1:{door}", f"unix:{tmp_path}/run/vllm/vllm.sock"),
                # a replica that is away, and no host of a network that happens to be there
                (f"10.100.0.4:{door}", f"unix:{tmp_path}/run/nobody.sock"),
            ):
                text = text.replace(place, here)
            (folder / Path(path).name).write_text(text)
    named = [front.NamedKey(front.MAIN, KEY), *front.named_keys(keys)]
    (folder / "keys.conf").write_text(front.key_map(named))
    tmp_path.chmod(0o755)
    engine = socketserver.ThreadingUnixStreamServer(str(tmp_path / "run/vllm/vllm.sock"), Engine)
    found = Front(port, tmp_path / "run-exporter/front.sock")
    # as its unit has it, but for the user where that is root
    command = f"daemon off; master_process off; {'user root;' if os.geteuid() == 0 else ''}"
    nginx = subprocess.Popen([NGINX, "-c", str(folder / "nginx.conf"), "-p", str(folder), "-g", command])
    try:
        with serving(engine):
            while True:
                assert nginx.poll() is None
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 60):
                    break
                time.sleep(0.02)
            yield found
    finally:
        nginx.terminate()
        nginx.wait(60)
        found.end()


def test_requests_and_tokens_are_counted_by_key_and_model(tmp_path: Path, variables: dict[str, Any]) -> None:
    with running(tmp_path, {**variables, "vllm_serve_front_tokens": True}) as found:
        labels = 'key="default",model="mine"'
        made = [0, 0]
        expected = {
            **{"/v1/whole": (12, 34), "/v1/torn": (12, 34), "/v1/stream": (5, 6), "/v1/messages": (7, 8)},
            "/v1/silent": (0, 0),
        }
        for answers, (path, (prompt, completion)) in enumerate(expected.items(), 1):
            assert found.ask(path) == (200, b"".join(ANSWERS[path]))
            made = [made[0] + prompt, made[1] + completion]
            found.says(
                f'sparkthor_front_requests_total{{{labels},status="200"}} {answers}',
                f"sparkthor_front_prompt_tokens_total{{{labels}}} {made[0]}",
                f"sparkthor_front_completion_tokens_total{{{labels}}} {made[1]}",
                # the silent one said nothing
                f"sparkthor_front_counted_answers_total{{{labels}}} {answers - (path == '/v1/silent')}",
                f"sparkthor_front_request_seconds_count{{{labels}}} {answers}",
            )


def test_who_is_refused_is_counted_as_well(tmp_path: Path, variables: dict[str, Any]) -> None:
    with running(tmp_path, variables) as found:
        assert found.ask("/v1/whole", "no-key-of-this-cluster")[0] == 401
        assert found.ask("/v1/whole", NARROW)[0] == 403
        found.says('sparkthor_front_requests_total{key="-",model="mine",status="401"} 1')
        found.says('sparkthor_front_requests_total{key="narrow",model="mine",status="403"} 1')
        # neither keys nor what clients make up is anywhere
        assert not [line for line in found.counts.lines() if NARROW in line or "no-key" in line]


def test_a_door_counts_by_the_model_that_is_asked_for(tmp_path: Path, variables: dict[str, Any]) -> None:
    with running(tmp_path, of_group(variables, "c", vllm_serve_front_tokens=True)) as found:
        assert found.ask("/v1/stream", NARROW, "chat") == (200, b"".join(ANSWERS["/v1/stream"]))
        found.says('sparkthor_front_requests_total{key="narrow",model="chat",status="200"} 1')
        found.says('sparkthor_front_completion_tokens_total{key="narrow",model="chat"} 6')
        assert found.ask("/v1/stream", NARROW, "chat")[0] == 429
        found.says('sparkthor_front_requests_total{key="narrow",model="-",status="429"} 1')
        assert found.ask("/v1/stream", KEY, "made-up")[0] == 404
        found.says('sparkthor_front_requests_total{key="default",model="-",status="404"} 1')


def test_nothing_is_sent_where_nobody_counts(
    tmp_path: Path, variables: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path, variables) as found:
        # as systemd removes it with the exporter
        (tmp_path / "run-exporter").rename(tmp_path / "gone")
        assert found.ask("/v1/whole")[0] == 200
        (tmp_path / "gone").rename(tmp_path / "run-exporter")
        assert found.ask("/v1/stream")[0] == 200
        answers = 'sparkthor_front_requests_total{key="default",model="mine",status="200"}'
        found.says(f"{answers} 1")
        # nginx complained of nothing
        assert "syslog" not in capfd.readouterr().err
        # an exporter that starts anew has another socket, which nginx looks for when a line is lost
        found.end()
        found.begin()
        for _number in range(3):
            assert found.ask("/v1/whole")[0] == 200
        found.says(f"{answers} 3")


# the longest name that a group may have is the longest key of nginx's maps
@pytest.mark.parametrize("name", ["embed", "e" * 32])
def test_a_group_beside_another_is_reached_by_its_model(tmp_path: Path, variables: dict[str, Any], name: str) -> None:
    """The door asks the server of that group on the same host, which asks that group's engine."""
    socket_path = tmp_path / f"run/beside/{name}/vllm/vllm.sock"
    socket_path.parent.mkdir(parents=True)
    with running(tmp_path, with_beside(variables, name=name)) as found:
        # nobody is there yet, and the other group goes on
        assert found.ask("/v1/whole", KEY, "embed")[0] == 503
        assert found.ask("/v1/whole", KEY, "mini") == (200, b"".join(ANSWERS["/v1/whole"]))
        with serving(socketserver.ThreadingUnixStreamServer(str(socket_path), Engine)):
            assert found.ask("/v1/stream", KEY, "embed") == (200, b"".join(ANSWERS["/v1/stream"]))
            # the key is for another model
            assert found.ask("/v1/stream", NARROW, "embed")[0] == 403
            draining = tmp_path / f"run/beside/{name}/draining"
            draining.touch()
            assert found.ask("/v1/stream", KEY, "embed")[0] == 503
            assert found.ask("/v1/whole", KEY, "mini")[0] == 200
            draining.unlink()
            assert found.ask("/v1/stream", KEY, "embed")[0] == 200


class Lists(Engine):
    said = b'{"object":"list","data":[{"id":"mini"}]}'

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.said)


@pytest.mark.parametrize("said", [b"{}", b"no json", b'{"data":5}', b"null", b'{"data":' + b"[" * 100_000])
def test_an_engine_that_says_no_list_of_models_costs_the_others_none(
    tmp_path: Path, variables: dict[str, Any], monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    socket_path = tmp_path / "run/beside/embed/vllm/vllm.sock"
    socket_path.parent.mkdir(parents=True)
    monkeypatch.setitem(globals(), "Engine", Lists)
    lies = type("Lies", (Lists,), {"said": said})
    with (
        running(tmp_path, with_beside(variables)) as found,
        serving(socketserver.ThreadingUnixStreamServer(str(socket_path), lies)),
    ):
        status, _headers, text = found.answer("GET", "/v1/models", "")
        assert status == 200
        assert {model["id"] for model in json.loads(text)["data"]} == {"mini"}


@contextlib.contextmanager
def counting(tmp_path: Path) -> Iterator[None]:
    """The program of sparkthor-tokens.service, with its files below a folder."""
    socket_path = tmp_path / "run-tokens/front.sock"
    socket_path.unlink(missing_ok=True)
    package = front_counts.__name__.rpartition(".")[0]
    folders = ["--run", tmp_path / "run-tokens", "--lasting", tmp_path / "lasting"]
    argv = [sys.executable, "-m", package, "front-tokens", *folders, "--limits", tmp_path / "front/limits.json"]
    process = subprocess.Popen([str(word) for word in argv])
    try:
        until = time.monotonic() + 60
        while not socket_path.exists():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        assert process.wait(60) == 0


def refused(found: Front, path: str) -> tuple[int, dict[str, Any]]:
    """Ask until the limit shows, a moment after an answer: Retry-After and the body."""
    until = time.monotonic() + 60
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=60)
        connection.request("POST", path, json.dumps({"model": "mini"}), {"X-Api-Key": LIMITED})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        if answer.status == 429:
            return int(answer.headers["Retry-After"]), json.loads(body)
        assert answer.status == 200
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.parametrize("has_door", [False, True])
def test_a_key_that_used_its_tokens_is_refused_until_the_minute_is_over(
    tmp_path: Path, variables: dict[str, Any], has_door: bool
) -> None:
    given = of_group(variables, "c") if has_door else variables
    with running(tmp_path, given, tokens_per_minute=11) as found:
        over = tmp_path / "run-tokens/over.json"
        with counting(tmp_path):
            # a stream counts as well
            assert found.ask("/v1/stream", LIMITED)[0] == 200
            seconds, body = refused(found, "/v1/stream")
            assert 1 <= seconds <= 60
            assert body["error"]["code"] == "rate_limit_exceeded"
            # one request more may have begun before the first was counted
            assert re.match(
                "This key took (11|22) tokens of 11 in a minute; it may go on at 20", body["error"]["message"]
            )
            # as the API of Anthropic says it
            _seconds, body = refused(found, "/v1/messages")
            assert (body["type"], body["error"]["type"]) == ("error", "rate_limit_error")
            # another key is free, and what takes no tokens is as well
            assert found.ask("/v1/stream", KEY)[0] == 200
            state = json.loads(over.read_text())["over"]["limited"]
            assert state["until"] - time.time() <= 60
        # the end counts, even if nobody writes any more
        ended = {"over": {"limited": {**state, "until": time.time() - 1}}, "uncounted": []}
        over.write_text(json.dumps({**ended, "at": time.time()}))
        assert found.ask("/v1/stream", LIMITED)[0] == 200


@pytest.mark.parametrize("has_door", [False, True])
def test_a_key_with_a_limit_waits_while_nobody_counts(
    tmp_path: Path, variables: dict[str, Any], has_door: bool
) -> None:
    given = of_group(variables, "c") if has_door else variables
    with running(tmp_path, given, tokens_per_month=1000) as found:
        over = tmp_path / "run-tokens/over.json"
        words: list[tuple[str | None, int]] = [
            (None, 503),
            (json.dumps({"at": time.time() - 60, "over": {}, "uncounted": []}), 503),
            (json.dumps({"at": time.time(), "over": {}, "uncounted": ["limited"]}), 503),
            ("", 503),
            (json.dumps({"at": time.time(), "over": {}, "uncounted": []}), 200),
        ]
        for text, status in words:
            over.unlink(missing_ok=True)
            if text is not None:
                over.write_text(text)
            answered, body = found.ask("/v1/whole", LIMITED)
            assert (text, answered) == (text, status)
            assert status == 200 or json.loads(body)["error"]["code"] == "tokens_not_counted"
            assert found.ask("/v1/whole", KEY)[0] == 200
        # what was stored is asked for without a body
        assert found.ask("/v1/responses/resp_1", LIMITED, method="GET")[0] == 403


def test_a_month_is_remembered_by_a_counter_that_starts_anew(tmp_path: Path, variables: dict[str, Any]) -> None:
    with running(tmp_path, variables, tokens_per_month=40) as found:
        with counting(tmp_path):
            assert found.ask("/v1/whole", LIMITED)[0] == 200
            seconds, body = refused(found, "/v1/whole")
            assert body["error"]["code"] == "insufficient_quota"
            assert re.search("took (46|92) tokens of 40 in this month", body["error"]["message"])
        (tmp_path / "run-tokens/over.json").unlink()
        with counting(tmp_path):
            assert refused(found, "/v1/whole")[0] <= seconds
            [months] = json.loads((tmp_path / "lasting/months.json").read_text()).values()
            assert months["limited"]["tokens"] in (46, 92)


def test_an_answer_without_its_tokens_is_said_to_be_unseen(tmp_path: Path, variables: dict[str, Any]) -> None:
    with running(tmp_path, variables, tokens_per_month=40) as found, counting(tmp_path):
        assert found.ask("/v1/silent", LIMITED)[0] == 200
        used: dict[str, Any] = {}
        until = time.monotonic() + 60
        while not used.get("unseen"):
            assert time.monotonic() < until
            used = json.loads((tmp_path / "run-tokens/usage.json").read_text())["limited"]
        assert (used["unseen"], used["limits"]) == (1, {"month": 40})
        # six events, and a quarter of the request's bytes
        assert 6 < used["month"] == used["minute"] < 100


class Turns(service.Turns):
    """Stands for the program of sparkthor-on-demand.service: its sockets, and what it is told."""

    def __init__(self, folder: Path) -> None:
        super().__init__({"embed": on_demand.Policy()})
        self.folder = folder
        self.asked: list[tuple[str, bool]] = []
        self.used: list[bytes] = []

    def answer(self, group: str, asks: bool) -> tuple[float, str]:
        self.asked.append((group, asks))
        return 41.2, f"asleep: {group}"

    def take(self, datagram: bytes) -> None:
        self.used.append(datagram.partition(front_counts.TAG)[2].strip())

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self.folder.mkdir()
        ended = threading.Event()
        asked, told = (
            service.listen(str(self.folder / "wake.sock")),
            front_counts.listen(str(self.folder / "front.sock")),
        )
        threads = [
            threading.Thread(target=service.serve, args=(self, asked, ended)),
            threading.Thread(target=service.follow, args=(self, told)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"", str(self.folder / "front.sock"))
            for thread in threads:
                thread.join(60)
            asked.close()


def test_what_is_refused_keeps_no_model_awake(tmp_path: Path, variables: dict[str, Any]) -> None:
    given = with_beside(variables)
    given["sparkthor_cluster"]["beside"]["embed"]["given"]["on_demand"] = {"idle_minutes": 1}
    own = tmp_path / "run/beside/embed/vllm/vllm.sock"
    own.parent.mkdir(parents=True)
    with running(tmp_path, given) as found, serving(socketserver.ThreadingUnixStreamServer(str(own), Engine)):
        turns = Turns(tmp_path / "run-on-demand")
        with turns.running():
            assert found.ask("/v1/whole", NARROW, "embed")[0] == 403
            # vLLM refuses it
            assert found.ask("/v1/none", KEY, "embed")[0] == 404
            # nginx tells of its requests in their order
            assert found.ask("/v1/whole", KEY, "mini")[0] == 200
            until = time.monotonic() + 60
            while not turns.used:
                assert time.monotonic() < until
                time.sleep(0.02)
            assert turns.used == [b"-"]


def test_a_request_for_a_model_that_sleeps_is_a_wish(tmp_path: Path, variables: dict[str, Any]) -> None:
    given = with_beside(variables)
    given["sparkthor_cluster"]["beside"]["embed"]["given"]["on_demand"] = {"idle_minutes": 1}
    socket_path = tmp_path / "run/beside/embed/vllm/vllm.sock"
    socket_path.parent.mkdir(parents=True)
    with running(tmp_path, given) as found:
        # nobody decides yet
        status, headers, text = found.answer("POST", "/v1/completions", "embed")
        assert (status, headers.get("Retry-After"), "not being served" in text) == (503, "15", True)
        turns = Turns(tmp_path / "run-on-demand")
        with turns.running():
            status, headers, text = found.answer("POST", "/v1/completions", "embed")
            assert (status, headers["Retry-After"]) == (503, "42")
            assert json.loads(text)["error"] == {
                **{"message": "asleep: embed", "type": "service_unavailable", "param": "model", "code": "model_asleep"}
            }
            # whoever has no key, or one for another model, wakes nobody; nor does a question
            assert found.ask("/v1/whole", "x" * 20, "embed")[0] == 401
            assert found.ask("/v1/whole", NARROW, "embed")[0] == 403
            status, _headers, text = found.answer("GET", "/v1/models", "")
            assert (status, "embed" in [model["id"] for model in json.loads(text)["data"]]) == (200, True)
            assert turns.asked == [("embed", True)]
            # the own group answers, and that is told
            assert found.ask("/v1/whole", KEY, "mini")[0] == 200
            (tmp_path / "run/draining").touch()
            (tmp_path / "run/vllm/vllm.sock").rename(tmp_path / "run/vllm/away.sock")
            assert found.answer("POST", "/v1/completions", "mini")[0] == 503
            assert turns.asked[-1] == ("", True)
            with serving(socketserver.ThreadingUnixStreamServer(str(socket_path), Engine)):
                assert found.ask("/v1/stream", KEY, "embed") == (200, b"".join(ANSWERS["/v1/stream"]))
                until = time.monotonic() + 60
                while {b"-", b"embed"} - set(turns.used):
                    assert time.monotonic() < until, turns.used
                    time.sleep(0.02)
            assert set(turns.used) == {b"-", b"embed"}
