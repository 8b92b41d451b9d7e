# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three hosts on a switch with the fabric and the firewall as the roles make them, and models to bring to them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sparklab import Lab, LabError

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
MIB = 1 << 20
STORE = "/var/lib/sparkthor/models"
NETS = ("enp1s0f1np1", "enP2p1s0f1np1")


@dataclass
class Run:
    rc: int
    seconds: float
    output: str

    @property
    def said(self) -> str:
        """The output with its wrapped lines joined, and one space for many."""
        return " ".join(self.output.split())


@dataclass
class Model:
    """Random files in a folder of the controller."""

    name: str
    folder: Path
    size: int = 0
    digests: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, size: int) -> None:
        data = os.urandom(size)
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.size += size
        self.digests[name] = hashlib.sha256(data).hexdigest()

    @property
    def declared(self) -> dict[str, str]:
        return {"name": self.name, "source": str(self.folder)}


@dataclass
class Site:
    lab: Lab
    inventory: Path
    cache: Path

    @property
    def hosts(self) -> list[str]:
        return [host.name for host in self.lab.plan.hosts]

    def on(self, host: str, command: str, *, check: bool = True) -> str:
        return self.lab.exec(host, ["bash", "-c", command], check=check).stdout

    def begin(
        self, *models: Model | dict[str, Any], tags: str = "model_store", playbook: str = "site.yml", **variables: Any
    ) -> subprocess.Popen[str]:
        settings = {
            # the role engine, which makes the serving user, has no part in this, nor has the inventory's own recipe,
            # whose model would be asked of the hub where a test declares none
            "vllm_serve_recipe": "",
            "model_store_models": [model.declared if isinstance(model, Model) else model for model in models],
            **variables,
        }
        return subprocess.Popen(
            [
                str(Path(sys.executable).with_name("ansible-playbook")), str(TOP / "playbooks" / playbook),
                f"--inventory={self.inventory}", f"--inventory={self.lab.folder / 'inventory.yml'}",
                f"--tags={tags}", "-e", json.dumps(settings),
            ],
            env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1",
                 "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_CALLBACKS_ENABLED": "task_seconds",
                 "ANSIBLE_CALLBACK_PLUGINS": str(TOP / "tests/integration/callback_plugins"),
                 "XDG_CACHE_HOME": str(self.cache)},
            cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    @staticmethod
    def end(process: subprocess.Popen[str], timeout: float = 900) -> Run:
        begun = time.monotonic()
        output, _nothing = process.communicate(timeout=timeout)
        print(output[-3000:])
        return Run(process.returncode, time.monotonic() - begun, output)

    def play(self, *models: Model | dict[str, Any], **settings: Any) -> Run:
        begun = time.monotonic()
        run = self.end(self.begin(*models, **settings))
        return Run(run.rc, time.monotonic() - begun, run.output)

    def report(self, host: str) -> dict[str, Any]:
        """What a host's part in the latest copy says of itself."""
        text = self.on(host, "cat /run/sparkthor-fanout/status.json 2>/dev/null", check=False)
        return json.loads(text)["nodes"].get(host, {}) if text else {}

    def forget_reports(self) -> None:
        for host in self.hosts:
            self.on(host, "rm -f /run/sparkthor-fanout/status.json")

    def until(self, host: str, share: float, seconds: float = 600) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            report = self.report(host)
            if report.get("want") and report["received"] >= share * report["want"]:
                assert report["received"] < report["want"], "too late: all is here already"
                return
            time.sleep(0.1)
        raise AssertionError(f"{host} did not come to {share:.0%}: {self.report(host)}")

    def digests(self, host: str, name: str) -> dict[str, str]:
        lines = self.on(host, f"cd {STORE}/{name} && find . -type f -printf '%P\\0' | xargs -0 sha256sum").splitlines()
        return {line[66:]: line[:64] for line in lines}

    def visible(self, host: str, name: str) -> bool:
        return bool(self.on(host, f"ls -d {STORE}/{name} 2>/dev/null", check=False))

    def check_everywhere(self, model: Model) -> None:
        for host in self.hosts:
            assert self.digests(host, model.name) == model.digests, host
            folders = self.names(host)
            links = sorted({folder.partition("@")[0] for folder in folders})
            assert self.on(host, f"ls -A {STORE}").split() == sorted([".records", *links, *folders]), host

    def revision(self, host: str, name: str) -> str:
        return self.on(host, f"readlink {STORE}/{name}").strip()

    def names(self, host: str) -> list[str]:
        return [name.removesuffix(".json") for name in self.on(host, f"ls {STORE}/.records").split()]

    def rate(self, mbit: float | None) -> None:
        for host in self.hosts:
            self.lab.rate(host, NETS, mbit)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    name = os.environ.get("SPARKLAB_NAME", "model-store")
    subnet = os.environ.get("SPARKLAB_SUBNET", "10.79.30.0/24")
    inventory = TOP / "inventories" / "3spark"
    try:
        Lab(name, TOP / ".lab").destroy()
    except LabError as error:  # it is not there, or creating it says what is wrong
        print(f"{name}: {error}")
    lab = Lab.create([inventory], home=TOP / ".lab", name=name, subnet=subnet, suite="trixie")
    yield Site(lab, inventory, tmp_path_factory.mktemp("cache"))
    lab.destroy()


@pytest.fixture
def model(request: pytest.FixtureRequest, tmp_path: Path, site: Site) -> Iterator[Model]:
    """An empty model of the test's own name, gone from the hosts afterwards."""
    name = request.node.name.removeprefix("test_").replace("[", "-").replace("]", "")[:60].strip("-_.")
    site.forget_reports()
    yield Model(name, tmp_path / name)
    for host in site.hosts:
        site.on(host, f"systemctl stop sparkthor-fanout; cd {STORE} && rm -rf {name} {name}@* .records/{name}@* "
                      f".incoming; rm -f /var/lib/filler", check=False)  # fmt: skip
