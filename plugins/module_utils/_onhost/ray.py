# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# also runs on the host without Ansible, as the gate:
# pylint: disable=ansible-bad-function
"""The health of a Ray cluster as data, and the plan of one Ray node.

Used as a module_util on the controller and in modules, and installed as a plain file on every host, where the gate
and the watchdog import it.  So: standard library only, no import of a sibling.

Three layers.  Probes ask (every one under a timeout, every one returns a :class:`Probe`, none raises for an answer it
does not like).  Readers turn the answers of Ray's dashboard and of its GCS client into rows of one shape.
:func:`assess` is pure and judges: rows and probes in, ``healthy`` and ``problems`` out.

Ray's own commands are not used: they take three seconds, hang for ever when the GCS is gone, and call a cluster
healthy whose workers are all dead.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import http.client
import json
import os
import pwd
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlsplit

CONFIG_PATH = "/etc/sparkthor/ray.json"
TOKEN_PATH = "/etc/sparkthor/secrets/ray_token"
DEFAULT_ENGINE = ("/opt/sparkthor/venv/bin/python",)
#: older releases run jobs for anybody who reaches the dashboard and know no token
MINIMUM_RAY = (2, 54)
ANSWER_LIMIT = 32 * 1024 * 1024


class RayConfigError(ValueError):
    """The description of the expected cluster is missing or wrong."""


# ---------------------------------------------------------------------------------------------------------------
# Ports: one table, from which flags, validation, firewall and documentation are made
# ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Port:
    key: str
    default: int
    flag: str
    #: "all" nodes or the "head" alone
    where: str
    #: "any" (Ray binds every interface whatever it is told), "node" (control address and loopback), "loopback"
    binds: str
    purpose: str


PORTS: tuple[Port, ...] = (
    Port("gcs", 6379, "--port", "head", "any", "GCS: membership, actors, placement groups"),
    Port("node_manager", 6380, "--node-manager-port", "all", "any", "raylet: leases, health checks from the GCS"),
    Port("object_manager", 6381, "--object-manager-port", "all", "any", "objects from node to node"),
    Port("runtime_env_agent", 6382, "--runtime-env-agent-port", "all", "node", "runtime environments"),
    Port("dashboard_agent_grpc", 6383, "--dashboard-agent-grpc-port", "all", "any", "agent: metrics of the raylet"),
    Port("dashboard_agent_listen", 6384, "--dashboard-agent-listen-port", "all", "node", "agent: health over HTTP"),
    Port("metrics_export", 6385, "--metrics-export-port", "all", "any", "Prometheus metrics; Ray asks no token here"),
    Port("client_server", 6386, "--ray-client-server-port", "head", "node", "ray:// clients"),
    Port("dashboard", 8265, "--dashboard-port", "head", "loopback", "dashboard, state and jobs API"),
)
#: opened by the head without a flag to move them
FIXED_PORTS: Mapping[str, int] = {"autoscaler metrics": 44217, "dashboard metrics": 44227}
WORKER_PORTS = (20000, 20999)


def port_table(ports: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
    """Every port as a row for documentation and for the firewall."""
    given = ports or {}
    return [
        {
            "key": port.key,
            "port": int(given.get(port.key, port.default)),
            "flag": port.flag,
            "where": port.where,
            "binds": port.binds,
            "purpose": port.purpose,
        }
        for port in PORTS
    ]


def version_tuple(text: str) -> tuple[int, ...]:
    parts = []
    for piece in text.split("+")[0].split("."):
        digits = ""
        for letter in piece:
            if not letter.isdigit():
                break
            digits += letter
        if not digits:
            break
        parts.append(int(digits))
    return tuple(parts)


def mib(value: int | float) -> str:
    return f"{value / (1024 * 1024):,.0f} MiB"


def object_store_problems(wanted: int, memory: int, words: str) -> list[str]:
    if wanted <= memory:
        return []
    return [
        f"ray_node_object_store_memory: {mib(wanted)} is more than the {mib(memory)} {words}: lower it (1 GiB is "
        "enough for vLLM) or free memory"
    ]


def version_problems(ray_version: str) -> list[str]:
    found = version_tuple(ray_version)
    if len(found) < 2:
        return [f"Ray {ray_version!r}: this is not a version number"]
    if found < MINIMUM_RAY:
        wanted = ".".join(str(part) for part in MINIMUM_RAY)
        return [
            f"Ray {ray_version} is older than {wanted}: it has no token authentication and known holes "
            "(CVE-2023-48022, CVE-2025-62593, CVE-2026-27482); install a newer one"
        ]
    return []


# ---------------------------------------------------------------------------------------------------------------
# The expected cluster
# ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExpectedNode:
    name: str
    address: str
    gpus: int
    role: str = "worker"


@dataclass(frozen=True)
class Config:
    """What ``/etc/sparkthor/ray.json`` says: who is expected where, and how to ask."""

    nodes: tuple[ExpectedNode, ...]
    head_address: str
    node_address: str = ""
    gcs_port: int = 6379
    agent_port: int = 6384
    dashboard_port: int = 8265
    auth: bool = True
    token_path: str = TOKEN_PATH
    engine: tuple[str, ...] = DEFAULT_ENGINE
    #: whom the engine runs as when root asks; its bytecode cache is not root's
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def on_head(self) -> bool:
        return bool(self.node_address) and self.node_address == self.head_address

    @property
    def expected_gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    @classmethod
    def from_mapping(cls, data: Any, where: str = CONFIG_PATH) -> Config:
        if not isinstance(data, Mapping):
            raise RayConfigError(f"{where}: not a JSON object")
        nodes = []
        for item in data.get("nodes") or []:
            try:
                node = ExpectedNode(
                    name=str(item.get("name") or item["address"]),
                    address=str(item["address"]),
                    gpus=int(item.get("gpus", 1)),
                    role=str(item.get("role") or "worker"),
                )
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise RayConfigError(f"{where}: nodes: {item!r} needs an address and a number of gpus") from error
            nodes.append(node)
        if not nodes:
            raise RayConfigError(f"{where}: nodes is empty: nobody is expected")
        addresses = [node.address for node in nodes]
        twice = sorted({address for address in addresses if addresses.count(address) > 1})
        if twice:
            raise RayConfigError(f"{where}: nodes: {', '.join(twice)} is given to two nodes")
        heads = [node.address for node in nodes if node.role == "head"]
        head = str(data.get("head_address") or (heads[0] if len(heads) == 1 else ""))
        if not head:
            raise RayConfigError(f"{where}: head_address is missing")
        ports = data.get("ports") or {}
        try:
            return cls(
                nodes=tuple(nodes),
                head_address=head,
                node_address=str(data.get("node_address") or ""),
                gcs_port=int(ports.get("gcs", 6379)),
                agent_port=int(ports.get("dashboard_agent_listen", 6384)),
                dashboard_port=int(ports.get("dashboard", 8265)),
                auth=data.get("auth") is not False,
                token_path=str(data.get("token_path") or TOKEN_PATH),
                engine=tuple(str(word) for word in data.get("engine") or DEFAULT_ENGINE),
                user=str(data.get("user") or ""),
                environment={str(key): str(value) for key, value in (data.get("environment") or {}).items()},
            )
        except (TypeError, ValueError) as error:
            raise RayConfigError(f"{where}: ports: {error}") from error


def load_config(path: str = CONFIG_PATH) -> Config:
    try:
        with open(path, encoding="utf-8") as stream:
            data = json.load(stream)
    except FileNotFoundError as error:
        raise RayConfigError(f"{path} does not exist: this host was not set up as a Ray node") from error
    except (OSError, ValueError) as error:
        raise RayConfigError(f"{path} cannot be read: {error}") from error
    return Config.from_mapping(data, path)


def read_token(config: Config, environment: Mapping[str, str] | None = None) -> str:
    """The token, or nothing.  A unit's credential goes before the file, which only root may read."""
    if not config.auth:
        return ""
    env = os.environ if environment is None else environment
    for path in (env.get("RAY_AUTH_TOKEN_PATH"), config.token_path):
        if not path:
            continue
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as stream:
            return stream.read().strip()
    return ""


