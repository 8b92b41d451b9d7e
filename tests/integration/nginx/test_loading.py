# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What clients are told while an engine loads, and of an engine's own 503, by a real nginx."""

from __future__ import annotations

import contextlib
import http.client
import json
import socketserver
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.nginx import test_front
from tests.integration.nginx.test_front import KEY, NARROW, Engine, Front, Turns, running
from tests.unit.plugins.plugin_utils._plan.test_door import of_group, with_beside
from tests.unit.plugins.plugin_utils._plan.vllm_plan import started_by, with_serving
from tests.unit.servers import serving

#: as llama.cpp says it (tools/server/server-http.cpp), of GET /v1/models as well
LOADING = b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'
FULL = b'{"object":"error","message":"The request queue is full.","type":"503","code":503}'
LLAMA = {"engine": "llama_cpp", "model": "m", "models": [{"name": "m"}], "args": {"ctx-size": 2048}}
Answer = tuple[int, dict[str, str], str]


class Refuses(Engine):
    """An engine that answers everything in one way."""

    status = 503
    said = LOADING
    own_headers: dict[str, str] = {}

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.send_response(self.status)
        for name, value in {"Content-Type": "application/json", **self.own_headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.said)))
        self.end_headers()
        self.wfile.write(self.said)

    do_GET = do_POST


def refuses(**given: Any) -> type[Refuses]:
    return type("Own", (Refuses,), given)


def of_llama(variables: dict[str, Any]) -> dict[str, Any]:
    planned = started_by(with_serving(variables, **LLAMA), "mp")
    return {**planned, "serving_engine": "llama_cpp", "engine_programs": "/srv/llama"}


@contextlib.contextmanager
def asked(tmp_path: Path, given: dict[str, Any], engine: type[Engine]) -> Iterator[Front]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_front, "Engine", engine)
        with running(tmp_path, given) as found:
            yield found


def told(found: Front, model: str = "mini") -> list[Answer]:
    """Of a request in one piece, of a long one, and of the list of models; without what changes each second."""
    answers = [
        found.answer("POST", "/v1/chat/completions", model),
        found.answer("POST", "/v1/completions", model),
        found.answer("GET", "/v1/models", ""),
    ]
    for _status, headers, _text in answers:
        headers.pop("Date")
    return answers


@pytest.mark.parametrize("has_door", [False, True])
def test_an_engine_that_says_that_it_loads_is_as_far_away_as_one_that_does_not_listen(
    tmp_path: Path, variables: dict[str, Any], has_door: bool
) -> None:
    given = of_llama(variables)
    with asked(tmp_path, of_group(given, "c") if has_door else given, Refuses) as found:
        loads = told(found)
        (tmp_path / "run/vllm/vllm.sock").rename(tmp_path / "run/vllm/away.sock")
        assert loads == told(found)
    for status, headers, text in loads:
        assert (status, headers["Retry-After"]) == (503, "15")
        assert json.loads(text)["error"]["code"] == "service_unavailable"


@pytest.mark.parametrize(("own", "seconds"), [({}, "15"), ({"Retry-After": "7"}, "7")])
def test_what_an_engine_that_serves_says_of_itself_is_passed_on_with_a_time(
    tmp_path: Path, variables: dict[str, Any], own: dict[str, str], seconds: str
) -> None:
    with asked(tmp_path, variables, refuses(said=FULL, own_headers=own)) as found:
        status, headers, text = found.answer("POST", "/v1/chat/completions", "mini")
    assert (status, headers["Retry-After"], text) == (503, seconds, FULL.decode())


def test_a_page_of_an_allowed_origin_gets_the_time_as_well(tmp_path: Path, variables: dict[str, Any]) -> None:
    with asked(tmp_path, {**variables, "vllm_serve_cors_origins": ["https://x.example"]}, refuses(said=FULL)) as found:
        _status, headers, _text = found.answer("POST", "/v1/chat/completions", "mini")
    assert (headers["Retry-After"], headers["Vary"]) == ("15", "Origin")


