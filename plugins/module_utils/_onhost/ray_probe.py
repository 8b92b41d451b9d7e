# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""Questions to Ray: its GCS, its dashboard, its agents, and the engine's own client.

Every question has a time limit, every answer is a :class:`Probe`, and none raises for an answer it does not like.

Ray's own commands are not used: they take three seconds, hang for ever when the GCS is gone, and call a cluster
healthy whose workers are all dead.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import pwd
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from .._lib import foreign, peer
from .._lib.command import run_alone
from .._lib.deadline import Deadline
from .ray_config import TLS_FILES, Config, read_token

ANSWER_LIMIT = 32 * 1024 * 1024
#: how a probe ended
OK = "ok"
REFUSED = "refused"  # the host is there, nobody listens
SILENT = "silent"  # no answer at all: power, cable or firewall
UNREACHABLE = "unreachable"  # the kernel knows no way
SLOW = "slow"  # connected, then nothing in time
UNAUTHORIZED = "unauthorized"
ERROR = "error"
ABSENT = "absent"  # what should ask is not there
SKIPPED = "skipped"


@dataclass(frozen=True)
class RayProbe:
    name: str
    status: str
    latency_ms: float = 0.0
    detail: str = ""
    data: Any = field(default=None, compare=False)

    @property
    def ok(self) -> bool:
        return self.status == OK

    def public(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ok": self.ok,
            "status": self.status,
            "latency_ms": self.latency_ms,
            "detail": self.detail,
        }


def _since(start: float) -> float:
    return round((time.monotonic() - start) * 1000, 1)