# ---------------------------------------------------------------------------------------------------------------
# Probes
# ---------------------------------------------------------------------------------------------------------------

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
class Probe:
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


def probe_tcp(name: str, address: str, port: int, timeout: float) -> Probe:
    start = time.monotonic()
    try:
        socket.create_connection((address, port), timeout=timeout).close()
    except OSError as error:
        return Probe(name, _network_status(error), _since(start), f"{address}:{port}: {error}")
    return Probe(name, OK, _since(start))


def probe_http(name: str, url: str, timeout: float, token: str = "") -> Probe:
    """GET under one deadline for everything; redirects and proxies are nobody's business here."""
    start = time.monotonic()
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=timeout)
    try:
        try:
            connection.connect()
        except OSError as error:
            return Probe(name, _network_status(error), _since(start), f"{url}: {error}")
        # Socket timeouts begin anew with every byte; this one ends the talk whatever trickles in
        ender = threading.Timer(max(0.0, timeout - (time.monotonic() - start)), _end, (connection.sock,))
        ender.start()
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
            response = connection.getresponse()
            body = response.read(ANSWER_LIMIT)
            if time.monotonic() - start >= timeout:
                raise TimeoutError
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, TimeoutError) or time.monotonic() - start >= timeout:
                return Probe(name, SLOW, _since(start), f"{url}: connected, but no answer within {timeout:g} s")
            return Probe(name, ERROR, _since(start), f"{url}: {type(error).__name__}: {error}")
        finally:
            ender.cancel()
    finally:
        connection.close()
    text = body.decode("utf-8", "replace")
    if response.status in (401, 403):
        return Probe(name, UNAUTHORIZED, _since(start), f"{url}: {response.status} {text.strip()[:200]}")
    if response.status != 200:
        return Probe(name, ERROR, _since(start), f"{url}: {response.status} {text.strip()[:300]}")
    return Probe(name, OK, _since(start), data=text)


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


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


