# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A head without a lab: real nginx with the planned configuration, the page's own process, an engine that streams.

Hosts are exporters' pages that a test sets; the groups' states are the watchdog's files.  Needs nginx with its
JavaScript module and a Chromium: make page
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import signal
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    console_hands,
    console_service,
    control,
    front_config,
    last_checks,
    places,
    watchdog_hands,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import front
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import topology as layout
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.integration.nginx.test_front import JS_MODULE, MODULE, NGINX
from tests.unit.plugins.module_utils.serving_head import Systemd
from tests.unit.plugins.plugin_utils._plan.conftest import variables
from tests.unit.plugins.plugin_utils._plan.test_door import CONF
from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan
from tests.unit.ports import free_port
from tests.unit.servers import serving
from tools import browser

__all__ = ["variables"]
PAGE = Path(__file__).parents[3] / "roles" / "console" / "files" / "page"
PICTURES = os.environ.get("PAGE_PICTURES", "")
KEY, LOOKS, OPERATES, CHATS = "k" * 20, "v" * 20, "o" * 20, "c" * 20
NAMES = ("spark-01", "spark-02", "spark-03")
EXPORTER = """\
sparkthor_node_memory_total_bytes 130701455360
sparkthor_node_memory_available_bytes 19864223744
sparkthor_node_disk_total_bytes 3670000000000
sparkthor_node_disk_free_bytes {disk}
sparkthor_node_uptime_seconds 271000
sparkthor_gpu_power_watts{{gpu="0"}} 41
sparkthor_gpu_temperature_celsius{{gpu="0"}} 62
sparkthor_gpu_clock_hertz{{gpu="0"}} 2405000000
sparkthor_gpu_utilization_ratio{{gpu="0"}} 0.71
sparkthor_link_up{{netdev="enp1s0f0np0",planned="yes"}} 1
sparkthor_link_up{{netdev="enP2p1s0f0np0",planned="yes"}} {link}
sparkthor_link_rx_bytes_total{{netdev="enp1s0f0np0",planned="yes"}} 1000
sparkthor_node_version{{part="vllm",version="0.32.0"}} 1
sparkthor_node_version{{part="kernel",version="{kernel}"}} 1
sparkthor_node_version{{part="driver",version="580.95.05"}} 1
sparkthor_firewall_closed 1
sparkthor_front_requests_total{{key="web",model="m",status="200"}} 64
sparkthor_front_requests_total{{key="web",model="m",status="429"}} 2
sparkthor_front_completion_tokens_total{{key="web",model="m"}} 233000
"""
#: of each host
KERNEL = "6.14.0-1015-nvidia"
NETDEVS = ("enp1s0f0np0", "enP2p1s0f0np0")


def cables(names: Sequence[str], topology: str = "ring") -> dict[str, dict[str, Any]]:
    """As a plan has them: both halves of a cable from each host to the next, or to what they share."""
    ring = zip(names, (*names[1:], names[0]), strict=True)
    return {
        name: {
            "kind": "spark",
            "control_address": f"10.100.0.{number + 1}",
            "links": [
                {
                    **{"netdev": netdev, "half": half, "address": "", "mtu": 9000},
                    "peer": peer if topology in ("direct", "ring") else "",
                    "peer_netdev": netdev if topology == "direct" else "",
                }
                for half, netdev in enumerate(NETDEVS)
            ],
        }
        for number, (name, peer) in enumerate(ring)
    }


FABRIC = cables(NAMES)
MEMORY = {"weights": 74 << 30, "cache": 20 << 30, "overhead": 9 << 30, "reserve": 18 << 30}
ENGINE = """\
vllm:num_requests_running{{engine="0"}} {running}
vllm:num_requests_waiting{{engine="0"}} 0
vllm:generation_tokens_total{{engine="0"}} {tokens}
vllm:kv_cache_usage_perc{{engine="0"}} 0.37
"""


def exporter_page(disk: int = 2400000000000, link: int = 1, kernel: str = KERNEL) -> str:
    """What a host's exporter says."""
    return EXPORTER.format(disk=disk, link=link, kernel=kernel)


