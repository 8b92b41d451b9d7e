# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a client with a key can do to others: bodies that are hard to read, many of them, and answers that lie.

Bodies are of the length that the front proxy takes. Processor time and memory are those of nginx itself, so that what
else runs on the machine does not count.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.nginx import test_front
from tests.integration.nginx.test_front import ANSWERS, KEY, LIMITED, Front, counting, running
from tests.unit.plugins.plugin_utils._plan.test_door import of_group
from tests.unit.servers import serving

MIB = 1 << 20
FORM = "multipart/form-data; boundary=x"
NAMED = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n'
JSON = "application/json"
#: seconds of nginx's processor, and MiB of memory, that one body may take; the bodies of 64 MiB are the most of it
CPU, MEMORY = 3.0, 300
#: questions before and during: three are above the p99
ASKED = 300


def filled(before: bytes, part: bytes, after: bytes, size: int) -> bytes:
    """A body of this size or a little less."""
    return before + part * ((size - len(before) - len(after)) // len(part)) + after


LAST = b'],"model":"mini"}'
HOSTILE = {
    "expression": (filled(b"--x\r\n", b'; name="model"\r\n', b"", MIB), FORM, 400),
    "parts": (filled(b"--x", b"\r\n\r\n\r\n--x", b"--\r\n", 16 * MIB), FORM, 400),
    "almost boundaries": (
        filled(b"--x\r\n", b"\r\n--", b"\r\n--x" + NAMED[3:] + b"mini\r\n--x--", 64 * MIB - 99),
        FORM,
        200,
    ),
    "long boundary": (
        filled(b"--" + b"-" * 60, b"-", b"", 64 * MIB),
        f"multipart/form-data; boundary={'-' * 60}x",
        400,
    ),
    "arrays": (filled(b'{"a":[0', b",[]", LAST, 64 * MIB), JSON, 413),
    "objects": (filled(b'{"a":[0', b',{"":0}', LAST, 64 * MIB), JSON, 413),
    "keys": (filled(b'{"a":[0]', b',"model":"x"', b',"model":"mini"}', 64 * MIB), JSON, 413),
    "escaped quotes": (filled(b'{"a":["', b'\\"', b'"' + LAST, 64 * MIB), JSON, 413),
    "backslashes": (filled(b'{"a":["', b"\\\\", b'"' + LAST, 64 * MIB), JSON, 413),
    "one string": (filled(b'{"a":["', b"model", b'"' + LAST, 64 * MIB), JSON, 200),
    "spaces": (filled(b'{"a":[1', b" ", LAST, 64 * MIB), JSON, 200),
    "numbers": (filled(b'{"a":[1', b",1", LAST, 64 * MIB), JSON, 200),
    "colon far away": (filled(b'{"model"', b" ", b':"mini"}', 64 * MIB), JSON, 413),
    "levels": (b'{"a":' + b"[" * MIB + b"]" * MIB + b',"model":"mini"}', JSON, 400),
}


class Nginx:
    """The one process of nginx that this test started."""

    def __init__(self) -> None:
        children = [
            Path("/proc", number)
            for task in Path("/proc/self/task").iterdir()
            for number in (task / "children").read_text().split()
        ]
        [self._proc] = [path for path in children if (path / "comm").read_text().strip() == "nginx"]

    def cpu(self) -> float:
        words = (self._proc / "stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """MiB, the most so far."""
        lines = (self._proc / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


def post(found: Front, body: bytes | Iterator[bytes], kind: str = JSON, key: str = KEY, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=300)
    named = {"Authorization": f"Bearer {key}", "Content-Type": kind}
    try:
        connection.request("POST", "/v1/whole", body, {**named, **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def healthy(found: Front) -> float:
    """Seconds until an answer about health; nobody watches here, so that it is 503."""
    begun = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=300)
    connection.request("GET", "/health")
    assert connection.getresponse().status == 503
    connection.close()
    return time.monotonic() - begun


@pytest.mark.parametrize("name", HOSTILE)
def test_a_body_takes_little_time_and_memory(tmp_path: Path, variables: dict[str, Any], name: str) -> None:
    body, kind, status = HOSTILE[name]
    with running(tmp_path, of_group(variables, "c")) as found:
        nginx = Nginx()
        memory, cpu = nginx.memory(), nginx.cpu()
        assert post(found, body, kind) == status
        assert nginx.cpu() - cpu < CPU
        assert nginx.memory() - memory < MEMORY


def test_others_are_answered_while_a_body_is_read(
    tmp_path: Path, variables: dict[str, Any], record_property: Any
) -> None:
    body, _kind, status = HOSTILE["arrays"]
    with running(tmp_path, of_group(variables, "c"), requests_per_minute=0) as found:

        def completed() -> float:
            begun = time.monotonic()
            assert found.ask("/v1/whole")[0] == 200
            return time.monotonic() - begun

        times = {"before": [(healthy(found), completed()) for _number in range(ASKED)], "during": []}
        enough = threading.Event()
        attacks: list[int] = []

        def attack() -> None:
            while not enough.is_set():
                attacks.append(post(found, body, key=LIMITED))

        thread = threading.Thread(target=attack)
        thread.start()
        until = time.monotonic() + 300
        while len(times["during"]) < ASKED and time.monotonic() < until:
            times["during"].append((healthy(found), completed()))
        enough.set()
        thread.join(300)
        # one body after the other, each read to where it is refused
        assert set(attacks) == {status}
        assert len(times["during"]) == ASKED
        for name, own in times.items():
            worst = [round(1000 * sorted(values)[int(0.99 * len(own)) - 1]) for values in zip(*own, strict=True)]
            record_property(name, f"p99 of health and completions: {worst} ms, of {len(own)}")
        record_property("bodies", len(attacks))


TEXTS = [
    b'{"model":"mini"}',
    b'\xef\xbb\xbf{"model": "mini"}',
    b'{"messages":[{"model":"a","content":"\\"model\\":\\"b\\""}],"model" :\n"mini"}',
    b'{"model":"nobody","model":"mini"}',
    b'{"model":"mini","model":"nobody"}',
    b'{"mod\\u0065l":"m\\u0069ni"}',
    b'{"model":"mini","metadata":{"model":"nobody"},"tools":[{"model":"nobody"}]}',
    b'{"metadata":{"model":"mini"}}',
    b'{"a":"\\\\","model":"mini"}',
    b'{"a":"\\\\\\"","model":"mini"}',
    b'{"x":"model","model":"mini"}',
    b'{"model":5}',
    b'{"model":"mini","model":null}',
    b'{"model":{"model":"mini"}}',
    b'{"__proto__":{},"constructor":1,"model":"mini"}',
    b'{"a":NaN,"b":-Infinity,"model":"mini"}',
    b'{"model":"nobody","mod\\u0065l":"mini"}',
    b'{"mod\\u0065l":"mini","model":"nobody"}',
    b'{"Model":"mini"}',
    b'["model","mini"]',
    b'"model"',
    b"",
    b'{"model":"mini"',
    b'{"model":"mini"}{"model":"mini"}',
    b'{"a":' + b"[" * 200 + b"]" * 200 + b',"model":"mini"}',
    b'{"model":"' + b"a" * 5000 + b'"}',
    b'{"padding":"' + b"\\\\" * 131072 + b'","model":"mini"}',
    b'{"padding":"' + b"a" * 262131 + b'\\"","model":"mini"}',
    b'{"padding":"' + b"a" * 262130 + b'","model":"mini"}',
]


@pytest.mark.parametrize("body", TEXTS, ids=range(len(TEXTS)))
def test_the_door_reads_the_model_as_the_engine_does(tmp_path: Path, variables: dict[str, Any], body: bytes) -> None:
    try:
        asked = json.loads(body)
        model = asked.get("model") if isinstance(asked, dict) else None
    except ValueError:
        model = None
    expected = {"mini": 200}.get(model, 404) if isinstance(model, str) else 400
    with running(tmp_path, of_group(variables, "c")) as found:
        assert post(found, body) == expected


def in_units(text: str) -> bytes:
    """ASCII as characters of two bytes each, so that its bytes stand in a text of UTF-16."""
    return (text + " " * (len(text) % 2)).encode()


OTHERS = {
    "UTF-16": '{"model":"mini"}'.encode("utf-16"),
    "UTF-16 without a mark": '{"model":"mini"}'.encode("utf-16-le"),
    "UTF-16 the other way": '{"model":"mini"}'.encode("utf-16-be"),
    "UTF-32": '{"model":"mini"}'.encode("utf-32"),
    "bytes in units": '{"model":"nobody","x":"'.encode("utf-16-le")
    + in_units('","model":"mini","y":"')
    + '"}'.encode("utf-16-le"),
    "bytes in units first": in_units('{"model":"mini"}') + '{"model":"nobody"}'.encode("utf-16-le"),
    "a mark of UTF-16": b'\xff\xfe{"model":"mini"}',
    "a name that ends early": b'{"model\x00":"nobody","model\x00":"mini"}',
    "no UTF-8": b'{"mod\xc5\xa5l":"mini","model\xff":"mini"}',
    "a letter of two names": '{"ｍodel":"mini"}'.encode(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_body_that_others_may_read_otherwise_is_for_no_model(
    tmp_path: Path, variables: dict[str, Any], name: str
) -> None:
    """The engine's reader knows more encodings than the door: what the door cannot read goes nowhere."""
    with running(tmp_path, of_group(variables, "c")) as found:
        for kind in (JSON, "application/json; charset=utf-16"):
            assert post(found, OTHERS[name], kind) == 400


def part(name: str, value: str, more: str = "") -> str:
    return f'--x\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{value}\r\n'


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (part("file", "model", '; filename="a"') + part("model", "mini") + "--x--\r\n", FORM, 200),
        (part("model", "nobody") + part("model", "mini") + "--x--\r\n", FORM, 200),
        (part("model", "mini") + part("model", "nobody") + "--x--\r\n", FORM, 404),
        # only in what is no part of that name
        (part("file", 'x; name="model"\r\n\r\nmini') + "--x--\r\n", FORM, 400),
        (part('a\\"; name=', "mini", '; x="; name="model"') + "--x--\r\n", FORM, 400),
        (part("model", "mini", '; filename="a"') + "--x--\r\n", FORM, 400),
        ("--x--\r\n" + part("model", "mini"), FORM, 400),
        (part("model", "mini") + "--x--\r\n", 'Multipart/Form-Data; charset=a; boundary="x"', 200),
        (part("model", "mini") + "--x--\r\n", "multipart/form-data", 400),
        (part("model", "mini") + "--x--\r\n", "multipart/form-data; boundary=y", 400),
        (part("model", "mini"), FORM, 400),
        ('{"model":"mini"}', FORM, 400),
        (part("model", "mini") + "--x--\r\n", JSON, 400),
        # vLLM reads JSON whatever a client says it is
        ('{"model":"mini"}', "text/plain", 200),
    ],
)
def test_the_door_reads_a_form_by_its_parts(
    tmp_path: Path, variables: dict[str, Any], body: str, kind: str, status: int
) -> None:
    with running(tmp_path, of_group(variables, "c")) as found:
        assert post(found, body.encode(), kind) == status