def engine_environment(config: Config, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    env = dict(os.environ if environment is None else environment)
    env.update(config.environment)
    if config.auth:
        env["RAY_AUTH_MODE"] = "token"
        env["RAY_AUTH_TOKEN_PATH"] = env.get("RAY_AUTH_TOKEN_PATH") or config.token_path
    else:
        env["RAY_AUTH_MODE"] = "disabled"
        env.pop("RAY_AUTH_TOKEN_PATH", None)
    env.setdefault("HOME", "/var/lib/sparkthor")
    # Without these the client outlives every deadline when the GCS is gone
    env["RAY_gcs_rpc_server_connect_timeout_s"] = "2"
    env["RAY_gcs_rpc_server_reconnect_timeout_s"] = "2"
    return env


def _account(config: Config) -> Any:
    """The account to run the engine as, or nothing where we are not root or need no other."""
    if not config.user or os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(config.user)
    except KeyError:
        return None


def _token_handle(token: str, uid: int) -> int:
    """The token in anonymous memory that another user may read: root's file is not opened to anybody for it."""
    handle = os.memfd_create("ray_token")
    os.write(handle, token.encode())
    os.fchown(handle, uid, -1)
    os.fchmod(handle, 0o400)
    os.set_inheritable(handle, True)
    return handle


def run_engine(
    config: Config, arguments: Sequence[str], program: str, timeout: float, environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run a program in the engine's Python: ``(status, stdout, stderr)``.

    A timeout kills the whole group and gives status -1.
    """
    env = engine_environment(config, environment)
    account = _account(config)
    handles: tuple[int, ...] = ()
    options: dict[str, Any] = {}
    if account is not None:
        options = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        env["HOME"] = account.pw_dir
        token = read_token(config, env)
        if token:
            handles = (_token_handle(token, account.pw_uid),)
            env["RAY_AUTH_TOKEN_PATH"] = f"/proc/self/fd/{handles[0]}"
    try:
        process = subprocess.Popen(
            [*config.engine, "-", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=env,
            cwd="/",
            start_new_session=True,
            pass_fds=handles,
            **options,
        )
    finally:
        for handle in handles:
            os.close(handle)
    try:
        out, err = process.communicate(program, timeout=timeout)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
        return -1, "", ""
    return process.returncode, out, err


def probe_engine(config: Config, timeout: float, environment: Mapping[str, str] | None = None) -> Probe:
    start = time.monotonic()
    arguments = [f"{config.head_address}:{config.gcs_port}", f"{max(1.0, timeout - 1):g}"]
    try:
        status, out, err = run_engine(config, arguments, ENGINE_PROBE, timeout, environment)
    except (OSError, subprocess.SubprocessError) as error:
        words = getattr(error, "strerror", None) or error
        return Probe("engine", ABSENT, _since(start), f"{config.engine[0]}: {words}")
    return read_engine_output(status, out, err, timeout, _since(start))


def read_engine_output(status: int, out: str, err: str, timeout: float, latency: float) -> Probe:
    if status == -1:
        return Probe("engine", SLOW, latency, f"no answer from the GCS within {timeout:g} s")
    answer = None
    for line in reversed(out.splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                answer = json.loads(line)
            break
    if answer is None:
        words = _engine_words(err) or f"exit status {status} without a word"
        missing_token = "RAY_AUTH_TOKEN_PATH" in err and "cannot be opened or is empty" in err
        return Probe("engine", UNAUTHORIZED if missing_token else ERROR, latency, words)
    if "error" in answer:
        words = " ".join(str(answer["error"]).split())
        if words.startswith("AuthenticationError") or "Unauthenticated" in words or "InvalidAuthToken" in words:
            return Probe("engine", UNAUTHORIZED, latency, words[:300])
        if words.startswith(("ModuleNotFoundError", "ImportError")):
            return Probe("engine", ABSENT, latency, words[:300])
        return Probe("engine", ERROR, latency, words[:300])
    return Probe("engine", OK, latency, data=answer)


def _engine_words(err: str) -> str:
    """The line of a crash that says why; Ray prints a page of addresses after it."""
    for line in err.splitlines():
        if "Check failed:" in line:
            return " ".join(line.split("Check failed:", 1)[1].split())[:300]
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


# ---------------------------------------------------------------------------------------------------------------
# Readers: the answers as rows of one shape
# ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    node_id: str
    address: str
    alive: bool
    head: bool
    hostname: str = ""
    reason: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    total: Mapping[str, float] = field(default_factory=dict)
    available: Mapping[str, float] | None = None


@dataclass(frozen=True)
class View:
    """What one source says about the cluster."""

    source: str
    rows: tuple[Row, ...]
    demands: tuple[dict[str, Any], ...] = ()
    ray_version: str = ""


def _public_resources(resources: Mapping[str, Any]) -> dict[str, float]:
    """CPU, GPU, memory and the user's own; what placement groups and addresses add is bookkeeping."""
    shown = {}
    for key, value in resources.items():
        if key.startswith(("node:", "bundle_group")) or "_group_" in key:
            continue
        shown[key] = float(value)
    return shown


def read_dashboard_nodes(text: str) -> list[Row]:
    """``/api/v0/nodes?detail=true``.  Raises ValueError for anything else."""
    answer = json.loads(text)
    if not isinstance(answer, Mapping) or answer.get("result") is not True:
        raise ValueError(
            f"the dashboard says: {str((answer or {}).get('msg') if isinstance(answer, Mapping) else answer)[:200]}"
        )
    try:
        items = answer["data"]["result"]["result"]
        rows = [
            Row(
                node_id=str(item["node_id"]),
                address=str(item["node_ip"]),
                alive=item["state"] == "ALIVE",
                head=bool(item.get("is_head_node")),
                reason=str(item.get("state_message") or ""),
                started_ms=int(item.get("start_time_ms") or 0),
                ended_ms=int(item.get("end_time_ms") or 0),
                total=_public_resources(item.get("resources_total") or {}),
            )
            for item in items
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the dashboard's list of nodes has an unknown shape: {error!r}") from error
    return rows


#: the dashboard writes this answer's keys in camel case, resource names included
_CAMEL_RESOURCES = {"objectStoreMemory": "object_store_memory"}


def read_dashboard_status(text: str) -> tuple[dict[str, dict[str, float]], list[dict[str, Any]]]:
    """``/api/cluster_status``: (available by node id, pending demands)."""
    answer = json.loads(text)
    try:
        report = ((answer["data"].get("clusterStatus") or {}).get("loadMetricsReport")) or {}
        available = {}
        for node_id, usage in (report.get("usageByNode") or {}).items():
            free = {}
            for key, (used, total) in usage.items():
                if "roup" in key and key not in _CAMEL_RESOURCES:
                    continue
                free[_CAMEL_RESOURCES.get(key, key)] = float(total) - float(used)
            available[node_id] = _public_resources(free)
        demands = []
        for bundle, count in report.get("resourceDemand") or []:
            demands.append({"kind": "task_or_actor", "resources": dict(bundle), "count": int(count)})
        for group, count in report.get("pgDemand") or []:
            bundles = [{"resources": dict(b), "count": int(n)} for b, n in group.get("bundles") or []]
            demands.append(
                {
                    "kind": "placement_group",
                    "strategy": str(group.get("strategy") or ""),
                    "bundles": bundles,
                    "count": int(count),
                }
            )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"the dashboard's cluster status has an unknown shape: {error!r}") from error
    return available, demands


def read_engine(answer: Mapping[str, Any]) -> View:
    """The engine probe's answer."""
    try:
        state = answer.get("state") or {}
        available = {}
        for item in state.get("node_states") or []:
            node_id = binascii.hexlify(base64.b64decode(item["node_id"])).decode()
            available[node_id] = _public_resources(item.get("available_resources") or {})
        rows = []
        for item in answer["nodes"]:
            total = _public_resources(item.get("resources_total") or {})
            alive = item.get("state", "ALIVE") == "ALIVE"
            free = available.get(item["node_id"])
            rows.append(
                Row(
                    node_id=item["node_id"],
                    address=str(item.get("node_manager_address") or ""),
                    alive=alive,
                    head=bool(item.get("is_head_node")),
                    hostname=str(item.get("node_manager_hostname") or ""),
                    reason=_death(item.get("death_info") or {}),
                    started_ms=int(item.get("start_time_ms") or 0),
                    ended_ms=int(item.get("end_time_ms") or 0),
                    total=total,
                    # a resource that is used up is left out of the answer
                    available=None if free is None else {key: free.get(key, 0.0) for key in total},
                )
            )
        demands: list[dict[str, Any]] = []
        for item in state.get("pending_resource_requests") or []:
            bundle = dict((item.get("request") or {}).get("resources_bundle") or {})
            demands.append({"kind": "task_or_actor", "resources": bundle, "count": int(item.get("count") or 1)})
        for item in state.get("pending_gang_resource_requests") or []:
            demands.append(_gang(item))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"the GCS's answer has an unknown shape: {error!r}") from error
    return View("engine", tuple(rows), tuple(demands), str(answer.get("ray_version") or ""))


def _gang(item: Mapping[str, Any]) -> dict[str, Any]:
    counted: list[dict[str, Any]] = []
    for request in item.get("requests") or []:
        bundle = dict(request.get("resources_bundle") or {})
        for known in counted:
            if known["resources"] == bundle:
                known["count"] += 1
                break
        else:
            counted.append({"resources": bundle, "count": 1})
    # "<id>:<strategy>|<state>"
    strategy = str(item.get("details") or "").rpartition(":")[2].partition("|")[0]
    return {"kind": "placement_group", "strategy": strategy, "bundles": counted, "count": 1}


_DEATHS = {
    "EXPECTED_TERMINATION": "Expected termination",
    "UNEXPECTED_TERMINATION": "Unexpected termination",
    "AUTOSCALER_DRAIN_PREEMPTED": "Drained, preempted",
    "AUTOSCALER_DRAIN_IDLE": "Drained, idle",
}


def _death(info: Mapping[str, Any]) -> str:
    reason = str(info.get("reason") or "")
    message = str(info.get("reason_message") or "")
    return ": ".join(part for part in (_DEATHS.get(reason, reason), message) if part)


# ---------------------------------------------------------------------------------------------------------------
# Judgement
# ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answers:
    """All that was asked: the reachability of the GCS, the sources, and each node's agent by address."""

    gcs: Probe
    sources: tuple[Probe, ...] = ()
    view: View | None = None
    raylets: Mapping[str, Probe] = field(default_factory=dict)


def _iso(milliseconds: int) -> str:
    if not milliseconds:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: UP017


def _problem(code: str, cause: str, mend: str, node: str = "") -> dict[str, str]:
    return {"code": code, "node": node, "cause": cause, "mend": mend}


_GCS_CAUSES = {
    REFUSED: ("nothing listens there", "see why sparkthor-ray.service on the head is not running: journalctl -u"),
    SILENT: ("no answer", "check the head's power, its cable, and that the firewall there trusts this host"),
    UNREACHABLE: ("no way there", "check this host's fabric address and cable"),
}


def _unreadable(config: Config, answers: Answers) -> dict[str, str]:
    """Why there is no list of nodes at all."""
    where = f"{config.head_address}:{config.gcs_port}"
    if not answers.gcs.ok:
        what, mend = _GCS_CAUSES.get(answers.gcs.status, (answers.gcs.detail, "see the head's journal"))
        if mend.endswith("journalctl -u"):
            mend += " sparkthor-ray"
        return _problem("gcs_" + answers.gcs.status, f"the GCS at {where} cannot be reached: {what}", mend)
    for probe in answers.sources:
        if probe.status == UNAUTHORIZED:
            lacking = "cannot be opened or is empty" in probe.detail or "Missing authentication token" in probe.detail
            cause = "this host has no token" if lacking else "the cluster does not know this host's token"
            return _problem(
                "token_missing" if lacking else "token_refused",
                f"the GCS at {where} refuses us: {cause} ({config.token_path})",
                "run the ray roles on all hosts, so that every host has the same token, then restart Ray",
            )
    for probe in answers.sources:
        if probe.status == ABSENT:
            return _problem(
                "engine_absent",
                f"the engine's Python with Ray cannot be run: {probe.detail}",
                "run the engine role on this host",
            )
    for probe in answers.sources:
        if probe.status == SLOW:
            return _problem(
                "gcs_hangs",
                f"the GCS at {where} takes connections but does not answer: {probe.detail}",
                "if it stays so, restart sparkthor-ray.service on the head",
            )
    detail = "; ".join(probe.detail for probe in answers.sources if probe.detail)
    return _problem(
        "no_answer", f"no source could list the nodes: {detail or 'nothing was asked'}", "see the head's journal"
    )


def assess(config: Config, answers: Answers) -> dict[str, Any]:
    """Judge.  A node is there only by an ALIVE row on its expected control address, with its GPUs."""
    problems: list[dict[str, str]] = []
    by_address: dict[str, list[Row]] = {}
    view = answers.view
    if view is None:
        problems.append(_unreadable(config, answers))
    else:
        for row in view.rows:
            by_address.setdefault(row.address, []).append(row)
    alive, present = [], 0
    for node in config.nodes:
        rows = sorted(by_address.get(node.address, []), key=lambda row: row.started_ms)
        living = [row for row in rows if row.alive]
        raylet = answers.raylets.get(node.address)
        if view is not None:
            problems.extend(_node_problems(node, rows, living, raylet))
        if living:
            alive.append(_alive_entry(node, living[-1], raylet))
            present += int(living[-1].total.get("GPU", 0))
    expected = {node.address for node in config.nodes}
    strangers = []
    for row in view.rows if view else ():
        if row.alive and row.address not in expected:
            strangers.append(_alive_entry(None, row, None))
            named = [node for node in config.nodes if row.hostname and node.name == row.hostname]
            who = (
                f"{named[0].name} joined on {row.address}, not on {named[0].address}"
                if named
                else (f"{row.hostname or 'a node'} on {row.address} is a member but not expected")
            )
            problems.append(
                _problem(
                    "wrong_address" if named else "stranger",
                    who,
                    "stop Ray there; a node of this cluster is started by its unit alone, which pins the address",
                    named[0].name if named else "",
                )
            )
    names = {node.address: node.name for node in config.nodes}
    dead = [
        {
            "name": names.get(row.address, ""),
            "address": row.address,
            "node_id": row.node_id,
            "reason": row.reason,
            "started": _iso(row.started_ms),
            "ended": _iso(row.ended_ms),
            "rejoined": any(other.alive for other in by_address[row.address]),
        }
        for row in (view.rows if view else ())
        if not row.alive
    ]
    dead.sort(key=lambda entry: (entry["ended"], entry["address"]))
    result = {
        "healthy": not problems,
        "problems": problems,
        "reason": "",
        "alive": alive,
        "dead": dead,
        "strangers": strangers,
        "expected_nodes": len(config.nodes),
        "present_nodes": len(alive),
        "missing": [node.name for node in config.nodes if node.address not in {a["address"] for a in alive}],
        "expected_gpus": config.expected_gpus,
        "present_gpus": present,
        "pending": list(view.demands) if view else [],
        "head_address": config.head_address,
        "ray_version": view.ray_version if view else "",
        "source": view.source if view else "",
        "probes": {
            "gcs": answers.gcs.public(),
            "sources": [probe.public() for probe in answers.sources],
            "raylets": {address: probe.public() for address, probe in answers.raylets.items()},
        },
    }
    result["reason"] = reason_line(result)
    return result


def _node_problems(
    node: ExpectedNode, rows: Sequence[Row], living: Sequence[Row], raylet: Probe | None
) -> list[dict[str, str]]:
    where = f"{node.name} ({node.address})"
    problems = []
    if not living:
        ended = rows[-1] if rows else None
        cause = f"{where} is not a member"
        if ended is not None:
            cause += f"; it left at {_iso(ended.ended_ms)}: {ended.reason or 'no reason recorded'}"
        mend = "read its journal: journalctl -u sparkthor-ray"
        if raylet is not None and raylet.status in (SILENT, UNREACHABLE):
            cause += "; its host does not answer on the control address"
            mend = "check its power, its cable and its fabric address; it joins by itself once it is reachable"
        elif raylet is not None and raylet.status == REFUSED:
            cause += "; its host answers, but no raylet runs there"
        elif raylet is not None and raylet.ok:
            cause += "; a raylet runs there, but not in this cluster (yet)"
        problems.append(_problem("absent", cause, mend, node.name))
        return problems
    if len(living) > 1:
        problems.append(
            _problem(
                "ghost",
                f"{where} is listed alive {len(living)} times: the death of its former raylet is not noticed yet",
                "wait for the health check to notice (seconds); vLLM must not be started on a ghost",
                node.name,
            )
        )
    found = int(living[-1].total.get("GPU", 0))
    if found < node.gpus:
        problems.append(
            _problem(
                "gpus",
                f"{where} offers {found} of {node.gpus} GPUs",
                "check nvidia-smi there and ray_node_num_gpus, then restart its sparkthor-ray.service",
                node.name,
            )
        )
    if raylet is not None and not raylet.ok and raylet.status not in (SKIPPED, SLOW):
        problems.append(
            _problem(
                "raylet_" + raylet.status,
                f"{where} is listed alive, but its raylet does not answer ({raylet.status}): "
                "it died a moment ago, or its agent is still starting",
                "wait for the health check to notice; if it stays so, read its journal: journalctl -u sparkthor-ray",
                node.name,
            )
        )
    return problems


def _alive_entry(node: ExpectedNode | None, row: Row, raylet: Probe | None) -> dict[str, Any]:
    return {
        "name": node.name if node else row.hostname,
        "address": row.address,
        "node_id": row.node_id,
        "role": "head" if row.head else "worker",
        "resources_total": dict(row.total),
        "resources_available": None if row.available is None else dict(row.available),
        "started": _iso(row.started_ms),
        "raylet_ok": None if raylet is None or raylet.status == SKIPPED else raylet.ok,
        "raylet_latency_ms": None if raylet is None else raylet.latency_ms,
    }


def reason_line(result: Mapping[str, Any]) -> str:
    """One line for a journal or a play's message."""
    count = (
        f"{result['present_nodes']} of {result['expected_nodes']} nodes, "
        f"{result['present_gpus']} of {result['expected_gpus']} GPUs"
    )
    if result["healthy"]:
        return f"{count} on {result['head_address']}"
    problems = result["problems"]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{count}: {problems[0]['cause']}{more}; {problems[0]['mend']}"


# ---------------------------------------------------------------------------------------------------------------
# Asking
# ---------------------------------------------------------------------------------------------------------------


def _ask_dashboard(config: Config, token: str, timeout: float) -> tuple[list[Probe], View | None]:
    base = f"http://127.0.0.1:{config.dashboard_port}"
    nodes = probe_http("dashboard", f"{base}/api/v0/nodes?detail=true&limit=10000", timeout, token)
    if not nodes.ok:
        return [nodes], None
    try:
        rows = read_dashboard_nodes(nodes.data)
    except ValueError as error:
        return [Probe("dashboard", ERROR, nodes.latency_ms, str(error))], None
    status = probe_http("dashboard_status", f"{base}/api/cluster_status", timeout, token)
    demands: list[dict[str, Any]] = []
    if status.ok:
        try:
            available, demands = read_dashboard_status(status.data)
            rows = [
                Row(**{**vars(row), "available": available.get(row.node_id) if row.alive else None}) for row in rows
            ]
        except ValueError as error:
            # Not a reason to call the cluster sick: the list of nodes is what is judged
            status = Probe("dashboard_status", ERROR, status.latency_ms, str(error))
    return [nodes, status], View("dashboard", tuple(rows), tuple(demands))


def collect(
    config: Config,
    timeout: float = 5.0,
    source: str = "auto",
    raylets: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Answers:
    """Ask everything at once, within about ``timeout`` seconds (twice that where the dashboard hangs).

    ``source``: ``dashboard`` and ``engine`` use that one alone; ``auto`` the dashboard where it is (the head), else the
    engine.
    """
    short = min(timeout, 3.0)
    with ThreadPoolExecutor(max_workers=min(32, len(config.nodes) + 2)) as pool:
        gcs_future = pool.submit(probe_tcp, "gcs", config.head_address, config.gcs_port, short)
        raylet_futures = {
            node.address: pool.submit(
                probe_http,
                f"raylet {node.name}",
                f"http://{node.address}:{config.agent_port}/api/local_raylet_healthz",
                short,
            )
            for node in config.nodes
            if raylets
        }
        probes: list[Probe] = []
        view: View | None = None
        gcs = gcs_future.result()
        if source in ("auto", "dashboard") and (config.on_head or source == "dashboard") and gcs.ok:
            probes, view = _ask_dashboard(config, read_token(config, environment), timeout)
        refused = any(probe.status == UNAUTHORIZED for probe in probes)
        if view is None and gcs.ok and not refused and source in ("auto", "engine"):
            engine = probe_engine(config, timeout, environment)
            probes = [*probes, engine]
            if engine.ok:
                try:
                    view = read_engine(engine.data)
                except ValueError as error:
                    probes[-1] = Probe("engine", ERROR, engine.latency_ms, str(error))
        answered = {address: future.result() for address, future in raylet_futures.items()}
    return Answers(gcs, tuple(probes), view, answered)


def cluster_health(
    config: Config,
    timeout: float = 5.0,
    source: str = "auto",
    raylets: bool = True,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The health of the cluster as data; the one question that gate, module and watchdog ask."""
    start = time.monotonic()
    result = assess(config, collect(config, timeout, source, raylets, environment))
    result["seconds"] = round(time.monotonic() - start, 3)
    return result


#: waiting cannot mend these
FINAL_CODES = frozenset({"token_missing", "token_refused", "engine_absent"})


def is_final(result: Mapping[str, Any]) -> bool:
    return any(problem["code"] in FINAL_CODES for problem in result["problems"])


def wait_healthy(
    config: Config,
    wait: float,
    timeout: float = 5.0,
    source: str = "auto",
    interval: float = 1.0,
    accept: Any = None,
    clock: Any = time.monotonic,
    sleep: Any = time.sleep,
    ask: Any = None,
) -> dict[str, Any]:
    """Ask until healthy, until waiting is of no use, or until ``wait`` seconds have passed.

    ``accept`` may be a function of the result that decides instead of ``healthy`` when to stop.
    """
    good = accept or (lambda result: result["healthy"])
    question = ask or (lambda: cluster_health(config, timeout, source))
    start = clock()
    while True:
        result = question()
        result["waited_seconds"] = round(clock() - start, 1)
        if good(result) or is_final(result) or clock() - start + interval > wait:
            return result
        sleep(interval)
