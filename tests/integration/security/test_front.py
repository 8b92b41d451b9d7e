# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attacks on the front proxy, from another host of the lab, while a client goes on asking for completions."""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.security.conftest import Asking, Target

ROLE = ("--tags", "vllm_serve")
#: opens many connections, sends the same bytes on each, and says what came of them
ATTACK = (Path(__file__).parent / "attack.py").read_text(encoding="utf-8")
FORGER = """
import http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"status": "serving", "generation": 999, "proof": "0" * 64}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        open("/tmp/forged", "a").write(self.path + chr(10))
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
"""


def attack(target: Target, request: str, connections: int, seconds: float) -> dict[str, Any]:
    """From a worker: other limits hold for its address than for the client's. It has the same processors as the head,
    which no attacker has, so it steps back."""
    plan = {"address": target.cluster.addresses[target.head], "request": request, "connections": connections}
    words = json.dumps({**plan, "seconds": seconds})
    script = f"cat >/tmp/attack.py <<'END'\n{ATTACK}END\nnice -n 19 python3 /tmp/attack.py <<'END'\n{words}\nEND"
    found: dict[str, Any] = json.loads(target.run(target.hosts[1], script, timeout=seconds + 300))
    print(f"{request[:40]!r} on {connections} connections: {found}", flush=True)
    return found


def request(method: str, path: str, key: str = "", more: str = "") -> str:
    bearer = f"Authorization: Bearer {key}\r\n" if key else ""
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{bearer}{more}\r\n"


def quiet(asking: Asking, seconds: float = 10) -> int:
    """Let the client ask without an attack, and say what that costs; how many completions that were."""
    time.sleep(seconds)
    print(f"\nbefore: {asking.summary()}", flush=True)
    return len(asking.seconds)


def unharmed(asking: Asking, before: int) -> None:
    during = Asking(asking.seconds[before:], asking.failures)
    print(f"during: {during.summary()}", flush=True)
    assert during.seconds
    assert not asking.failures


@pytest.mark.parametrize(
    ("what", "connections"),
    [("nothing at all", 10000), ("a header that never ends", 10000), ("a body that never ends, without a key", 3000)],
)
def test_clients_that_only_hold_connections(target: Target, asking: Asking, what: str, connections: int) -> None:
    sent = {
        "nothing at all": "",
        "a header that never ends": request("GET", "/v1/models", more="X-Slow: 1\r\n")[:-2],
        "a body that never ends, without a key": request("POST", "/v1/x", more="Content-Length: 9999999\r\n") + "x",
    }[what]
    before = quiet(asking)
    found = attack(target, sent, connections, 15)
    unharmed(asking, before)
    assert found["opened"] > connections / 2
    if "header" in what:
        # the front proxy did not wait for the rest
        assert found["closed"] > connections / 2
    if "body" in what:
        assert found["answers"].get("401", 0) > connections / 2


def test_one_address_cannot_take_all_requests(target: Target, asking: Asking) -> None:
    before = quiet(asking)
    body = request("POST", "/v1/completions", target.cluster.api_key, "Content-Length: 9999999\r\n") + "x"
    found = attack(target, body, 1500, 15)
    unharmed(asking, before)
    assert found["answers"].get("429", 0) >= 1500 - 1024
    assert target.complete().status == 200


def test_a_flood_on_health_does_not_reach_the_watchdog(target: Target, asking: Asking) -> None:
    def spent() -> float:
        """Seconds of processor time of the watchdog's unit so far."""
        said = target.run(target.head, "systemctl show -P CPUUsageNSec sparkthor-watchdog")
        return int(said) / 1e9

    begun = spent()
    before = quiet(asking, 20)
    idle = spent() - begun
    flood = request("GET", "/health")
    begun = spent()
    found = attack(target, flood, 50, 20)
    during = spent() - begun
    unharmed(asking, before)
    count = found["answers"]["200"]
    print(
        f"watchdog: {idle:.2f} s of processor time in 20 s before, {during:.2f} s during {count} requests", flush=True
    )
    assert count > 1000
    # one that answers each of them itself takes some 0.5 ms for it
    assert during - idle < count * 0.0001


def test_health_is_not_believed_without_a_watchdog(target: Target) -> None:
    assert target.ask("/health").status == 200
    target.run(target.head, "systemctl kill --signal=SIGSTOP sparkthor-watchdog")
    try:
        target.until(lambda: target.ask("/health").status == 503, 60)
    finally:
        target.run(target.head, "systemctl kill --signal=SIGCONT sparkthor-watchdog")
    target.until(lambda: target.ask("/health").status == 200, 120)
    target.run(target.head, "systemctl stop sparkthor-watchdog")
    try:
        target.until(lambda: target.ask("/health").status == 503, 60)
    finally:
        target.run(target.head, "systemctl start sparkthor-watchdog")
    target.until(lambda: target.ask("/health").status == 200, 120)
    assert target.complete().status == 200


def test_both_headers_and_no_contradiction(target: Target) -> None:
    key = target.cluster.api_key
    for headers, status in (
        ({"Authorization": f"Bearer {key}"}, 200),
        ({"x-api-key": key}, 200),
        ({"x-api-key": key, "Authorization": f"Bearer {key}"}, 200),
        ({"x-api-key": key, "Authorization": f"Bearer {key}x"}, 401),
        ({"x-api-key": f"{key}x", "Authorization": f"Bearer {key}"}, 401),
        ({"x-api-key": key, "Authorization": "Basic eDp5"}, 401),
        ({"x-api-key": key.swapcase()}, 401),
        ({"x-api-key": f" {key} {key}"}, 401),
        ({}, 401),
    ):
        assert target.ask("/v1/models", headers=headers).status == status, sorted(headers)