class Cluster:
    """What a test changes, and where it looks."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.url = f"http://127.0.0.1:{port}/console/"
        #: by name of the host what its exporter says; without one it does not answer
        self.hosts: dict[str, str] = {name: exporter_page() for name in NAMES}
        #: parts of the engine's answers, and the seconds between them
        self.parts, self.pause = ["**Paris** is the capital", " of France."], 0.05
        self.running, self.tokens = 3, 0
        self.asked: list[dict[str, Any]] = []
        #: requests whose client went away
        self.left = 0
        self.systemd = Systemd()
        #: unit -> lines of the journal
        self.journal: dict[str, list[str]] = {places.OWN.watchdog: ["serving: proof in 0.09 s"], places.OWN.unit: []}
        self.groups = [{"name": "cluster", "beside": "", "head": NAMES[0], "here": True, "hosts": list(NAMES)}]
        #: what the page's process reads of the plan
        self.planned: dict[str, Any] = {"host": NAMES[0], "port": port, "groups": self.groups}
        self.plan("ring", FABRIC)
        #: why the front proxy is not loaded anew
        self.refuses = ""
        #: the state that was told last, and since when it is so
        self.lasts = ("", 0.0)
        #: seconds by which the clock of the head's page is ahead
        self.ahead = 0.0
        #: groups that were woken, and what is said to whoever does it
        self.woken: list[str] = []
        self.wakes = "The model was asleep and is being started."
        self.nginx: subprocess.Popen[bytes] | None = None

    def state(self, state: str, **more: Any) -> None:
        """As the watchdog writes it."""
        now = time.time()
        if self.lasts[0] != state:
            self.lasts = (state, now - 273600)
        told = {
            "version": 1,
            "state": state,
            "detail": "",
            "line": state,
            "healthy": state == "serving",
            "since": self.lasts[1],
            "updated": now,
            "completion": {"seconds_ago": 6.0, "latency": 0.09},
            "ranks": {"missing": [], "without": []},
            "answers": {"asked": 4, "right": 4},
            **more,
        }
        path = self.folder / "run" / "state.json"
        path.with_suffix(".new").write_text(json.dumps(told))
        path.with_suffix(".new").rename(path)

    def plan(self, topology: str, fabric: dict[str, Any]) -> None:
        """The hosts, and how they are joined; the serving groups stay as they are."""
        self.planned |= {
            "topology": topology,
            "hosts": [{"name": name, "address": name} for name in fabric],
            "drawing": layout.planned_drawing(topology, NAMES[0], fabric) if len(fabric) > 1 else None,
            "memory": dict.fromkeys(fabric, MEMORY),
        }

    def loaded(self, *seconds: float) -> None:
        """loads.json, after as many loads."""
        row = {"engine": "e", "model": "m", "split": "TP=1", "stages": {}, "ended": 1790000000.0}
        told = {"version": 1, "loads": [{**row, "seconds": took} for took in seconds]}
        (self.folder / "lasting" / "loads.json").write_text(json.dumps(told))

    def checked(self, name: str, **told: Any) -> None:
        """What doctor.yml or drift.yml keeps on the head."""
        path = self.folder / last_checks.FOLDER.lstrip("/") / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        taken = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 7300))
        path.write_text(json.dumps({"version": 1, "taken": taken, **told}))

    def config(self, **more: Any) -> None:
        """serving.json."""
        told = {"unit": places.OWN.unit, "model": "qwen3.5-397b-a17b-nvfp4", **more}
        (self.folder / "etc" / "serving.json").write_text(json.dumps(told))

    def fetch(self, address: str, path: str) -> str:
        """For the page's process: the exporters."""
        self.tokens += 80
        if path == "/metrics/engine":
            return ENGINE.format(running=self.running, tokens=self.tokens)
        return self.hosts.get(address, "")

    def run(self, argv: list[str], seconds: float) -> tuple[int, str, str]:
        """For root's part: systemd and the journal."""
        if argv == ["systemctl", "reload", console_hands.FRONT]:
            return self.reload()
        if argv[0] != "journalctl":
            return self.systemd(argv, seconds)
        lines = self.journal.get(argv[-1].partition("=")[2], [])
        at = int(time.time() * 1e6)
        return 0, "".join(json.dumps({"MESSAGE": one, "__REALTIME_TIMESTAMP": str(at)}) + "\n" for one in lines), ""

    def wake(self, group: str) -> str:
        """In the place of the service that wakes groups."""
        self.woken.append(group)
        return self.wakes

    def reload(self) -> tuple[int, str, str]:
        """As front-config and nginx's unit do it."""
        if self.refuses:
            return 1, "", self.refuses
        names = front_config.blocked_keys(str(self.folder / "blocked.json"))
        (self.folder / "front" / "blocked.conf").write_text(front_config.blocked_map(names))
        assert self.nginx
        self.nginx.send_signal(signal.SIGHUP)
        return 0, "", ""


