# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples of the modules and filters that others build on, run as ansible-doc shows them.

Each plugin has a play of its own, and in it a name of its own for localhost: what one registers, no other one sees.
Where an example needs an RDMA tool or a Ray cluster, a stand-in gives an answer captured from a real one.
"""

from __future__ import annotations

import contextlib
import getpass
import http.server
import json
import os
import pwd
import re
import subprocess
import sys
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import ray_config

from tests.unit.ports import free_port
from tests.unit.published_models import model
from tests.unit.servers import serving

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
FIXTURES = TOP / "tests" / "fixtures"
MODULES = ("rdma_info", "ray_info")
FILTERS = ("fabric_plan", "json_query", "memory_plan", "parse_ibdev2netdev", "recipe")
HOSTS = ("spark-01", "spark-02", "spark-03")
#: control addresses of the Ray cluster; the captured one had 10.89.0.10 and so on
ADDRESSES = ("127.0.0.10", "127.0.0.11", "127.0.0.12")
#: the node that the captured cluster got back after it had lost its third one
REJOINED = "00838989886a35970e4c7eddf913c36f4251576f60a549f3c3a9adf9"
#: what the examples take from their user's inventory
INVENTORY = {
    "all": {
        "hosts": {plugin: {} for plugin in (*MODULES, *FILTERS)},
        "children": {"cluster": {"hosts": {host: {} for host in HOSTS}}},
        "vars": {
            "ansible_connection": "local",
            # whoever runs this need not be allowed to become root
            "ansible_become_user": getpass.getuser(),
            "fabric_topology": "switch",
            "vllm_serve_recipe": "llama-3.1-405b-int4",
        },
    }
}

#: plugin -> name of its example -> what the task answered
Results = dict[str, dict[str, dict[str, t.Any]]]


def ansible(program: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [str(Path(sys.executable).with_name(program)), *arguments],
        cwd=TOP,
        env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def documented_examples(kind: str, *names: str) -> dict[str, list[dict[str, t.Any]]]:
    """Plugin name -> its examples as tasks."""
    full_names = [f"sparkthor.cluster.{name}" for name in names]
    answer = json.loads(ansible("ansible-doc", "--json", "--type", kind, *full_names))
    return {name.rpartition(".")[2]: yaml.safe_load(plugin["examples"]) for name, plugin in answer.items()}


def captured(name: str) -> dict[str, t.Any]:
    answer: dict[str, t.Any] = json.loads((FIXTURES / "ray" / name).read_text().replace("10.89.0.", "127.0.0."))
    return answer


class Ray:
    """A cluster's GCS, dashboard and agents, and the engine's Python; it has lost a node and gets it back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.questions = 0
        self.whole = captured("rejoined.dashboard_nodes.json")
        self.broken = captured("rejoined.dashboard_nodes.json")
        rows = self.broken["data"]["result"]
        rows["result"] = [row for row in rows["result"] if row["node_id"] != REJOINED]
        own_ports = dict.fromkeys(("gcs", "dashboard", "dashboard_agent_listen"), self.port)
        # nobody listens on these, whatever else runs on this machine
        unused_ports = {port.key: 1 + index for index, port in enumerate(ray_config.PORTS)}
        engine = self.write_engine()
        self.running = self.write_config("running.json", engine, own_ports)
        self.stopped = self.write_config("stopped.json", engine, unused_ports)

    def nodes(self) -> dict[str, t.Any]:
        """The third question is the second one of the example that waits: by then the node is back."""
        self.questions += 1
        return self.broken if self.questions < 3 else self.whole

    def write_engine(self) -> str:
        """Path of a program that answers the two programs which are run in the engine's Python."""
        answer = captured("rejoined.engine.json")
        answer["nodes"] = [row for row in answer["nodes"] if row["node_id"] != REJOINED]
        versions = {"python": "3.12.3", "ray": "2.60.0", "torch": "2.13.0", "vllm": "0.32.0"}
        script = self.folder / "engine"
        script.write_text(
            f"#!{sys.executable}\nimport sys\n"
            f"print({json.dumps(versions)!r} if 'importlib.metadata' in sys.stdin.read() else {json.dumps(answer)!r})\n"
        )
        script.chmod(0o755)
        return str(script)

    def write_config(self, name: str, engine: str, ports: dict[str, int]) -> str:
        """Path of what a host knows of the cluster."""
        path = self.folder / name
        nodes = [
            {"name": host, "address": address, "role": "worker" if number else "head"}
            for number, (host, address) in enumerate(zip(HOSTS, ADDRESSES, strict=True))
        ]
        described = {"nodes": nodes, "node_address": ADDRESSES[0], "auth": False, "engine": [engine]}
        described["user"] = pwd.getpwuid(os.geteuid()).pw_name
        path.write_text(json.dumps({**described, "ports": ports, "worker_ports": [2, 2]}))
        return str(path)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        ray = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = "success"
                if self.path.startswith("/api/v0/nodes"):
                    body = json.dumps(ray.nodes())
                elif self.path.startswith("/api/cluster_status"):
                    body = json.dumps(captured("rejoined.dashboard_status.json"))
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_args: t.Any) -> None:
                pass

        with contextlib.ExitStack() as servers:
            for address in ("127.0.0.1", *ADDRESSES):
                servers.enter_context(serving(http.server.ThreadingHTTPServer((address, self.port), Handler)))
            yield


