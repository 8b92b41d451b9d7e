# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No way from the serving user to root: what that user plants is neither run nor followed, whenever root comes by."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest

from .conftest import Target

HOME = "/var/lib/sparkthor"
HARDENING = {"teardown_parts": "hardening", "teardown_acknowledged": True}
CACHE = f"{HOME}/cache"
#: of root's, and what a planted link leads to
CANARY = "/srv/canary"
#: who ran what was planted: a file named by the user's number
PROOF = f"{CACHE}/proof"
PAYLOAD = f"import os; open(f'{PROOF}-{{os.geteuid()}}', 'a').close()"

#: run by the engine's Python as the serving user: whatever an interpreter may take up by itself
PLANT = f"""
import importlib.util, marshal, os, pathlib, site, subprocess, sys
payload = {PAYLOAD!r}
versions = {{f"python3.{{minor}}" for minor in range(9, 15)}}
for home in ({CACHE!r}, {HOME!r}, {HOME + "/ray"!r}):
    for version in versions:
        folder = pathlib.Path(home, ".local/lib", version, "site-packages")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        (folder / "planted.pth").write_text(payload + "\\n")
        for name in ("usercustomize", "sitecustomize"):
            (folder / f"{{name}}.py").write_text(payload + "\\n")
    for name in ("sitecustomize", "usercustomize", "argparse", "shutil"):
        found = importlib.util.find_spec(name) if "customize" not in name else None
        # a module does what it always did, so that what imports it goes on
        source = pathlib.Path(found.origin).read_text() if found else ""
        try:
            pathlib.Path(home, f"{{name}}.py").write_text(source + "\\n" + payload + "\\n")
        except OSError:
            continue
# bytecode that has the time and size of its source, so that no interpreter looks at the source
compiled = 0
for name in ("json", "argparse", "subprocess", "shutil", "importlib.metadata", "logging"):
    source = importlib.util.find_spec(name).origin
    stem = os.path.splitext(source)[0]
    target = pathlib.Path(f"{CACHE}/pycache{{stem}}.{{sys.implementation.cache_tag}}.pyc")
    if not target.exists():
        continue
    header = target.read_bytes()[:16]
    code = compile(pathlib.Path(source).read_text() + "\\n" + payload + "\\n", source, "exec")
    target.unlink()
    target.write_bytes(header + marshal.dumps(code))
    compiled += 1
print(compiled)
"""


@pytest.fixture
def canary(target: Target) -> Iterator[str]:
    """The shell line that shows it; it says the same after the attack."""
    show = f"cd {CANARY} && stat -c '%n %u %g %a %h %s' . * && cat *"
    for host in target.hosts:
        target.run(host, f"mkdir -p -m 0750 {CANARY} && echo precious > {CANARY}/file && chmod 600 {CANARY}/file")
    before = {host: target.run(host, show) for host in target.hosts}
    yield show
    after = {host: target.run(host, show) for host in target.hosts}
    for host in target.hosts:
        target.run(host, f"rm -rf {CANARY}")
    assert after == before


def restart(target: Target) -> None:
    # Ray's stop alone may take two minutes on a busy machine
    units = "sparkthor-ray sparkthor-vllm sparkthor-watchdog sparkthor-front"
    target.run(target.head, f"systemctl restart {units}", timeout=600)
    target.serving()


def test_what_is_planted_for_python_never_runs_as_root(target: Target) -> None:
    """A .pth, usercustomize, sitecustomize, modules in working folders, and bytecode."""
    for host in target.hosts:
        planted = target.run_as(host, f"cd / && /opt/sparkthor/venv/bin/python -B - <<'END'\n{PLANT}\nEND")
        assert planted.returncode == 0, planted.stderr
        if host == target.head:
            assert int(planted.stdout.splitlines()[-1]) > 0, "no bytecode of the engine to plant in"
        target.run(host, f"rm -f {PROOF}-*")
    try:
        restart(target)
        # every program of root's that Ansible brings
        target.play()
        target.play("playbooks/status.yml")
        target.play("playbooks/doctor.yml", ok=False)
        target.play("playbooks/teardown.yml", "--limit", target.hosts[-1], **HARDENING)
        target.play()
        ran = {host: target.run(host, f"ls {CACHE}").split() for host in target.hosts}
        serving = target.run(target.head, "id -u sparkthor").strip()
        print(f"ran: {ran}", flush=True)
        assert f"proof-{serving}" in ran[target.head], "what was planted was never run at all: the attack is not one"
        assert [host for host, names in ran.items() if "proof-0" in names] == []
    finally:
        for host in target.hosts:
            target.run(host, f"rm -rf {PROOF}-* {CACHE}/pycache {{{CACHE},{HOME}/ray}}/{{.local,*.py}}")
        restart(target)