class Listens(socketserver.ThreadingUnixStreamServer):
    """With room for many at once, as an engine has it, and no wait for those that are left at the end."""

    daemon_threads = True
    request_queue_size = 512


def engine(cluster: Cluster) -> type[http.server.BaseHTTPRequestHandler]:
    class Engine(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            cluster.asked.append(body)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.end_headers()
            try:
                for part in cluster.parts:
                    if isinstance(part, dict) and "error" in part:
                        self._send(part)
                        return
                    delta = part if isinstance(part, dict) else {"content": part}
                    self._send({"choices": [{"delta": delta}]})
                    time.sleep(cluster.pause)
                self._send({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": len(cluster.parts)}})
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                cluster.left += 1

        def _send(self, event: dict[str, Any]) -> None:
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.flush()

        def address_string(self) -> str:
            return ""

        def log_message(self, *_arguments: Any) -> None:
            pass

    return Engine


def outward() -> str:
    """This machine's own address to the network; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(("198.51.100.1", 9))
        return str(asked.getsockname()[0])


OUTWARD = outward()
#: the planned files by name, made once: all tests have the same plan but for the port
_PLANNED: dict[str, str] = {}
_PORT = 23456


def planned(variables: dict[str, Any]) -> dict[str, str]:
    """The front proxy's configuration by file, as it is planned for ``_PORT``."""
    if not _PLANNED:
        keys: list[dict[str, Any]] = [
            {"name": "looks", "key": LOOKS, "console": "view"},
            {"name": "operates", "key": OPERATES, "console": "operate"},
            {"name": "chats", "key": CHATS},
        ]
        own = {
            "vllm_serve_api_port": _PORT,
            "vllm_serve_listen": ["127.0.0.1", OUTWARD],
            "vllm_serve_front_access_log": False,
        }
        given = {**variables, **own, "vllm_serve_api_keys": keys, "console_enabled": True}
        for path, text in files(plan(given)).items():
            if path.startswith(str(Path(CONF).parent)):
                _PLANNED[Path(path).name] = text
        named = [front.NamedKey(front.MAIN, KEY), *front.named_keys(keys)]
        _PLANNED["keys.conf"] = front.key_map(named)
    return _PLANNED


def front_files(cluster: Cluster, variables: dict[str, Any]) -> None:
    """The same with its paths below the test's folder."""
    for name, text in planned(variables).items():
        for place, here in (
            (JS_MODULE, str(MODULE)),
            ("/run/sparkthor-console", f"{cluster.folder}/console"),
            ("/run/sparkthor", f"{cluster.folder}/run"),
            ("/var/cache/sparkthor-front", f"{cluster.folder}/cache"),
            ("/usr/local/share/sparkthor/page", str(PAGE)),
            (f"127.0.0.1:{_PORT}", f"127.0.0.1:{cluster.port}"),
            (f"{OUTWARD}:{_PORT}", f"{OUTWARD}:{cluster.port}"),
        ):
            text = text.replace(place, here)
        (cluster.folder / "front" / name).write_text(text)
    (cluster.folder / "front.good").mkdir()
    (cluster.folder / "front.good" / "keys.conf").write_text(planned(variables)["keys.conf"])


class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"status": "serving"}\n'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return ""

    def log_message(self, *_arguments: Any) -> None:
        pass


@contextlib.contextmanager
def page_process(cluster: Cluster) -> Iterator[console_service.ConsoleCollector]:
    """The page's process and root's part, as two threads of this one; every round is at once."""
    config = cluster.planned
    own = places.OWN

    def of_group(group: str, check: bool) -> control.Control:
        made = control.Control(check, own.config, own.draining, own.maintenance[0], own.maintenance, runner=cluster.run)
        made.connections = lambda _path: cluster.running
        made.sleep = lambda _seconds: time.sleep(0.05)
        return made

    audit, controller = str(cluster.folder / "audit.jsonl"), str(cluster.folder / "controller.json")
    hands = console_hands.ConsoleHands(
        config,
        of_group,
        cluster.run,
        audit,
        controller,
        front=str(cluster.folder),
        blocked=str(cluster.folder / "blocked.json"),
        wake_group=cluster.wake,
        checks=lambda: last_checks.read(str(cluster.folder)),
    )
    ours, theirs = socket.socketpair()
    guard = console_hands.ConsoleGuard(hands, watchdog_hands.Hands())
    threading.Thread(target=guard.serve, args=(theirs,), daemon=True).start()
    remote = console_hands.ConsoleRemote(ours)
    collector = console_service.ConsoleCollector(config, remote, cluster.fetch, lambda: time.time() + cluster.ahead)
    server = console_service.ConsoleServer(f"{cluster.folder}/console/console.sock", "root")
    server.collector, server.hands = collector, remote
    ended = threading.Event()

    def rounds() -> None:
        while not ended.is_set():
            collector.round()
            ended.wait(0.3)

    with serving(server):
        thread = threading.Thread(target=rounds)
        thread.start()
        try:
            yield collector
        finally:
            ended.set()
            thread.join(10)
    ours.close()


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path, variables: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, free_port())
    for name in ("front", "cache", "run/vllm", "run/watchdog", "run/front", "console", "etc", "lasting"):
        (tmp_path / name).mkdir(parents=True)
    # with the paths of a host, before they are the test's
    planned(variables)
    for name, folder in (("RUN", "run"), ("ETC", "etc"), ("LASTING", "lasting")):
        monkeypatch.setattr(places, name, str(tmp_path / folder))
    monkeypatch.setattr(places, "DECLARED", str(tmp_path / "etc" / "cluster.json"))
    cluster.config(socket=places.OWN.socket)
    cluster.state("serving")
    cluster.loaded(240.0, 363.0, 255.0)
    front_files(cluster, variables)
    tmp_path.chmod(0o755)
    command = f"daemon off; {'user root;' if os.geteuid() == 0 else ''}"
    with contextlib.ExitStack() as stack:
        sockets = {"run/vllm/vllm.sock": engine(cluster), "run/watchdog/health.sock": Health}
        for path, handler in sockets.items():
            stack.enter_context(serving(Listens(str(tmp_path / path), handler)))
        stack.enter_context(page_process(cluster))
        argv = [NGINX, "-c", f"{tmp_path}/front/nginx.conf", "-p", f"{tmp_path}/front", "-g", command]
        cluster.nginx = subprocess.Popen(argv)
        try:
            while True:
                assert cluster.nginx.poll() is None
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", cluster.port), 60):
                    break
                time.sleep(0.02)
            yield cluster
        finally:
            cluster.nginx.terminate()
            cluster.nginx.wait(60)


@pytest.fixture(name="chromium", scope="module")
def _chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=browser.program(), args=["--no-sandbox"])
        yield made
        made.close()


