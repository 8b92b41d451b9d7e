# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller with the collection as it is installed, and two simulated hosts, of which the first one lies."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from sparklab import Lab, LabError
from sparklab.lab import ssh_arguments

from tests.integration.border.conftest import TOP
from tests.integration.border.lies import ACTED_ON
from tests.integration.sites import Run
from tools.release import build

STORE = "/var/lib/sparkthor/models"
#: what is nobody's business but the operator's
SECRET = b"the operator's own key"
#: what the lying host's programs are kept in
PLACE = "/opt/liar"
#: in place of each Python of a host: one that lies where Ansible asks it, and is itself to everybody else
PYTHON = """#!/bin/sh
case "$1" in
*/AnsiballZ_*) exec /opt/liar/{name} -I /opt/liar/liar.py /opt/liar/answers.json "$@" ;;
*) exec /opt/liar/{name} "$@" ;;
esac
"""
#: the report of a copy, of the run that it is asked about, with what is forged in place of the hosts' words
CAT = """#!/bin/sh
case "$1" in
*sparkthor-fanout/status.json)
  [ -s /opt/liar/status ] && exec /opt/liar/python -I -c '
import json
with open("/run/sparkthor-fanout/status.json") as told, open("/opt/liar/status") as forged:
    print(json.dumps({**json.load(told), **json.load(forged)}))' ;;
esac
exec /bin/cat "$@"
"""
#: what Ansible and the collection keep for themselves on a controller
OWN = (".ansible/tmp/", ".ansible/cp/", ".cache/")
#: by the terminal: a carriage return at each end of a line, and the board of a copy drawn over itself
DRAWN = re.compile("\r|\x1b\\[[0-9]*[AKJ]")

#: tools/test.sh runs scenarios beside one another
SUBNET = os.environ.get("SPARKLAB_SUBNET", "10.79.56.0/24")


class Told(Run):
    """What a run said, and why it stopped."""

    @property
    def why(self) -> str:
        """What Ansible shows as errors before the recap."""
        before = self.output.rpartition("PLAY RECAP")[0]
        return " ".join(before[before.find("[ERROR]") :].split()) if "[ERROR]" in before else ""

    def refused(self, host: str, field: str, fix: str = "leave the host out (--limit)") -> None:
        """The run stopped, and said before the recap whose word it was, of what, and what to do about it."""
        assert self.rc != 0, self.output
        for word in (host, field, fix):
            assert word in self.why, (word, self.output)


@dataclass
class Edge:
    """The lab with its controller; what each run may write there is given, and all else is held against it."""

    lab: Lab
    home: Path
    inventory: str = "cluster"
    liar: str = "spark-01"
    honest: str = "spark-02"

    @property
    def hosts(self) -> tuple[str, str]:
        return self.liar, self.honest

    @property
    def addresses(self) -> dict[str, str]:
        return {host.name: host.address for host in self.lab.plan.hosts}

    def on(self, host: str, command: str, *, check: bool = True) -> str:
        return self.lab.exec(host, ["bash", "-c", command], check=check).stdout

    def lie(self, forged: dict[str, Any], status: str = "") -> None:
        """What the one host forges from now on; ``status`` is its report of a copy."""
        answers = {"python": f"{PLACE}/python", "forged": forged}
        self.write(f"{PLACE}/answers.json", json.dumps(answers))
        self.write(f"{PLACE}/status", status)

    def write(self, path: str, text: str) -> None:
        self.lab.exec(self.liar, ["bash", "-c", f"cat > {path}"], stdin=text)

    def files(self) -> dict[str, str]:
        """All of the controller's files by their contents, links by where they lead."""
        found = {}
        for path in sorted(self.home.rglob("*")):
            name = str(path.relative_to(self.home))
            if name.startswith(OWN) or not (path.is_file() or path.is_symlink()):
                continue
            text = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
            found[name] = hashlib.sha256(text).hexdigest()
        return found

    def store(self, host: str) -> dict[str, str]:
        """All that a host would serve, by name."""
        lines = self.on(host, f"cd {STORE} 2>/dev/null && find -L . -type f -not -path '*/.*' -exec sha256sum {{}} +")
        return {line[66:]: line[:64] for line in lines.splitlines()}

    def play(self, playbook: str, *words: str, may: tuple[str, ...] = (), fleet: bool = True, **given: Any) -> Told:
        """A run of the installed collection on a terminal, with nothing of this checkout's configuration."""
        command = [str(Path(sys.executable).with_name("ansible-playbook")), f"sparkthor.cluster.{playbook}"]
        command += [f"--inventory={self.inventory}"] if fleet else []
        command += ["--user=nvidia", f"--private-key={self.lab.folder / 'ssh/id_ed25519'}"]
        command += ["--ssh-common-args", " ".join(ssh_arguments(self.lab.folder)), *words]
        command += ["-e", json.dumps(given)]
        before = self.files()
        begun = time.monotonic()
        rc, said = on_a_terminal(command, self.home, self.environment())
        run = Told(rc, time.monotonic() - begun, DRAWN.sub("", said))
        why = run.why[:400] if rc else ""
        print(f"{playbook} {' '.join(words)}: {rc} after {run.seconds:.0f} s {why}", flush=True)
        shown = [line for line in run.output.split("\n") if ACTED_ON.search(line)]
        assert not shown, shown
        after = self.files()
        changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
        assert not [name for name in changed if not name.startswith(may or ("none",))], changed
        for host in self.hosts:
            places = "/etc /home /opt /root /run /srv /tmp /var"
            found = self.on(host, f"grep -rlsF --devices=skip '{SECRET.decode()}' {places}", check=False)
            assert not found, (host, found)
        return run

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "MOLECULE"))}
        return {**kept, "HOME": str(self.home), "XDG_CACHE_HOME": str(self.home / ".cache"), "ANSIBLE_NOCOLOR": "1"}


