# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who gets what of the page, by real nginx: keys, rights, methods, paths and headers."""

from __future__ import annotations

import http.client
import json
import time
import uuid
from typing import Any

import pytest

from tests.integration.page.conftest import CHATS, KEY, LOOKS, NAMES, OPERATES, OUTWARD, PAGE, Cluster

WISH = {"do": "drain", "group": "", "reason": "cables", "id": "0" * 16, "since": None}


def ask(
    cluster: Cluster, path: str, key: str = "", method: str = "GET", body: Any = None, **headers: str
) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=20)
    given = {**({"Authorization": f"Bearer {key}"} if key else {}), **headers}
    if body is not None and "Content-Type" not in given:
        given["Content-Type"] = "application/json"
    connection.request(method, path, None if body is None else json.dumps(body), given)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read().decode()
    connection.close()
    return found


def state(cluster: Cluster, key: str = OPERATES) -> dict[str, Any]:
    status, _headers, body = ask(cluster, "/console/state", key)
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def until(cluster: Cluster, true: Any) -> dict[str, Any]:
    """The state document once it says so."""
    end = time.monotonic() + 20
    while not true(found := state(cluster)):
        assert time.monotonic() < end, found
        time.sleep(0.2)
    return found


@pytest.mark.parametrize("path", ["/console/state", "/console/log?group=", "/console/do"])
@pytest.mark.parametrize("key", ["", "x" * 20, CHATS])
def test_nothing_without_a_key_that_may(cluster: Cluster, path: str, key: str) -> None:
    method = "POST" if path.endswith("do") else "GET"
    status, headers, body = ask(cluster, path, key, method, WISH if method == "POST" else None)
    assert status == 401
    assert headers["WWW-Authenticate"] == "Bearer"
    assert not [name for name in NAMES if name in body]
    assert cluster.systemd.calls == []


def test_the_page_itself_says_nothing_of_the_cluster(cluster: Cluster) -> None:
    assert ask(cluster, "/")[0:2][0] == 302
    assert ask(cluster, "/")[1]["Location"] == "/console/"
    for path in sorted(PAGE.rglob("*")):
        if path.is_dir():
            continue
        status, headers, body = ask(cluster, f"/console/{path.relative_to(PAGE)}")
        assert (status, body) == (200, path.read_text(encoding="utf-8"))
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert not [name for name in NAMES if name in body]
    assert ask(cluster, "/console/")[1]["Content-Type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize(
    "path",
    ["/console/../etc/serving.json", "/console/%2e%2e/serving.json", "/console/..%2f..%2fetc", "/console/vendor/"],
)
def test_no_path_leads_out_of_the_page(cluster: Cluster, path: str) -> None:
    status, _headers, body = ask(cluster, path)
    assert status >= 400
    assert "model" not in body


def test_who_may_look_sees_all_but_the_names_of_keys(cluster: Cluster) -> None:
    known = ["chats", "default", "looks", "operates", "web"]
    for key, right, name in ((KEY, "view", "default"), (LOOKS, "view", "looks"), (OPERATES, "operate", "operates")):
        status, headers, body = ask(cluster, "/console/state", key)
        found = json.loads(body)
        assert status == 200
        assert (headers["X-Sparkthor-Right"], headers["X-Sparkthor-Key"]) == (right, name)
        assert [host["name"] for host in found["hosts"]] == list(NAMES)
        assert [one["name"] for one in found["keys"]] == (known if right == "operate" else [""])
        assert sum(one["requests"] for one in found["keys"]) == 66
        assert key not in body


def test_headers_of_a_client_are_not_believed(cluster: Cluster) -> None:
    forged = {"X-Sparkthor-Right": "operate", "X-Sparkthor-Key": "operates"}
    _status, headers, body = ask(cluster, "/console/state", LOOKS, **forged)
    assert headers["X-Sparkthor-Right"] == "view"
    assert json.loads(body)["keys"][0]["name"] == ""
    assert ask(cluster, "/console/do", LOOKS, "POST", WISH, **forged)[0] == 403
    assert ask(cluster, "/console/state", CHATS, **forged)[0] == 401


def test_who_may_not_operate_changes_nothing(cluster: Cluster) -> None:
    for key in (KEY, LOOKS):
        status, _headers, body = ask(cluster, "/console/do", key, "POST", WISH)
        assert status == 403
        assert "console: operate" in body
    # what a form of another page can send
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert ask(cluster, "/console/do", OPERATES, "POST", WISH, **{"Content-Type": kind})[0] == 415
    assert ask(cluster, "/console/do", OPERATES, "GET")[0] in (404, 415)
    assert ask(cluster, "/console/do", OPERATES, "POST", {**WISH, "reason": "x" * 9000})[0] == 413
    assert not (cluster.folder / "run" / "draining").exists()