class Watched:
    """A tab, and all that it must not do."""

    def __init__(self, page: Page, port: int) -> None:
        self.page = page
        self.dialogs: list[str] = []
        self.foreign: list[str] = []
        self.errors: list[str] = []
        page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))
        own = f"http://127.0.0.1:{port}/"
        page.on(
            "request", lambda request: self.foreign.append(request.url) if not request.url.startswith(own) else None
        )
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def is_well(self) -> None:
        assert (self.dialogs, self.foreign, self.errors) == ([], [], [])


@pytest.fixture(name="tab")
def _tab(chromium: Browser, cluster: Cluster) -> Iterator[Watched]:
    context = chromium.new_context(viewport={"width": 1366, "height": 900})
    watched = Watched(context.new_page(), cluster.port)
    yield watched
    context.close()
    watched.is_well()


def sign_in(tab: Watched, cluster: Cluster, key: str = OPERATES) -> Page:
    tab.page.goto(cluster.url)
    tab.page.get_by_label("API key").fill(key)
    tab.page.get_by_role("button", name="Show the cluster").click()
    return tab.page


def verdict(page: Page, text: str | re.Pattern[str]) -> None:
    expect(page.locator("h1")).to_have_text(text, timeout=15000)


@pytest.fixture(name="open_tab")
def _open_tab(chromium: Browser, cluster: Cluster) -> Iterator[Watched]:
    """A tab in which axe may run, which the page's own policy refuses."""
    context = chromium.new_context(bypass_csp=True)
    yield Watched(context.new_page(), cluster.port)
    context.close()
