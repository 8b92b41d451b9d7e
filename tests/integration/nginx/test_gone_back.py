# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A front proxy of the newer plan, with the files that a rollback brings back: it leads to what is served again."""

from __future__ import annotations

import json
import socket
import socketserver
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept

from tests.integration.nginx.test_front import ACCOUNT, ACCOUNT_END, KEY, NARROW, Engine, running
from tests.integration.nginx.test_loading import of_llama
from tests.unit.plugins.plugin_utils._plan.test_door import GROUPS, NAMES, OTHERS, of_group, with_beside
from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan, started_by, with_serving
from tests.unit.servers import serving

FRONT = "/etc/sparkthor/front/"
ANSWER = (200, ACCOUNT + ACCOUNT_END)


def brought_back(before: dict[str, Any]) -> dict[str, str]:
    """Of what the head kept when it served with this plan, the part of its front proxy."""
    planned = plan(before)
    return {path: files(planned)[path] for path in planned["kept"] if path.startswith(FRONT)}


def offering(variables: dict[str, Any], host: str, names: dict[str, list[str]], **given: Any) -> dict[str, Any]:
    """The plan of a head where groups offer other names."""
    found = of_group(variables, host, **given)
    groups = [{**group, "names": names.get(group["group"], group["names"])} for group in GROUPS]
    [own] = [group for group in groups if group["head"] == host]
    model = {"model": own["model"], "served_model_name": own["names"], "args": {}, "models": [{"name": own["model"]}]}
    found["sparkthor_cluster"] |= {"groups": groups, "group": own["group"], "serving": model}
    return found


def sglang(variables: dict[str, Any]) -> dict[str, Any]:
    found = {"engine": "sglang", "model": "m", "models": [{"name": "m"}], "args": {}, "max_model_len": 2048}
    return {**started_by(with_serving(variables, **found), "mp"), "serving_engine": "sglang"}


@pytest.mark.parametrize("has_door", [False, True])
@pytest.mark.parametrize("left", [sglang, of_llama])
def test_requests_reach_the_former_engine(tmp_path: Path, variables: dict[str, Any], left: Any, has_door: bool) -> None:
    before = of_group(variables, "c") if has_door else variables
    with running(tmp_path, left(before), brought_back(before)) as found:
        assert found.ask("/v1/whole") == ANSWER


def test_the_own_door_knows_the_model_that_is_served_again(tmp_path: Path, variables: dict[str, Any]) -> None:
    after = offering(variables, "a", {"big": ["new"]})
    with running(tmp_path, after, brought_back(offering(variables, "a", {}))) as found:
        # the key is for the former model; it may make one request in a minute
        assert found.ask("/v1/whole", NARROW, "chat") == ANSWER
        assert found.ask("/v1/whole", KEY, "new")[0] == 404
        found.says('sparkthor_front_requests_total{key="narrow",model="chat",status="200"} 1')


def test_a_key_for_the_model_that_was_left_is_none_for_the_former_one(
    tmp_path: Path, variables: dict[str, Any]
) -> None:
    """Whose models the key may ask for is decided by what is served now."""
    chat = with_serving(variables, model="m", models=[{"name": "m"}], args={}, served_model_name="chat")
    with running(tmp_path, chat, brought_back(variables)) as found:
        assert found.ask("/v1/whole", NARROW)[0] == 403
        assert found.ask("/v1/whole") == ANSWER
        found.says('sparkthor_front_requests_total{key="narrow",model="mine",status="403"} 1')


def test_the_door_of_another_head_is_told(tmp_path: Path, variables: dict[str, Any]) -> None:
    after = offering(variables, "c", {"big": ["new"]})
    others = tmp_path / "others.conf"
    others.write_text(files(plan(after))[OTHERS])
    [change] = kept.told(files(plan(offering(variables, "a", {})))[NAMES], str(others))
    with running(tmp_path, after, {OTHERS: str(change.after)}) as found:
        assert found.ask("/v1/whole", KEY, "chat") == ANSWER
        assert found.ask("/v1/whole", KEY, "new")[0] == 404
        # who did not go back
        assert found.ask("/v1/whole", KEY, "mini") == ANSWER
        found.says('sparkthor_front_requests_total{key="default",model="chat",status="200"} 1')


class Unknown(Engine):
    """A replica that serves another model."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.send_error(404)


def test_one_replica_alone_goes_back(tmp_path: Path, variables: dict[str, Any]) -> None:
    """Each of the two has its own model then, and a request finds the one that has it."""
    after = offering(variables, "c", {})
    before = brought_back(offering(variables, "c", {"small_a": ["older"]}))
    away = str(tmp_path / "run/nobody.sock")
    with (
        running(tmp_path, after, before) as found,
        serving(socketserver.ThreadingUnixStreamServer(away, Unknown)),
    ):
        assert [found.ask("/v1/whole", KEY, "older") for _number in range(6)] == [ANSWER] * 6
        assert [found.ask("/v1/whole", KEY, "mini") for _number in range(6)] == [ANSWER] * 6


class Says(Engine):
    """What it was asked for."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["model"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(asked)))
        self.end_headers()
        self.wfile.write(asked)


def test_a_fallback_answers_under_the_name_that_it_has_again(
    tmp_path: Path, variables: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.integration.nginx.test_front.Engine", Says)
    # nobody is at the address of the head d
    groups = [{**GROUPS[0], "head": "d"}, GROUPS[1]]
    after, before = (offering(variables, "c", {"small_a": names}) for names in (["mini"], ["older", "old"]))
    for one, names in ((after, ["mini"]), (before, ["older", "old"])):
        one["sparkthor_cluster"]["groups"] = [groups[0], {**groups[1], "names": names}]
    with running(tmp_path, after, brought_back(before)) as found:
        status, headers, text = found.answer("POST", "/v1/whole", "chat")
    assert (status, headers["X-Sparkthor-Instead"], text) == (200, "older", "older")


def test_a_group_beside_that_came_later_is_away_and_costs_nobody_else_anything(
    tmp_path: Path, variables: dict[str, Any]
) -> None:
    with running(tmp_path, with_beside(variables), brought_back(of_group(variables, "c"))) as found:
        assert found.ask("/v1/whole") == ANSWER
        # no name is of it any more, and its server says that nobody is there
        assert found.ask("/v1/whole", KEY, "embed")[0] == 404
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "run/front/group-embed.sock"))
            client.sendall(f"GET /v1/models HTTP/1.0\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())
            assert client.recv(65536).startswith(b"HTTP/1.1 503 ")


class Lists(Engine):
    def do_GET(self) -> None:
        said = json.dumps({"object": "list", "data": [{"id": self.listed}]}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(said)

    listed = "mini"


def test_the_list_has_each_model_once(
    tmp_path: Path, variables: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where replicas serve two models."""
    monkeypatch.setattr("tests.integration.nginx.test_front.Engine", Lists)
    away = str(tmp_path / "run/nobody.sock")
    with (
        running(tmp_path, of_group(variables, "c")) as found,
        serving(socketserver.ThreadingUnixStreamServer(away, type("Older", (Lists,), {"listed": "older"}))),
    ):
        for _number in range(3):
            _status, _headers, text = found.answer("GET", "/v1/models", "")
            assert sorted(model["id"] for model in json.loads(text)["data"]) == ["mini", "older"]