def on_a_terminal(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """A program's exit status, and every character that its terminal got."""
    ours, theirs = os.openpty()

    def take_it() -> None:
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    with subprocess.Popen(
        command,
        cwd=folder,
        env={**environment, "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=take_it,
    ) as process:
        os.close(theirs)
        said = b""
        try:
            while block := os.read(ours, 1 << 16):
                said += block
        except OSError:  # the last program that had the terminal has ended
            pass
        process.wait(60)
    os.close(ours)
    return process.returncode, said.decode("utf-8", "surrogateescape")


def make_a_liar(edge: Edge) -> None:
    """Whatever Python Ansible finds there lies from now on."""
    edge.on(edge.liar, f"mkdir -p {PLACE}")
    edge.write(f"{PLACE}/liar.py", (TOP / "tests/integration/border/liar.py").read_text(encoding="utf-8"))
    edge.lie({})
    name = edge.on(edge.liar, "basename $(readlink -f /usr/bin/python3)").strip()
    edge.on(edge.liar, f"cp /usr/bin/{name} {PLACE}/{name}; ln -s {name} {PLACE}/python; rm /usr/bin/{name}")
    edge.write(f"/usr/bin/{name}", PYTHON.format(name=name))
    # what is asked of the shell is answered by a program that stands before the real one
    edge.write("/usr/local/bin/cat", CAT)
    edge.on(edge.liar, f"chmod 755 /usr/bin/{name} /usr/local/bin/cat")


@pytest.fixture(scope="session")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    folder, home = tmp_path_factory.mktemp("lab"), tmp_path_factory.mktemp("home")
    names = ("spark-01", "spark-02")
    groups = {"ray_head": {"hosts": {names[0]: {}}}, "ray_workers": {"hosts": {names[1]: {}}}}
    inventory = folder / "lab.yml"
    document = {"cluster": {"vars": {"fabric_topology": "direct"}, "children": groups}, "sparks": {}}
    document["sparks"] = {"children": {"cluster": {}}}
    inventory.write_text(yaml.safe_dump(document), encoding="utf-8")
    with lab_of("border", inventory, subnet=SUBNET, suite="bookworm") as lab:
        made = Edge(lab, home)
        set_up(made)
        yield made


@contextmanager
def lab_of(name: str, inventory: Path, **more: Any) -> Iterator[Lab]:
    """A lab of these tests alone; BORDER_KEEP in the environment leaves it there to be looked at."""
    try:
        Lab(name, TOP / ".lab").destroy()
    except LabError as error:  # it is not there
        print(f"{name}: {error}")
    lab = Lab.create([inventory], home=TOP / ".lab", name=name, **more)
    try:
        yield lab
    finally:
        if not os.environ.get("BORDER_KEEP"):
            lab.destroy()


def set_up(edge: Edge) -> None:
    """A host that lies, something worth stealing, and the collection."""
    make_a_liar(edge)
    (edge.home / ".ssh").mkdir()
    (edge.home / ".ssh" / "id_ed25519").write_bytes(SECRET)
    install(edge)


def install(edge: Edge) -> None:
    """The collection from its archive, which is then the one that is used."""
    program = str(Path(sys.executable).with_name("ansible-galaxy"))
    words = [program, "collection", "install", str(build(edge.home)), "--no-deps", "--force"]
    subprocess.run(words, cwd=edge.home, env=edge.environment(), check=True, stdout=subprocess.DEVNULL)
    asked = [program.replace("ansible-galaxy", "ansible-doc"), "--json", "sparkthor.cluster.model_copy"]
    shown = subprocess.run(asked, cwd=edge.home, env=edge.environment(), check=True, capture_output=True)
    where = json.loads(shown.stdout)["sparkthor.cluster.model_copy"]["doc"]["filename"]
    assert Path(where).is_relative_to(edge.home), where
