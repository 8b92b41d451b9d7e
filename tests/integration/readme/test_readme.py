# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The README's commands from top to bottom, typed as they stand, by somebody who answers what they ask.

Three things are not as the reader has them: the clone comes from this checkout, the machines are simulated, and the
editor of step 3 also sets what simulated machines have instead of GPUs.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
import yaml
from sparklab import Lab, LabError

TOP = Path(__file__).resolve().parents[3]
README = (TOP / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^ *```console\n(.*?)^ *```", README, re.DOTALL | re.MULTILINE)
LINES = [line.partition(" #")[0].strip() for block in BLOCKS for line in block.splitlines()]
URL = re.findall(r"git clone (\S+)", README)[0]
PASSWORD = "of-simulated-hosts-alone"
HOSTS = ("spark-01", "spark-02", "spark-03")
#: what the commands ask, and what a person answers
ANSWERS = {
    r"Type yes to trust [^\n]*": "yes",
    r"Password of the user on the machines[^\n]*: ": PASSWORD,
    r"BECOME password: ": PASSWORD,
}
LIMIT_SECONDS = 1800
EDITOR = f"""#!{sys.executable}
import pathlib, sys, yaml
path = pathlib.Path(sys.argv[1])
own = yaml.safe_load((path.parents[2] / "lab/group_vars/cluster.yml").read_text())
names = ["engine_runtime", "engine_extra_env", "vllm_serve_recipe", "vllm_serve_tensor_parallel_size"]
names += ["vllm_serve_pipeline_parallel_size", "verify_thresholds", "verify_largest", "verify_tokens"]
names += ["engine_requirements", "engine_wheel_dir", "model_store_models", "ray_node_join_timeout"]
found = yaml.safe_load(path.read_text()) or {{}}
found.update({{name: own[name] for name in names}})
path.write_text(yaml.safe_dump(found))
"""


class Person:
    """A shell in which the lines are typed; what ``cd`` and ``.`` change stays for the next one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.before, self.env = folder, "set -e", {}
        git = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{TOP}.insteadOf", "GIT_CONFIG_VALUE_0": URL}
        self.plain = {**os.environ, **git, "LC_ALL": "C.UTF-8", "EDITOR": str(folder / "editor")}
        for name in ("ANSIBLE_CONFIG", "VIRTUAL_ENV", "PYTHONPATH"):
            self.plain.pop(name, None)

    def type(self, line: str) -> str:
        env = {**self.plain, **({} if re.match("git |make ", line) else self.env)}
        begun, said = time.monotonic(), io.StringIO()
        words = ["-c", f"{self.before}\n{line}"]
        asked = [*ANSWERS, pexpect.EOF]
        shell = pexpect.spawn(
            "bash", words, cwd=self.folder, env=env, timeout=LIMIT_SECONDS, encoding="utf-8", dimensions=(50, 160)
        )
        shell.logfile_read = said
        while (found := shell.expect(asked)) < len(ANSWERS):
            shell.sendline(list(ANSWERS.values())[found])
        shell.close()
        text = said.getvalue()
        print(f"{time.monotonic() - begun:6.0f} s  {line}", flush=True)
        assert shell.exitstatus == 0, f"{line} ended with {shell.exitstatus or shell.signalstatus}:\n{text[-6000:]}"
        assert PASSWORD not in text
        for part in line.split("&&"):
            if re.match(r"(?:cd|\.) ", part.strip()):
                self.before += f"\n{part.strip()}"
        return text


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    folder = tmp_path_factory.mktemp("person")
    (folder / "editor").write_text(EDITOR, encoding="utf-8")
    (folder / "editor").chmod(0o755)
    ssh = folder / "home" / ".ssh"
    ssh.mkdir(mode=0o700, parents=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh / "id_ed25519")], check=True)
    found = Person(folder)
    # ssh looks for these in the home that the machine's list of users names, whatever HOME says
    options = f"-F /dev/null -o UserKnownHostsFile={ssh}/known_hosts -o IdentityFile={ssh}/id_ed25519"
    found.env = {"HOME": str(folder / "home"), "ANSIBLE_SSH_COMMON_ARGS": options, "ANSIBLE_NOCOLOR": "1"}
    return found


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three Sparks on a switch, as somebody unpacked them."""
    inventory = tmp_path_factory.mktemp("machines") / "lab.yml"
    groups = {"ray_head": {"hosts": {HOSTS[0]: {}}}, "ray_workers": {"hosts": {name: {} for name in HOSTS[1:]}}}
    inventory.write_text(yaml.safe_dump({"cluster": {"vars": {"fabric_topology": "switch"}, "children": groups}}))
    try:
        Lab("readme", TOP / ".lab").destroy()
    except LabError as error:  # it is not there
        print(f"readme: {error}")
    lab = Lab.create([inventory], home=TOP / ".lab", name="readme", subnet="192.168.1.0/24", suite="bookworm")
    for host in lab.plan.hosts:
        lab.exec(host.name, ["bash", "-c", f"echo nvidia:{PASSWORD} | chpasswd"])
        lab.exec(host.name, ["sed", "-i", "s/NOPASSWD://", "/etc/sudoers.d/90-nvidia"])
    yield lab
    lab.destroy()


def completed(text: str) -> Any:
    """The answer of the command that asks, without what a terminal shows around it."""
    return yaml.safe_load(text[text.index("{") : text.rindex("}") + 1])


def test_the_readme_from_top_to_bottom(person: Person, request: pytest.FixtureRequest) -> None:
    lines = iter(LINES)
    for line in lines:
        text = person.type(line)
        if line == "make up":
            assert "Paris" in text
        if line == "make down":
            break
    machines: Lab = request.getfixturevalue("machines")
    named = ",".join(host.address for host in machines.plan.hosts)
    # the README's addresses are those of the machines
    assert f"discover_addresses={named}" in README
    last = ""
    for line in lines:
        text = person.type(line)
        if line.startswith("ansible-playbook site.yml"):
            last = line
        if line == last and "--check" not in line:
            curl = re.search(r"Try it: (curl [^\r\n]+)", text)
            assert curl, text[-3000:]
            assert completed(person.type(curl[1].replace("curl ", "curl -sS ", 1)))["choices"]
    again = person.type(last)
    assert len(re.findall(r"changed=0 ", again)) >= len(HOSTS), again[-3000:]
    assert not re.search(r"changed=[1-9]", again), again[-3000:]