def with_config(task: dict[str, t.Any], ray: Ray) -> dict[str, t.Any]:
    """The task as it is, on a host whose /etc/sparkthor/ray.json lies elsewhere."""
    arguments = task.get("sparkthor.cluster.ray_info") or {}
    config = ray.stopped if arguments.get("before_start") else ray.running
    return {"block": [task], "module_defaults": {"sparkthor.cluster.ray_info": {"config": config}}}


def read_results(output: str) -> Results:
    """Out of what ansible-playbook prints with -v."""
    found: Results = {}
    for play in re.split(r"^PLAY \[", output, flags=re.MULTILINE)[1:]:
        plugin = play.partition("]")[0]
        for task in re.split(r"^TASK \[", play, flags=re.MULTILINE)[1:]:
            name, answer = task.partition("] ***")[0], task.partition(f"[{plugin}] => ")[2]
            found.setdefault(plugin, {})[name] = json.JSONDecoder().raw_decode(answer)[0]
    return found


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("examples")
    (folder / "config.json").write_text(json.dumps(model("llama-3.1-405b-awq-int4")))
    (folder / "inventory.json").write_text(json.dumps(INVENTORY))
    tool = folder / "bin" / "ibdev2netdev"
    tool.parent.mkdir()
    # no interface of the machine that runs this has these names: its carrier would count, not the tool's word
    printed = (FIXTURES / "rdma" / "spark-switch-cage1.txt").read_text().replace(" (", "-none (")
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{printed}END\n")
    tool.chmod(0o755)
    ray = Ray(folder)
    examples = documented_examples("module", *MODULES) | documented_examples("filter", *FILTERS)
    plays = [
        {"name": plugin, "hosts": plugin, "tasks": [with_config(task, ray) for task in tasks]}
        for plugin, tasks in examples.items()
    ]
    (folder / "examples.json").write_text(json.dumps(plays))
    with ray.answering():
        output = ansible(
            "ansible-playbook",
            str(folder / "examples.json"),
            f"--inventory={folder / 'inventory.json'}",
            "-v",
            PATH=f"{tool.parent}:{os.environ['PATH']}",
            ANSIBLE_CALLBACK_RESULT_FORMAT="json",
        )
    found = read_results(output)
    names = {plugin: [task["name"] for task in tasks] for plugin, tasks in examples.items()}
    assert {plugin: list(answers) for plugin, answers in found.items()} == names
    return found


