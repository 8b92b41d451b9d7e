# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import http.server
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    former_head,
)

from tests.unit import trickle
from tests.unit.servers import serving

PEERS = {"a": "192.168.1.11", "b": "192.168.1.12", "c": "192.168.1.13"}


def cluster(**changes: Any) -> dict[str, Any]:
    own = {"cluster": "one", "generation": 1, "host": "a", "head": "a", "peers": PEERS, "api_port": 8000, "tls": False}
    return {**own, **changes}


TOKEN = "token-0123456789"
NONCE = "0" * 32


def proof(nonce: str, name: str, generation: int, of: str = "one", token: str = TOKEN) -> str:
    return former_head.Identity(name, of, generation, token).proof(nonce)


def token() -> str:
    return TOKEN


def says(**answers: Any) -> former_head.Ask:
    """What hosts answer that know the cluster's token."""

    def ask(address: str, nonce: str) -> Any:
        name = next(name for name, one in PEERS.items() if one == address)
        answer = answers.get(name)
        if answer is None or not isinstance(answer.get("generation"), int):
            return answer
        of = str(answer.get("cluster", "one"))
        return {"proof": proof(nonce, name, answer["generation"], of), **answer}

    return ask


@pytest.mark.parametrize(
    ("mine", "answers", "found"),
    [
        (1, {}, None),
        (1, {"b": {"status": "serving", "generation": 2}}, ("b", 2)),
        (1, {"b": {"generation": 2}, "c": {"generation": 3}}, ("c", 3)),
        (2, {"b": {"generation": 2}}, None),
        # the lower generation never wins: this one was declared last, that one is the former head
        (3, {"b": {"generation": 2}}, None),
        # somebody else's server on that port
        (1, {"b": {"status": "ok"}, "c": {"generation": "9"}}, None),
        # a head of another cluster, although both know one token
        (1, {"b": {"generation": 2, "cluster": "two"}}, None),
        (1, {"b": {"generation": 1001}}, ("b", 1001)),
        (1, {"b": {"generation": 1002}}, None),
        (1, {"b": {"generation": 10**400}}, None),
    ],
)
def test_only_a_head_that_was_declared_later_counts(mine: int, answers: dict, found: tuple | None) -> None:
    successor = former_head.find(cluster(generation=mine), says(**answers), token)
    assert (successor and (successor.name, successor.generation)) == found


@pytest.mark.parametrize(
    "answer",
    [
        {"generation": 9},
        {"generation": 9, "proof": None},
        {"generation": 9, "proof": "é"},
        {"generation": 9, "proof": ("b", 9, "one", "another-token-012")},
        # of a former generation, of another host
        {"generation": 9, "proof": ("b", 2)},
        {"generation": 9, "proof": ("c", 9)},
        # of this host and generation, as somebody has heard it earlier
        {"generation": 9, "proof": proof(NONCE, "b", 9)},
    ],
)
def test_whoever_does_not_know_the_token_takes_no_head_down(answer: dict[str, Any]) -> None:
    def ask(address: str, nonce: str) -> Any:
        if address != PEERS["b"]:
            return None
        words = answer.get("proof")
        return {**answer, "proof": proof(nonce, *words)} if isinstance(words, tuple) else answer

    assert former_head.find(cluster(), ask, token) is None
    assert former_head.find(cluster(), says(b={"generation": 9}), token) == former_head.Successor("b", 9, "one")
    # and where this host cannot read it, nobody is believed
    assert former_head.find(cluster(), says(b={"generation": 9, "proof": ""}), str) is None


def test_a_head_proves_its_own_generation(tmp_path: Path) -> None:
    path, credentials = tmp_path / "cluster.json", tmp_path / "credentials"
    path.write_text(json.dumps(cluster(generation=4)))
    identity = former_head.Identity.read(str(path), token)
    assert (identity.generation, identity.proof(NONCE)) == (4, proof(NONCE, "a", 4))
    assert identity.proof(NONCE) != identity.proof("1" * 32)
    assert identity.proofs(NONCE) == {"proof": identity.proof(NONCE)}
    path.write_text(json.dumps(cluster(generation=4, machines={"a": "m1"})))
    both = former_head.Identity.read(str(path), token).proofs(NONCE)
    assert both == {"proof": identity.proof(NONCE), "machine_proof": proof(NONCE, "m1", 4)}
    assert identity.proofs("") == {}
    assert TOKEN not in repr(identity)
    for no_question in ("", "x" * 32, NONCE + "0", "nonce=" + NONCE):
        assert identity.proof(no_question) == ""
    assert former_head.Identity.read(str(path), str).proof(NONCE) == ""
    credentials.mkdir()
    (credentials / "ray_token").write_text(f"{TOKEN}\n")
    assert former_head.read_former_token({"CREDENTIALS_DIRECTORY": str(credentials)}) == TOKEN


def test_a_successor_with_another_name_is_known_by_its_machine() -> None:
    """It was renamed while this host was away: by names alone there would be two heads."""

    def ask(address: str, nonce: str) -> Any:
        if address != PEERS["b"]:
            return None
        return {"generation": 9, **former_head.Identity("new-name", "one", 9, TOKEN, "m2").proofs(nonce)}

    machines = {"a": "m1", "b": "m2", "c": "m3"}
    found = former_head.find(cluster(machines=machines), ask, token)
    assert found == former_head.Successor("b", 9, "one")
    assert found.counts(cluster(machines=machines))
    # another machine at that address proves nothing
    assert former_head.find(cluster(machines={**machines, "b": "m4"}), ask, token) is None
    assert former_head.find(cluster(), ask, token) is None