def test_a_compressed_body_is_refused_and_one_without_length_is_read(tmp_path: Path, variables: dict[str, Any]) -> None:
    body = b'{"prompt":"x","model":"mini"}'
    with running(tmp_path, of_group(variables, "c")) as found:
        assert post(found, body, **{"Content-Encoding": "gzip"}) == 415
        assert post(found, iter([body[:5], body[5:]])) == 200


@contextlib.contextmanager
def sending(found: Front, key: str, length: int) -> Iterator[socket.socket]:
    """A request whose body has only begun."""
    with socket.create_connection(("127.0.0.1", found.port), 60) as client:
        lines = ("POST /v1/whole HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", f"Content-Length: {length}")
        client.sendall("\r\n".join([*lines, "", '{"']).encode())
        yield client


@pytest.mark.parametrize("has_door", [False, True])
def test_a_key_has_half_of_the_room_for_large_bodies(tmp_path: Path, variables: dict[str, Any], has_door: bool) -> None:
    given = of_group(variables, "c") if has_door else variables
    large = filled(b'{"model":"mini","a":"', b"a", b'"}', 11_000_000)
    with running(tmp_path, given, requests_per_minute=0) as found, contextlib.ExitStack() as stack:
        for _number in range(2):
            stack.enter_context(sending(found, KEY, 20_000_000))
        # of the same size, or of a size that nobody knows
        until = time.monotonic() + 60
        while post(found, large) != 429:
            assert time.monotonic() < until
        assert post(found, iter([b'{"model":"mini"}'])) == 429
        # smaller ones go on, and so do those of another key
        assert found.ask("/v1/whole")[0] == 200
        assert post(found, large, key=LIMITED) == 200