ORIGIN = "https://x.example"
#: path, key and body of a request, and how nginx itself answers it
REFUSED: dict[str, tuple[str, str, int, int]] = {
    "no key": ("/v1/completions", "", 0, 401),
    "another model": ("/v1/completions", NARROW, 0, 403),
    "unknown path": ("/v2/completions", KEY, 0, 404),
    "too large": ("/v1/completions", KEY, 1 << 30, 413),
    "too often": ("/v1/completions", NARROW, 0, 429),
    "drained": ("/v1/completions", KEY, 0, 503),
}


@pytest.mark.parametrize("has_door", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_a_page_of_an_allowed_origin_may_read_why_it_is_refused(
    tmp_path: Path, variables: dict[str, Any], name: str, has_door: bool
) -> None:
    path, key, length, status = REFUSED[name]
    if name == "too often" and not has_door:
        variables = {**variables, "vllm_serve_model": "/srv/chat"}
    given = {**(of_group(variables, "c") if has_door else variables), "vllm_serve_cors_origins": [ORIGIN]}
    body = b'{"model":"chat"}' if name == "too often" else b'{"model":"mini"}'

    def answer(origin: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=60)
        headers = {"Authorization": f"Bearer {key}", "Origin": origin, "Content-Length": str(length or len(body))}
        connection.request("POST", path, body, headers)
        with contextlib.closing(connection):
            return connection.getresponse()

    # where tokens have limits, a program says when to come again
    limits = {"tokens_per_minute": 9999} if has_door else {}
    with running(tmp_path, given, **limits) as found:
        if name == "drained":
            (tmp_path / "run/draining").touch()
        if name == "too often":
            answer(ORIGIN)
        allowed, other = answer(ORIGIN), answer("https://y.example")
    assert allowed.status == status
    assert allowed.getheader("Access-Control-Allow-Origin") == ORIGIN
    assert "Retry-After" in allowed.getheader("Access-Control-Expose-Headers")
    assert allowed.headers.get_all("Vary") == ["Origin"]
    # of a key that may send one a minute
    assert allowed.getheader("Retry-After") == {"too often": "60", "drained": "15"}.get(name)
    assert other.getheader("Access-Control-Allow-Origin") is None


@pytest.mark.parametrize("status", [400, 404, 429, 500, 501])
@pytest.mark.parametrize("is_llama", [False, True])
def test_no_other_answer_gets_a_time(tmp_path: Path, variables: dict[str, Any], is_llama: bool, status: int) -> None:
    given = of_llama(variables) if is_llama else variables
    with asked(tmp_path, given, refuses(status=status, said=b"{}")) as found:
        answered, headers, text = found.answer("POST", "/v1/completions", "mini")
    assert (answered, headers.get("Retry-After"), text) == (status, None, "{}")


def test_a_group_on_demand_that_loads_says_how_far_it_is(tmp_path: Path, variables: dict[str, Any]) -> None:
    given = with_beside(variables)
    beside = given["sparkthor_cluster"]["beside"]["embed"]
    beside["given"]["on_demand"] = {"idle_minutes": 1}
    beside["serving"] |= {"engine": "llama_cpp", "args": {"ctx-size": 2048}}
    place = tmp_path / "run/beside/embed/vllm/vllm.sock"
    place.parent.mkdir(parents=True)
    turns = Turns(tmp_path / "run-on-demand")
    with (
        running(tmp_path, given) as found,
        serving(socketserver.ThreadingUnixStreamServer(str(place), Refuses)),
        turns.running(),
    ):
        status, headers, text = found.answer("POST", "/v1/completions", "embed")
        assert (status, headers["Retry-After"], json.loads(text)["error"]["code"]) == (503, "42", "model_asleep")
        _status, _headers, text = found.answer("GET", "/v1/models", "")
        assert "embed" in [model["id"] for model in json.loads(text)["data"]]
        assert found.ask("/v1/whole", KEY, "mini")[0] == 200