def test_over_plain_http_nobody_operates(cluster: Cluster) -> None:
    """Who comes from this head itself, as through a tunnel, may; who comes from the network would send the key open."""
    headers = {"Authorization": f"Bearer {OPERATES}", "Content-Type": "application/json"}
    for method, path, status in (("GET", "/console/state", 200), ("POST", "/console/do", 403)):
        connection = http.client.HTTPConnection(OUTWARD, cluster.port, timeout=20)
        connection.request(method, path, json.dumps(WISH) if method == "POST" else None, headers)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        assert answer.status == status, body
    assert "set vllm_serve_tls, or come through an ssh tunnel" in body
    assert not (cluster.folder / "run" / "draining").exists()
    cluster.running = 0
    assert ask(cluster, "/console/do", OPERATES, "POST", WISH)[0] == 202
    until(cluster, lambda doc: doc["jobs"] and doc["jobs"][0]["state"] == "done")


def test_a_wish_is_done_once_and_written_down(cluster: Cluster) -> None:
    cluster.running = 0
    wish = {**WISH, "do": "restart", "reason": "a new template", "id": "ab" * 8}
    for _time in range(2):
        assert ask(cluster, "/console/do", OPERATES, "POST", wish)[0] == 202
    found = until(cluster, lambda doc: doc["jobs"] and doc["jobs"][0]["state"] != "running")
    assert [job["state"] for job in found["jobs"]] == ["done"]
    assert found["jobs"][0]["who"] == "operates"
    assert len([words for words in cluster.systemd.calls if "restart" in words]) == 1
    lines = [json.loads(line) for line in (cluster.folder / "audit.jsonl").read_text().splitlines()]
    assert [(line["state"], line["who"], line["reason"]) for line in lines] == [
        ("asked", "operates", "a new template"),
        ("done", "operates", "a new template"),
    ]
    assert OPERATES not in json.dumps(lines)


def test_a_drain_that_is_ended_stops_nothing(cluster: Cluster) -> None:
    stop = {**WISH, "do": "stop", "id": "cd" * 8}
    assert ask(cluster, "/console/do", OPERATES, "POST", stop)[0] == 202
    until(cluster, lambda doc: doc["groups"][0]["draining"])
    assert ask(cluster, "/console/do", OPERATES, "POST", {**WISH, "do": "restart", "id": "ef" * 8})[0] == 409
    assert ask(cluster, "/console/do", OPERATES, "POST", {**WISH, "do": "resume", "id": "12" * 8})[0] == 202
    found = until(cluster, lambda doc: not [job for job in doc["jobs"] if job["state"] == "running"])
    ends = {job["do"]: (job["state"], job["text"]) for job in found["jobs"]}
    assert ends["stop"][0] == "failed"
    assert "stops nothing" in ends["stop"][1]
    assert found["groups"][0]["state"] == "serving"
    assert not [words for words in cluster.systemd.calls if "stop" in words]


def blocks(key: str, do: str = "block") -> dict[str, Any]:
    return {"do": do, "key": key, "reason": "it leaked", "id": uuid.uuid4().hex}


def test_a_key_that_is_blocked_is_refused_until_it_is_unblocked(cluster: Cluster) -> None:
    body = {"model": "m", "messages": [], "stream": True}

    def chats() -> int:
        return ask(cluster, "/v1/chat/completions", CHATS, "POST", body)[0]

    def blocked(doc: dict[str, Any]) -> list[str]:
        assert not [job for job in doc["jobs"] if job["state"] == "failed"]
        return [key["name"] for key in doc["keys"] if key["blocked"]]

    assert chats() == 200
    assert ask(cluster, "/console/do", OPERATES, "POST", blocks("chats"))[0] == 202
    until(cluster, lambda doc: blocked(doc) == ["chats"])
    end = time.monotonic() + 10
    while chats() != 401:
        assert time.monotonic() < end
        time.sleep(0.1)
    # nobody else's, and who only looks learns no name
    assert ask(cluster, "/console/state", LOOKS)[0] == 200
    assert "chats" not in ask(cluster, "/console/state", LOOKS)[2]
    assert ask(cluster, "/console/do", OPERATES, "POST", blocks("looks"))[0] == 202
    until(cluster, lambda doc: blocked(doc) == ["chats", "looks"])
    for key in ("chats", "looks"):
        assert ask(cluster, "/console/do", OPERATES, "POST", blocks(key, "unblock"))[0] == 202
        until(cluster, lambda doc: doc["jobs"][0]["state"] == "done")
    until(cluster, lambda doc: not blocked(doc))
    end = time.monotonic() + 10
    while chats() != 200:
        assert time.monotonic() < end
        time.sleep(0.1)
    lines = [json.loads(line) for line in (cluster.folder / "audit.jsonl").read_text().splitlines()]
    done = next(one for one in lines if one["state"] == "done")
    assert (done["do"], done["key"], done["who"]) == ("block", "chats", "operates")