def test_a_worker_has_no_successor() -> None:
    assert former_head.find(cluster(host="b"), says(c={"generation": 9})) is None


def test_what_was_found_is_remembered_until_this_host_is_declared_again(tmp_path: Path) -> None:
    marker = str(tmp_path / "superseded.json")
    assert former_head.known(cluster(), marker) is None
    former_head.note(former_head.Successor("b", 4, "one"), marker)
    found = former_head.known(cluster(), marker)
    assert found == former_head.Successor("b", 4, "one")
    assert "b was declared head of this cluster later (generation 4)" in found.text
    assert former_head.known(cluster(generation=5), marker) is None
    # the cluster was split: that host is no peer any more
    assert former_head.known(cluster(peers={"a": PEERS["a"], "c": PEERS["c"]}), marker) is None
    assert former_head.known(cluster(cluster="two"), marker) is None
    Path(marker).write_text("{")
    assert former_head.known(cluster(), marker) is None


def test_a_former_head_stays_down_says_why_once_and_starts_when_a_play_wants_it(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(cluster()))
    answers: dict[str, Any] = {"b": {"generation": 2}}
    said: list[str] = []
    slept: list[float] = []

    def ask(address: str, nonce: str) -> Any:
        # what is answered now, not what was when the test began
        return says(**answers)(address, nonce)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            answers.clear()  # the new head is away for a while: that changes nothing
        if len(slept) == 4:
            path.write_text(json.dumps(cluster(generation=3)))

    former_head.stay_down(
        str(path),
        str(tmp_path / "marker"),
        said.append,
        ask,
        sleep,
        lambda: 1000.0,
        token,
    )
    assert len(slept) == 4
    assert len(said) == 1
    assert "stays down" in said[0]


@pytest.mark.parametrize("content", ["", json.dumps(cluster(host="c"))], ids=["never set up", "a worker"])
def test_nobody_else_is_held_up(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    former_head.stay_down(str(tmp_path / "cluster.json"), str(tmp_path / "marker"), ask=lambda address, nonce: 1 / 0)


def test_the_watchdog_of_a_former_head_takes_ray_down_once(tmp_path: Path) -> None:
    path, marker = tmp_path / "cluster.json", tmp_path / "superseded.json"
    path.write_text(json.dumps(cluster()))
    moved: list[list[str]] = []
    reason = former_head.former_head(moved.append, str(path), str(marker), says(b={"generation": 2}), token)
    assert reason(False) == ""
    assert moved == []
    assert "b was declared head" in reason(True)
    assert "b was declared head" in reason(False)
    assert "b was declared head" in reason(True)
    assert moved == [["systemctl", "--no-block", "try-restart", "sparkthor-ray.service"]]
    assert json.loads(marker.read_text()) == {"name": "b", "generation": 2, "cluster": "one"}


def test_a_former_head_gives_way_although_its_disk_takes_no_note(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(cluster()))
    moved: list[list[str]] = []

    def full(_path: str, _text: str) -> None:
        raise OSError(28, "No space left on device")

    marker = str(tmp_path / "superseded.json")
    reason = former_head.former_head(moved.append, str(path), marker, says(b={"generation": 2}), token, full)
    assert "b was declared head" in reason(True)
    assert "b was declared head" in reason(False)
    assert len(moved) == 1
    # a play gives this host its place again
    path.write_text(json.dumps(cluster(generation=3)))
    assert reason(False) == ""


@pytest.fixture
def front() -> Iterator[tuple[str, int, dict]]:
    said: dict[str, Any] = {"status": 503, "body": b'{"status": "loading", "generation": 2}', "asked": []}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said["asked"].append(self.path)
            self.send_response(said["status"])
            self.end_headers()
            self.wfile.write(said["body"])

        def log_message(self, *words: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    with serving(server):
        yield "127.0.0.1", server.server_address[1], said


def test_a_head_that_loads_is_a_head(front: tuple[str, int, dict]) -> None:
    address, port, said = front
    assert former_head.health(address, port, False, NONCE) == {"status": "loading", "generation": 2}
    assert said["asked"] == [f"/health?nonce={NONCE}"]
    said["body"] = b"<html>"
    assert former_head.health(address, port, False, NONCE) is None
    assert former_head.health(address, port, True, NONCE) is None
    assert former_head.health("127.0.0.1", 1, False, NONCE) is None


@pytest.mark.parametrize(
    "answer", ["[" * 60000, '{"a":' * 10000 + "1" + "}" * 10000, '{"generation": NaN}', "{" + " " * 70000]
)
def test_a_strange_answer_ends_nothing(answer: str) -> None:
    """As of a host that was taken over, which the former head asks before Ray starts."""
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n"
    with trickle.server(lambda sock: sock.sendall((head + answer).encode())) as port:
        assert former_head.health("127.0.0.1", port, False, NONCE) is None


def test_an_answer_byte_by_byte_does_not_keep_ray_from_its_start() -> None:
    with trickle.server(trickle.slowly(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", b"{")) as port:
        began = time.monotonic()
        assert former_head.health("127.0.0.1", port, False, NONCE, 0.5) is None
        assert time.monotonic() - began < 20