SCHEMA = '{"usage":{"prompt_tokens":1,"completion_tokens":1,"input_tokens":1,"output_tokens":1}}'
DEEP = "[" * 700 + "]" * 700
ECHO = f'"tools":[{{"parameters":{SCHEMA}}}],"text":{{"usage":{SCHEMA}}},"deep":{DEEP},"metadata":{SCHEMA}'
SAID = '"usage":{"input_tokens":70,"input_tokens_details":{"cached_tokens":1},"output_tokens":80,"total_tokens":150}'
LIES = {
    "whole": [f'{{"id":"r",{SAID},"output":[{{"content":{json.dumps(SAID)}}}],{ECHO}}}'.encode()],
    "spaced": [b'{"usage" : {"prompt_tokens": 70 , "completion_tokens"\n:80}, "x": ' + SCHEMA.encode() + b"}"],
    "stream": [
        f'event: response.created\ndata: {{"type":"response.created","response":{{"usage":null,{ECHO}}}}}\n\n'.encode(),
        b'data: {"type":"delta","delta":"\\"usage\\":{\\"input_tokens\\":1"}\n\n' * 3,
        f'data: {{"type":"response.completed","response":{{"id":"r",{SAID},{ECHO}}},"sequence_number":9}}\n\n'.encode(),
        f'data: {{"type":"other","item":{SCHEMA},"choices":[{SCHEMA}]}}\n\n'.encode(),
    ],
}


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("name", LIES)
def test_what_an_answer_repeats_of_its_request_is_no_account(
    tmp_path: Path, variables: dict[str, Any], monkeypatch: pytest.MonkeyPatch, name: str, torn: bool
) -> None:
    parts = LIES[name]
    if torn:
        text = b"".join(parts)
        parts = [text[at : at + 97] for at in range(0, len(text), 97)]
    monkeypatch.setitem(ANSWERS, "/v1/responses", parts)
    with running(tmp_path, {**variables, "vllm_serve_front_tokens": True}) as found:
        assert found.ask("/v1/responses") == (200, b"".join(parts))
        labels = 'key="default",model="mine"'
        found.says(
            f"sparkthor_front_prompt_tokens_total{{{labels}}} 70",
            f"sparkthor_front_completion_tokens_total{{{labels}}} 80",
        )