def test_a_block_that_the_front_proxy_does_not_take_is_none(cluster: Cluster) -> None:
    cluster.refuses = "the wanted configuration of the front proxy is not valid"
    assert ask(cluster, "/console/do", OPERATES, "POST", blocks("chats"))[0] == 202
    found = until(cluster, lambda doc: doc["jobs"] and doc["jobs"][0]["state"] != "running")
    assert (found["jobs"][0]["state"], "is not valid" in found["jobs"][0]["text"]) == ("failed", True)
    assert not [key for key in found["keys"] if key["blocked"]]
    assert json.loads((cluster.folder / "blocked.json").read_text()) == {"blocked": []}


def test_a_group_on_demand_beside_the_own_one_is_woken_by_its_service(cluster: Cluster) -> None:
    beside = cluster.folder / "etc" / "beside" / "embed"
    beside.mkdir(parents=True)
    (beside / "serving.json").write_text(json.dumps({"unit": "x.service", "model": "e5", "on_demand": True}))
    cluster.groups.append({"name": "embed", "beside": "embed", "head": NAMES[0], "here": True, "hosts": [NAMES[0]]})
    until(cluster, lambda doc: [one["state"] for one in doc["groups"]] == ["serving", "asleep"])
    status, _headers, body = ask(cluster, "/console/do", OPERATES, "POST", {**WISH, "do": "wake", "group": "embed"})
    assert status == 202, body
    found = until(cluster, lambda doc: doc["jobs"] and doc["jobs"][0]["state"] == "done")
    assert found["jobs"][0]["text"] == "The model was asleep and is being started."
    assert cluster.woken == ["embed"]
    assert cluster.systemd.calls == []


@pytest.mark.parametrize(
    ("wish", "status", "word"),
    [
        ({"do": "block"}, 404, "no such key"),
        ({"do": "block", "key": "nobody"}, 404, "no such key"),
        ({"do": "block", "key": 'x" 1; include /etc/passwd'}, 404, "no such key"),
        ({"do": "block", "key": "operates"}, 403, "does not block itself"),
        ({"do": "block", "key": "default"}, 403, "rotate_api_key.yml"),
        ({"do": "block", "key": "chats", "reason": ""}, 400, "say why"),
        ({"do": "delete"}, 400, "no such action"),
        ({"do": ["stop"]}, 400, "no such action"),
        ({"group": "other"}, 404, "no such serving group"),
        ({"reason": " "}, 400, "say why"),
        ({"id": "../../etc"}, 400, "no id"),
        ({"since": "now"}, 400, "since is no time"),
        ({"since": 12.0}, 409, "look again"),
    ],
)
def test_a_wish_that_is_none(cluster: Cluster, wish: dict[str, Any], status: int, word: str) -> None:
    found = ask(cluster, "/console/do", OPERATES, "POST", {**WISH, **wish})
    assert (found[0], word in found[2]) == (status, True), found
    assert not (cluster.folder / "run" / "draining").exists()


def test_a_playbook_that_runs_is_waited_for(cluster: Cluster) -> None:
    holder = {"token": "x", "owner": "ops@controller", "play": "site.yml", "since": ""}
    (cluster.folder / "controller.json").write_text(json.dumps(holder))
    status, _headers, body = ask(cluster, "/console/do", OPERATES, "POST", WISH)
    assert (status, "site.yml runs, by ops@controller" in body) == (423, True)
    assert until(cluster, lambda doc: doc["playbook"])["playbook"]["owner"] == "ops@controller"


def test_a_host_that_is_away_is_dated_and_delays_nobody(cluster: Cluster) -> None:
    until(cluster, lambda doc: all(host["answers"] for host in doc["hosts"]))
    del cluster.hosts["spark-03"]
    found = until(cluster, lambda doc: not doc["hosts"][2]["answers"])
    away = found["hosts"][2]
    assert away["age"] is not None
    # as it was when it answered last
    assert away["memory"]["total"] == 130701455360


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": 5, "updated": "x"}', '{"state": "serving", "updated": 1}'])
def test_a_state_file_that_is_none_is_unknown(cluster: Cluster, text: str) -> None:
    (cluster.folder / "run" / "state.json").write_text(text)
    assert until(cluster, lambda doc: doc["groups"][0]["state"] == "unknown")["groups"][0]["healthy"] in (False, True)