@pytest.fixture
def named(target: Target) -> Iterator[dict[str, str]]:
    """Two keys beside the first one, which a later run takes away again."""
    keys = {"ci": "ci-key-0123456789abcdef", "slow": "slow-key-0123456789abcdef"}
    given = [{"name": "ci", "key": keys["ci"]}, {"name": "slow", "key": keys["slow"], "requests_per_minute": 3}]
    target.play("site.yml", *ROLE, vllm_serve_api_keys=given)
    yield keys
    target.play("site.yml", *ROLE)


def test_named_keys_come_and_go_without_a_restart(target: Target, named: dict[str, str]) -> None:
    running = target.invocations()
    begun = target.run(target.head, "date +%s").strip()
    assert target.ask("/v1/models?key=in-the-query", key=named["ci"]).status == 200
    assert [target.ask("/v1/models", key=named["slow"]).status for _number in range(5)] == [200, 200, 200, 429, 429]
    refused = target.ask("/v1/models", key=named["slow"])
    assert refused.headers["Retry-After"]
    assert refused.json()["error"]["type"] == "rate_limit_error"
    # a limit of one key is none of the others'
    assert target.ask("/v1/models", key=named["ci"]).status == 200
    assert target.ask("/v1/models", key="a-wrong-key-0123456789").status == 401

    def log() -> str:
        return target.run(target.head, f"journalctl -o cat --since=@{begun} -t sparkthor_front")

    target.until(lambda: " - GET /v1/models 401 " in log(), 30)
    lines = log()
    assert " ci GET /v1/models 200 " in lines
    assert " slow GET /v1/models 429 " in lines
    assert "/health" not in lines
    everything = target.run(target.head, f"journalctl -o cat --since=@{begun}")
    for secret in (*named.values(), "in-the-query", "a-wrong-key", target.cluster.api_key):
        assert secret not in everything

    target.play("site.yml", *ROLE, vllm_serve_api_keys=[{"name": "slow", "key": named["slow"]}])
    target.until(lambda: target.ask("/v1/models", key=named["ci"]).status == 401, 30)
    # without its limit now
    assert [target.ask("/v1/models", key=named["slow"]).status for _number in range(5)] == [200] * 5
    assert target.invocations() == running


def test_a_new_key_is_all_that_a_rotation_changes(target: Target) -> None:
    old, running = target.cluster.api_key, target.invocations()
    # which of the files there are depends on the host
    look = "cd / && sha256sum etc/sparkthor/*.* etc/sparkthor/front/nginx.conf etc/systemd/system/sparkthor* || true"
    files = {host: target.run(host, look) for host in target.hosts}
    # what else the inventory wants by now waits for site.yml
    outcome = target.play("playbooks/rotate_api_key.yml", vllm_serve_env={"SOME_SETTING": "1"})
    assert {host for host, count in outcome.changed.items() if count} == {target.head}
    assert target.cluster.api_key != old
    target.until(lambda: target.complete().status == 200, 30)
    assert target.ask("/v1/models", key=old).status == 401
    assert target.invocations() == running
    assert {host: target.run(host, look) for host in target.hosts} == files
    for host in target.hosts:
        assert target.run(host, f"grep -rlF {old} /etc /run/sparkthor /var/lib/sparkthor*", check=False) == ""
    assert set(target.play().changed.values()) == {0}


def test_vllm_logs_no_request(target: Target) -> None:
    assert target.complete().status == 200
    log = target.run(target.head, "journalctl -o cat -u sparkthor-vllm --since=-60s")
    assert "/metrics HTTP" not in log
    assert "/v1/completions HTTP" not in log


def test_tls_comes_with_a_fingerprint_and_without_a_restart(target: Target) -> None:
    running, address = target.invocations(), (target.cluster.addresses[target.head], 8000)
    try:
        outcome = target.play("site.yml", *ROLE, vllm_serve_tls="self_signed")
        [told] = set(re.findall(r"SHA-256 ([0-9A-F:]{95})", outcome.output))
        target.until(lambda: target.ask("/health").status == 400, 30)
        certificate = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(address))
        assert hashlib.sha256(certificate).digest().hex(":").upper() == told
        status = target.play("playbooks/status.yml", vllm_serve_tls="self_signed").output
        assert told in status
        assert f"https://{address[0]}:8000/v1" in status
        assert target.invocations() == running
    finally:
        target.play("site.yml", *ROLE)
    target.until(lambda: target.ask("/health").status == 200, 30)


def test_a_forged_health_of_another_host_takes_no_head_down(target: Target) -> None:
    """As the serving user of a worker, on the port that a head asks its peers on, with the worker's firewall away."""
    worker = target.hosts[1]
    # disabled, or the next start of any service starts it again
    target.run(worker, "systemctl disable --now sparkthor-firewall; rm -f /tmp/forged")
    try:
        target.run(
            worker,
            f"cat >/tmp/forger.py <<'END'\n{FORGER}END\nsystemd-run -u forger --uid=sparkthor python3 /tmp/forger.py",
        )
        target.until(lambda: "999" in target.run(worker, "curl -s http://127.0.0.1:8000/health", check=False), 30)
        target.run(worker, "rm -f /tmp/forged")
        # a head asks before it starts Ray, and the watchdog while nothing is served
        target.run(target.head, "systemctl restart --no-block sparkthor-ray")
        # vLLM ends first, and both start again on a machine that the whole cluster shares
        target.until(lambda: target.exists(worker, "/tmp/forged"), 400)
        target.serving()
        assert not target.exists(target.head, "/var/lib/sparkthor/superseded.json")
    finally:
        again = "systemctl stop forger; rm -f /tmp/forge*; systemctl enable --now sparkthor-firewall"
        target.run(worker, again, check=False)