def used_by(tmp_path: Path) -> dict[str, Any]:
    """What the limited key used, as soon as a request of it was counted."""
    until = time.monotonic() + 60
    while True:
        used = json.loads((tmp_path / "run-tokens/usage.json").read_text()).get("limited", {})
        if used.get("month") or used.get("unseen"):
            return used
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("has_door", [False, True])
@pytest.mark.parametrize(("path", "begins"), [("/v1/long", True), ("/v1/late", False)])
def test_an_answer_that_its_client_breaks_off_counts_by_an_estimate(
    tmp_path: Path, variables: dict[str, Any], has_door: bool, path: str, begins: bool
) -> None:
    given = of_group(variables, "c") if has_door else variables
    with running(tmp_path, given, tokens_per_month=1000) as found, counting(tmp_path):
        body = json.dumps({"model": "mini", "prompt": "x" * 400})
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", found.port, timeout=60)) as connection:
            connection.request("POST", path, body, {"Authorization": f"Bearer {LIMITED}"})
            if begins:
                assert len(connection.getresponse().read(len(test_front.EVENT) * 5)) > 0
            else:
                time.sleep(0.3)
        used = used_by(tmp_path)
        # a quarter of the bytes of the request, and what had come of the answer
        assert 100 + 5 * begins < used["month"] < 1000
        assert used["unseen"] == 1


class Watchdog(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"asked": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return ""

    def log_message(self, *_arguments: Any) -> None:
        pass


def proof(found: Front, source: str) -> int:
    """The answer to a question for a proof that comes from this address of loopback."""
    connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=60, source_address=(source, 0))
    connection.request("GET", f"/health?nonce={'a' * 32}")
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize("has_door", [False, True])
def test_who_asks_for_proofs_all_the_time_takes_none_from_a_peer(
    tmp_path: Path, variables: dict[str, Any], has_door: bool
) -> None:
    given = of_group(variables, "c") if has_door else variables
    [first, *_others] = given["sparkthor_fabric"]
    fabric = {**given["sparkthor_fabric"]}
    fabric[first] = {**fabric[first], "management_address": "127.0.0.9"}
    socket_path = tmp_path / "run/watchdog/health.sock"
    socket_path.parent.mkdir(parents=True)
    watchdog = socketserver.ThreadingUnixStreamServer(str(socket_path), Watchdog)
    with running(tmp_path, {**given, "sparkthor_fabric": fabric}) as found, serving(watchdog):
        assert 429 in [proof(found, "127.0.0.1") for _number in range(60)]
        # a former head that is no peer any more, and one of this inventory
        assert proof(found, "127.0.0.2") == 200
        flood = [proof(found, f"127.0.{number // 10}.{number % 10 + 100}") for number in range(600)]
        assert 429 in flood
        assert proof(found, "127.0.0.9") == 200