FORBIDDEN = (
    f"mv {CACHE} {HOME}/away",
    f"ln -s / {HOME}/new",
    f"touch {HOME}/maintenance",
    f"echo '{{\"generation\": 99}}' > {HOME}/superseded.json",
    f"rm -f {HOME}/host_state.json",
    f"mkdir {HOME}/models/planted",
    f"mv {HOME}/models/tiny-qwen3 {HOME}/models/away",
    f"touch {HOME}/models/tiny-qwen3/config.json",
    f"ln -s /etc {HOME}/models/.incoming",
    f"ls {HOME}/models/.incoming/",
    "touch /etc/sparkthor/vllm.env",
    "touch /usr/local/lib/sparkthor/sparkthor_host/_lib/files.py",
    "touch /opt/sparkthor/venv/bin/python",
    "touch /run/sparkthor/state.json",
    "ls /etc/sparkthor/secrets/",
    "touch /var/lib/sparkthor-last-good/vllm.env",
)


@pytest.mark.parametrize("command", FORBIDDEN)
def test_the_serving_user_may_not(target: Target, command: str) -> None:
    for host in target.hosts:
        assert target.run_as(host, command).returncode != 0, command


def test_planted_links_lead_nowhere(target: Target, canary: str) -> None:
    """In every folder that the serving user may write to, before a restart and a run of site.yml."""
    links = {
        f"{CACHE}/pycache": CANARY,
        f"{CACHE}/planted": CANARY,
        f"{HOME}/ray/t/session_2000-01-01_00-00-00_000000_1": CANARY,
        f"{HOME}/ray/t/ray_current_cluster": f"{CANARY}/file",
        "/run/sparkthor/ray/starts": f"{CANARY}/file",
        "/run/sparkthor/requests/drop-caches": f"{CANARY}/file",
        "/run/sparkthor/vllm/serve.yaml": f"{CANARY}/file",
        "/run/sparkthor/vllm/group.json": f"{CANARY}/file",
    }
    for host in target.hosts:
        for path, leads_to in links.items():
            # where the folder is absent (a worker has no socket) there is nothing to plant
            place = shlex.quote(path)
            target.run_as(host, f"test -d $(dirname {place}) && rm -rf {place} && ln -s {leads_to} {place}")
            # a hard link is refused by the kernel, unless that was switched off
            target.run_as(host, f"ln {CANARY}/file {place}.hard")
    # four failed starts make the next one remove the compiled modules
    target.run(target.head, "echo '{\"starts\": 4}' > /run/sparkthor/vllm-starts.json")
    restart(target)
    target.play()
    for host in target.hosts:
        target.run(host, f"find {CACHE} {HOME}/ray/t /run/sparkthor -type l -lname '{CANARY}*' -delete")
    target.serving()


def test_what_an_earlier_version_left_to_the_user_becomes_roots(target: Target, canary: str) -> None:
    """The migration, with a forged ledger, a store in the user's hands, and links where folders were."""
    host = target.hosts[-1]
    forged = json.dumps({"links": {"/etc/systemd/system/default.target": f"{CACHE}/evil.target"}})
    link = target.run(host, "readlink -f /etc/systemd/system/default.target")
    files = target.run(host, f"ls {HOME}/models/tiny-qwen3/").split()
    target.run(
        host,
        f"set -e; cd {HOME}/models; revision=$(readlink -f tiny-qwen3); rm tiny-qwen3; mv $revision tiny-qwen3;"
        f"chown -hR sparkthor:sparkthor tiny-qwen3; chown sparkthor {HOME} {HOME}/models",
    )
    # the kernel refuses the hard link where fs.protected_hardlinks is on
    attack = target.run_as(
        host,
        f"set -e; cd {HOME}; rm -f host_state.json; printf %s {shlex.quote(forged)} > host_state.json;"
        f"ln -s {CANARY} models/tiny-qwen3/extra; ln {CANARY}/file models/tiny-qwen3/hard || true",
    )
    assert attack.returncode == 0, attack.stderr
    target.play()
    owners = f"stat -L -c '%U %a' {HOME} {HOME}/models {HOME}/models/tiny-qwen3 {HOME}/models/tiny-qwen3/config.json"
    assert target.run(host, owners).split() == ["root", "755", "root", "755", "root", "755", "root", "644"]
    # of what was planted among the model's files nothing is in what serves
    assert target.run(host, f"ls {HOME}/models/tiny-qwen3/").split() == files
    # what teardown puts back is what root has noted, never what the user wrote
    target.play("playbooks/teardown.yml", "--limit", host, **HARDENING)
    assert "evil" not in target.run(host, "readlink -f /etc/systemd/system/default.target")
    target.run(host, f"rm -f {HOME}/host_state.json")
    target.play()
    assert target.run(host, "readlink -f /etc/systemd/system/default.target") == link
    target.serving()


def test_a_planted_cache_folder_stops_the_run_before_a_change(target: Target, canary: str) -> None:
    """Where the user still owned the folder above when it was planted."""
    host = target.hosts[-1]
    target.run(host, f"mv {CACHE} {CACHE}.kept && ln -s {CANARY} {CACHE} && chown -h sparkthor {CACHE}")
    try:
        outcome = target.play(ok=False)
        assert outcome.rc != 0
        assert "is a link of user" in str(outcome.failures)
    finally:
        target.run(host, f"rm {CACHE} && mv {CACHE}.kept {CACHE}")
    target.play()
    target.serving()