def test_rdma_info(results: Results) -> None:
    read, cabled = results["rdma_info"].values()
    assert read["source"] == "ibdev2netdev"
    assert [(link["device"], link["port"], link["state"]) for link in read["links"]] == [
        ("roceP2p1s0f0", 1, "down"),
        ("roceP2p1s0f1", 1, "up"),
        ("rocep1s0f0", 1, "down"),
        ("rocep1s0f1", 1, "up"),
    ]
    assert cabled["msg"] == ["enP2p1s0f1np1-none", "enp1s0f1np1-none"]


def test_ray_info(results: Results) -> None:
    head, wrong, alive, gpus, engine, dead, latency, absent, waited, start, stop = results["ray_info"].values()
    assert (head["source"], head["healthy"], head["present_gpus"]) == ("dashboard", False, 2)
    ((cause, fix),) = wrong["msg"]
    assert cause.startswith("spark-03 (127.0.0.12) is not a member; it left at 2026-11-21T01:27:38Z")
    assert "journalctl -u sparkthor-ray" in fix
    assert alive["msg"] == ["127.0.0.10", "127.0.0.11"]
    assert gpus["msg"] == [{"node": "spark-01", "gpus": 1.0}, {"node": "spark-02", "gpus": 1.0}]
    assert (engine["source"], engine["ray_version"], engine["missing"]) == ("engine", "2.60.0", ["spark-03"])
    (died,) = dead["msg"]
    assert (died["node"], died["at"]) == ("spark-03", "2026-11-21T01:27:38Z")
    assert "missing too many heartbeats" in died["reason"]
    assert [name for name, _milliseconds in latency["msg"]] == ["spark-01", "spark-02"]
    assert all(milliseconds > 0 for _name, milliseconds in latency["msg"])
    assert absent["msg"] == "spark-03, of 3"
    assert (waited["healthy"], waited["present_gpus"]) == (True, 3)
    assert 1 <= waited["waited_seconds"] < 120
    assert start["obstacles"] == []
    assert start["versions"] == {"python": "3.12.3", "ray": "2.60.0", "torch": "2.13.0", "vllm": "0.32.0"}
    assert stop["msg"] == "All assertions passed"


def test_fabric_plan(results: Results) -> None:
    shown, kept = (answer["msg"] for answer in results["fabric_plan"].values())
    assert {host: [link["address"] for link in plan["links"]] for host, plan in shown.items()} == {
        "spark-01": ["10.100.0.1/25", "10.100.0.129/25"],
        "spark-02": ["10.100.0.2/25", "10.100.0.130/25"],
        "spark-03": ["10.100.0.3/25", "10.100.0.131/25"],
    }
    assert shown["spark-03"]["env"]["RAY_ADDRESS"] == "10.100.0.1:6379"
    assert {host: plan["control_address"] for host, plan in kept.items()} == {"a": "10.100.0.1", "b": "10.100.0.77"}


def test_json_query(results: Results) -> None:
    (addresses,) = results["json_query"].values()
    assert addresses["msg"] == ["10.10.0.1", "10.10.0.2"]


def test_memory_plan(results: Results) -> None:
    (needs,) = results["memory_plan"].values()
    plan = needs["msg"]
    assert (plan["verdict"], plan["ranks"]["layers"]) == ("fits", [42, 42, 42])
    assert (plan["weights_bytes_per_rank"], plan["kv_bytes_per_token"]) == (68976691234, 516096)
    assert plan["max_tokens"] > 32768


def test_parse_ibdev2netdev(results: Results) -> None:
    (connected,) = results["parse_ibdev2netdev"].values()
    assert connected["msg"] == ["enp1s0f0np0"]


def test_recipe(results: Results) -> None:
    (served,) = results["recipe"].values()
    why, _vllm, command = served["msg"].partition(" vllm serve ")
    assert why.startswith("TP=1 PP=3: ")
    assert command.startswith("hugging-quants/Meta-Llama-3.1-405B-Instruct-AWQ-INT4 ")
    assert "--pipeline-parallel-size 3 --max-model-len 32768" in command