def _network_status(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return REFUSED
    if isinstance(error, TimeoutError):
        return SILENT
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return ERROR
    return UNREACHABLE


def probe_tcp(name: str, address: str, port: int, timeout: float) -> RayProbe:
    start = time.monotonic()
    try:
        socket.create_connection((address, port), timeout=timeout).close()
    except OSError as error:
        return RayProbe(name, _network_status(error), _since(start), f"{address}:{port}: {error}")
    return RayProbe(name, OK, _since(start))


def probe_http(name: str, url: str, timeout: float, token: str = "") -> RayProbe:
    """GET under one deadline for everything; redirects and proxies are nobody's business here."""
    start = time.monotonic()
    parts = urlsplit(url)
    deadline = Deadline(timeout)
    try:
        connection = peer.tcp(parts.hostname or "", parts.port or 80)(deadline)
    except OSError as error:
        return RayProbe(name, _network_status(error), _since(start), f"{url}: {error}")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = peer.talk(connection, deadline, "GET", path, headers=headers, most=ANSWER_LIMIT)
    except TimeoutError:
        return RayProbe(name, SLOW, _since(start), f"{url}: connected, but no answer within {timeout:g} s")
    except (OSError, http.client.HTTPException) as error:
        return RayProbe(name, ERROR, _since(start), f"{url}: {type(error).__name__}: {error}")
    text = answer.body.decode("utf-8", "replace")
    if answer.status in (401, 403):
        return RayProbe(name, UNAUTHORIZED, _since(start), f"{url}: {answer.status} {text.strip()[:200]}")
    if answer.status != 200:
        return RayProbe(name, ERROR, _since(start), f"{url}: {answer.status} {text.strip()[:300]}")
    return RayProbe(name, OK, _since(start), data=text)


#: Runs in the engine's Python (or in the engine's container): Ray's own client knows the wire format.  It asks the GCS
#: directly, so it works on every node and without a dashboard, starts no driver and leaves no job behind.
ENGINE_PROBE = """
import json, signal, sys
answer = {}
try:
    import ray
    from google.protobuf.json_format import MessageToDict
    from ray._raylet import GcsClient
    from ray.core.generated import autoscaler_pb2
    limit = float(sys.argv[2])
    # in a container it outlives whoever asked and gave up
    signal.alarm(int(limit) + 2)
    answer["ray_version"] = ray.__version__
    client = GcsClient(address=sys.argv[1])
    rows = client.get_all_node_info(timeout=limit)
    rows = rows.values() if hasattr(rows, "values") else rows
    answer["nodes"] = [
        dict(MessageToDict(row, preserving_proto_field_name=True), node_id=row.node_id.hex()) for row in rows
    ]
    reply = autoscaler_pb2.GetClusterResourceStateReply()
    reply.ParseFromString(client.get_cluster_resource_state(timeout_s=max(1, int(limit))))
    answer["state"] = MessageToDict(reply.cluster_resource_state, preserving_proto_field_name=True)
except BaseException as error:
    answer["error"] = "%s: %s" % (type(error).__name__, error)
sys.stdout.write("\\n" + json.dumps(answer) + "\\n")
sys.stdout.flush()
"""


def asking_environment(config: Config, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    env = dict(os.environ if environment is None else environment)
    env.update(config.environment)
    if config.auth:
        env["RAY_AUTH_MODE"] = "token"
        env["RAY_AUTH_TOKEN_PATH"] = env.get("RAY_AUTH_TOKEN_PATH") or config.token_path
    else:
        env["RAY_AUTH_MODE"] = "disabled"
        env.pop("RAY_AUTH_TOKEN_PATH", None)
    if config.tls:
        env["RAY_USE_TLS"] = "1"
        env.update({name: env.get(name) or path for name, path in TLS_FILES.items()})
    env.setdefault("HOME", "/var/lib/sparkthor")
    # Without these the client outlives every deadline when the GCS is gone
    env["RAY_gcs_rpc_server_connect_timeout_s"] = "2"
    env["RAY_gcs_rpc_server_reconnect_timeout_s"] = "2"
    return env


def _account(config: Config) -> Any:
    """The account to run the engine as, or nothing where we are not root; a container has a user of its own."""
    if os.geteuid() != 0 or config.in_container:
        return None
    try:
        return pwd.getpwnam(config.user)
    except KeyError:
        # root does not run what the serving user may have prepared
        raise OSError(errno.EPERM, f"there is no user {config.user} to run it as; run the engine role") from None


def _handle(text: str, uid: int) -> int:
    """A secret in anonymous memory that another user may read: root's file is not opened to anybody for it."""
    handle = os.memfd_create("ray_secret")
    os.write(handle, text.encode())
    os.fchown(handle, uid, -1)
    os.fchmod(handle, 0o400)
    os.set_inheritable(handle, True)
    return handle


def _secrets(config: Config, env: Mapping[str, str]) -> dict[str, str]:
    """What the engine reads from files that only root may read, by the variables that name the files."""
    found = {"RAY_AUTH_TOKEN_PATH": read_token(config, env)}
    for name in TLS_FILES if config.tls else ():
        with contextlib.suppress(OSError), open(env[name], encoding="utf-8") as stream:
            found[name] = stream.read()
    return {name: text for name, text in found.items() if text}


def run_engine(
    config: Config, arguments: Sequence[str], program: str, timeout: float, environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run a program in the engine's Python: ``(status, stdout, stderr)``.

    A timeout kills the whole group and gives status -1.
    """
    env = asking_environment(config, environment)
    account = _account(config)
    handles: list[int] = []
    options: dict[str, Any] = {}
    if account is not None:
        options = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        env["HOME"] = account.pw_dir
        for name, text in _secrets(config, env).items():
            handles.append(_handle(text, account.pw_uid))
            env[name] = f"/proc/self/fd/{handles[-1]}"
    try:
        return run_alone([*config.engine, "-", *arguments], timeout, program, env, options, handles)
    except subprocess.TimeoutExpired:
        return -1, "", ""
    finally:
        for handle in handles:
            os.close(handle)


def probe_engine(config: Config, timeout: float, environment: Mapping[str, str] | None = None) -> RayProbe:
    start = time.monotonic()
    arguments = [f"{config.head_address}:{config.gcs_port}", f"{max(1.0, timeout - 1):g}"]
    try:
        status, out, err = run_engine(config, arguments, ENGINE_PROBE, timeout, environment)
    except (OSError, subprocess.SubprocessError) as error:
        words = getattr(error, "strerror", None) or error
        return RayProbe("engine", ABSENT, _since(start), f"{config.engine[0]}: {words}")
    return read_engine_output(status, out, err, timeout, _since(start))


def read_engine_output(status: int, out: str, err: str, timeout: float, latency: float) -> RayProbe:
    if status == -1:
        return RayProbe("engine", SLOW, latency, f"no answer from the GCS within {timeout:g} s")
    answer = None
    for line in reversed(out.splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                answer = foreign.parse_object(line, ANSWER_LIMIT)
            break
    if answer is None:
        words = _engine_words(err) or f"exit status {status} without a word"
        missing_token = "RAY_AUTH_TOKEN_PATH" in err and "cannot be opened or is empty" in err
        return RayProbe("engine", UNAUTHORIZED if missing_token else ERROR, latency, words)
    if "error" in answer:
        words = " ".join(str(answer["error"]).split())
        if words.startswith("AuthenticationError") or "Unauthenticated" in words or "InvalidAuthToken" in words:
            return RayProbe("engine", UNAUTHORIZED, latency, words[:300])
        if words.startswith(("ModuleNotFoundError", "ImportError")):
            return RayProbe("engine", ABSENT, latency, words[:300])
        return RayProbe("engine", ERROR, latency, words[:300])
    return RayProbe("engine", OK, latency, data=answer)


def _engine_words(err: str) -> str:
    """The line of a crash that says why; Ray prints a page of addresses after it."""
    for line in err.splitlines():
        if "Check failed:" in line:
            return " ".join(line.split("Check failed:", 1)[1].split())[:300]
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
