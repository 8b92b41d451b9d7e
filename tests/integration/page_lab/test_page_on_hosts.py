# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page's process on a real head: what it reads, and what it may do in its sandbox."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.integration.conftest import Cluster
from tests.integration.page_lab.conftest import ANNA, CHATS, MODEL


@pytest.fixture(name="page")
def _page(cluster: Cluster) -> httpx.Client:
    url = cluster.endpoint.replace("http://", "https://")
    return httpx.Client(base_url=url, verify=False, timeout=30, headers={"Authorization": f"Bearer {ANNA}"})


def until(page: httpx.Client, true: Callable[[dict[str, Any]], Any], seconds: float = 300) -> dict[str, Any]:
    """The state document once it says so."""
    end = time.monotonic() + seconds
    while True:
        answer = page.get("/console/state")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        if true(found):
            return found
        assert time.monotonic() < end, json.dumps(found)[:2000]
        time.sleep(1)


def wish(page: httpx.Client, do: str, reason: str = "", **more: Any) -> httpx.Response:
    told = {"do": do, "group": "", "reason": reason, "id": uuid.uuid4().hex, "since": None, **more}
    return page.post("/console/do", json=told)


def test_the_page_shows_all_hosts_and_the_group(cluster: Cluster, page: httpx.Client) -> None:
    found = until(page, lambda told: told["groups"][0]["state"] == "serving")
    assert [host["name"] for host in found["hosts"]] == cluster.hosts
    for host in found["hosts"]:
        assert host["answers"], host
        assert 0 < host["memory"]["left"] < host["memory"]["total"]
        assert host["links"], host
        assert all(link["up"] for link in host["links"])
    group = found["groups"][0]
    assert (group["model"], group["hosts"], group["healthy"]) == (MODEL, cluster.hosts, True)
    assert group["running"] is not None
    assert any("serving" in event["text"] for event in found["events"])
    log = page.get("/console/log", params={"group": ""}).json()
    assert len(log["lines"]) > 10
    secrets = (ANNA, CHATS, cluster.api_key, cluster.secret("ray_token"))
    assert not [secret for secret in secrets if secret in json.dumps([found, log])]


def test_keys_and_rights(cluster: Cluster, page: httpx.Client) -> None:
    assert "Content-Security-Policy" in page.get("/console/").headers
    for key, state, do in ((CHATS, 401, 401), (cluster.api_key, 200, 403), ("x" * 30, 401, 401)):
        headers = {"Authorization": f"Bearer {key}"}
        assert page.get("/console/state", headers=headers).status_code == state
        told = {"do": "stop", "group": "", "reason": "x", "id": "0" * 9}
        assert page.post("/console/do", headers=headers, json=told).status_code == do
    assert page.get("/console/state").json()["groups"][0]["state"] == "serving"


def test_a_chat_goes_the_way_of_the_api(page: httpx.Client) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "stream": True}
    assert "data: [DONE]" in page.post("/v1/chat/completions", json=body, timeout=120).text


def test_a_key_is_blocked_and_let_in_again(cluster: Cluster, page: httpx.Client) -> None:
    own = {"Authorization": f"Bearer {CHATS}"}

    def asked(do: str) -> None:
        told = {"do": do, "key": "chats", "reason": "it leaked", "id": uuid.uuid4().hex}
        answer = page.post("/console/do", json=told)
        assert answer.status_code == 202, answer.text

        def ended(seen: dict[str, Any]) -> list[str]:
            return [job["state"] for job in seen["jobs"] if job["id"] == told["id"] and job["state"] != "running"]

        assert ended(until(page, ended, 60)) == ["done"]

    def refused(status: int) -> None:
        end, found = time.monotonic() + 60, 0
        while found != status:
            assert time.monotonic() < end, found
            time.sleep(0.5)
            # one that was just started does not listen yet
            with contextlib.suppress(httpx.ConnectError):
                found = httpx.get(f"{page.base_url}/v1/models", headers=own, verify=False).status_code

    refused(200)
    asked("block")
    refused(401)
    # a start of the front proxy does not let it in
    cluster.run(cluster.head, "systemctl restart sparkthor-front")
    refused(401)
    asked("unblock")
    refused(200)
    until(page, lambda told: not [key for key in told["keys"] if key["blocked"]], 30)


def test_stopped_and_started_from_the_page(cluster: Cluster, page: httpx.Client) -> None:
    assert wish(page, "stop", "moving the rack").status_code == 202
    found = until(page, lambda told: told["groups"][0]["state"] == "stopped" and told["jobs"][0]["state"] == "done")
    assert found["groups"][0]["stopped"] == "stopped by anna: moving the rack"
    unit = "sparkthor-vllm.service"
    assert cluster.run(cluster.head, f"systemctl is-enabled {unit}", check=False).strip() == "disabled"
    assert wish(page, "start").status_code == 202
    until(page, lambda told: told["groups"][0]["state"] == "serving", 900)
    assert cluster.run(cluster.head, f"systemctl is-enabled {unit}").strip() == "enabled"
    expected = ["block", "unblock", "stop", "start"]
    audit = cluster.run(cluster.head, "cat /var/lib/sparkthor-console/audit.jsonl")
    # the browser had wishes before
    assert [json.loads(line)["do"] for line in audit.splitlines() if '"done"' in line][-4:] == expected
    assert "moving the rack" in cluster.run(cluster.head, "journalctl --no-pager -u sparkthor-console")


def test_its_process_is_nobody_and_its_end_harms_nobody(cluster: Cluster, page: httpx.Client) -> None:
    users = cluster.run(cluster.head, "ps -o user= -p $(systemctl show -p MainPID --value sparkthor-console)").split()
    children = cluster.run(
        cluster.head, "ps -o user:32= --ppid $(systemctl show -p MainPID --value sparkthor-console)"
    ).split()
    assert (users, children) == (["root"], ["sparkthor-console"])
    cluster.run(cluster.head, "systemctl kill --signal=KILL sparkthor-console")
    assert page.get("/v1/models").status_code == 200
    end = time.monotonic() + 60
    while page.get("/console/state").status_code != 200:
        assert time.monotonic() < end
        time.sleep(1)
