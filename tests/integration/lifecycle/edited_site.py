# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab and an inventory that tests edit as a person would."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from typing import Any

import yaml
from sparklab import Lab, LabError

from tests.integration.conftest import TOP
from tools.playbooks import Outcome, run_playbook

MODEL = "tiny-qwen3"


class Site:
    """Made from one of the project's inventories; the lab has all of ``hosts``, whoever is a member."""

    model = MODEL

    def __init__(self, name: str, source: str, hosts: list[str], subnet: str) -> None:
        self.name, self.subnet, self.said = name, subnet, list[str]()
        # the inventory's paths lead two folders up
        self.inventory, self.machines = (TOP / ".lab" / f"{name}-{what}" for what in ("inventory", "machines"))
        try:
            Lab(name, TOP / ".lab").destroy()
        except LabError as error:  # it is not there
            print(error)
        shutil.rmtree(self.inventory, ignore_errors=True)
        shutil.copytree(TOP / "inventories" / source, self.inventory)
        self.write(hosts)
        self.copy_machines()
        self.lab = self.create()

    def copy_machines(self) -> None:
        """The lab is made from the inventory as it is now."""
        shutil.rmtree(self.machines, ignore_errors=True)
        shutil.copytree(self.inventory, self.machines)

    def create(self) -> Lab:
        """The lab, with what is missing of it, and the wheels and the model that its hosts get."""
        subprocess.run([sys.executable, "lab/engine/prepare.py"], cwd=TOP, check=True)
        return Lab.create([self.machines], home=TOP / ".lab", name=self.name, subnet=self.subnet)

    def cable(self) -> None:
        """The hosts are cabled anew, as the inventory says now; somebody turned them off for it."""
        self.lab.shutdown()
        assert self.lab.rest()
        (self.lab.folder / "lab.json").unlink()
        self.copy_machines()
        self.lab = self.create()

    def write(self, members: list[str], **variables: Any) -> None:
        """The inventory with these hosts, the head first, and a split over all of them."""
        self.members = members
        file, group = self.inventory / "hosts.yml", self.inventory / "group_vars/cluster.yml"
        tree = yaml.safe_load(file.read_text())
        children = tree["cluster"]["children"]
        children["ray_head"]["hosts"] = {members[0]: None}
        children["ray_workers"]["hosts"] = dict.fromkeys(members[1:])
        file.write_text(yaml.safe_dump(tree, sort_keys=False))
        given = {**yaml.safe_load(group.read_text()), "vllm_serve_pipeline_parallel_size": len(members), **variables}
        group.write_text(yaml.safe_dump(given, sort_keys=False))

    def play(self, playbook: str = "playbooks/site.yml", *arguments: str, ok: bool = True, **variables: Any) -> Outcome:
        self.said = []
        outcome = run_playbook(
            playbook,
            [self.inventory, self.lab.folder / "inventory.yml"],
            extra_vars={"monitoring_enabled": True, **variables},
            arguments=list(arguments),
            name="lifecycle",
            say=lambda line: self.said.append(line.strip()),
        )
        print(f"{playbook} {' '.join(arguments)}: {outcome.seconds:.0f} s, rc {outcome.rc}", flush=True)
        if ok:
            assert outcome.rc == 0, outcome.failures
        return outcome

    def on(self, host: str, command: str) -> str:
        return self.lab.exec(host, ["bash", "-c", command]).stdout

    def secrets(self) -> list[str]:
        return [(self.lab.folder / "secrets" / name).read_text() for name in ("api_key", "ray_token")]

    def fabric(self, host: str) -> list[str]:
        # without the number of the other end, which is another machine's
        return self.on(
            host, "ip -br -4 address show scope global | sed -n 's/@if[0-9]*//; /10\\.100\\./p'"
        ).splitlines()

    def addresses(self, host: str) -> list[str]:
        """Those of the fabric, whichever ports have them."""
        return sorted(line.split()[-1] for line in self.fabric(host))

    def completes(self) -> None:
        """A real completion of the length that was asked for."""
        address = self.lab.plan.host(self.members[0]).address
        key = self.secrets()[0].strip()
        body = json.dumps({"model": self.model, "prompt": "hello", "max_tokens": 4}).encode()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{address}:8000/v1/completions", body, headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 4

    def serves(self) -> None:
        """By a real completion, and with nothing left to do."""
        self.completes()
        assert sum(self.play().changed.values()) == 0
