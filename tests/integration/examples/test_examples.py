# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stranger's path: the release, installed by the site's commands, deploys an example on the lab until it answers.

Simulated hosts cannot load the example's model or image: the engine is the lab's, the model the tiny one, and
everything else is the example as it is.
"""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from sparklab import Lab

from tests.integration.installed.conftest import TOP, Controller, controller

EXAMPLES = sorted(path.name for path in (TOP / "examples").iterdir())
CORE = "2.21"
#: with a certificate: by its own word, and because a ring's hosts share their LAN with others
TLS = ("four-switch-monitored", "ring-networkmanager")
#: what their groups serve here is one model, by two groups of which one has three hosts and the other one
GROUPS = ("two-groups",)
#: what the hosts of an example have beyond a plain one
LAYERS = {
    "four-switch-monitored": ["prometheus"],
    "ring-networkmanager": ["networkmanager"],
    **{name: ["door"] for name in GROUPS},
}
ENGINE = TOP / ".lab" / "engine"


@pytest.fixture(scope="session")
def engine() -> None:
    subprocess.run([sys.executable, "lab/engine/prepare.py"], cwd=TOP, check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def stranger(
    tmp_path_factory: pytest.TempPathFactory,
    built: Path,
    commands: list[str],
) -> Controller:
    begun = time.monotonic()
    found = controller(tmp_path_factory.mktemp("stranger"), CORE, built, commands)
    print(f"ansible-core and the collection installed in {time.monotonic() - begun:.0f} s", flush=True)
    return found


@pytest.fixture(params=EXAMPLES)
def example(request: pytest.FixtureRequest, stranger: Controller, engine: None) -> Iterator[tuple[str, Lab]]:
    """The example's folder in the stranger's home, and the hosts that it names, simulated."""
    name = str(request.param)
    shutil.copytree(stranger.collection / "examples" / name, stranger.home / name)
    number = EXAMPLES.index(name)
    lab = Lab.create(
        [stranger.home / name],
        home=TOP / ".lab",
        name=f"ex-{number}",
        subnet=f"10.78.{70 + number}.0/24",
        suite="bookworm",
        layers=LAYERS.get(name, []),
    )
    try:
        yield name, lab
    finally:
        lab.destroy()


def engine_of_the_lab(path: Path, hosts: int) -> Path:
    """What simulated hosts have instead of GPUs, as extra variables; the plan splits the model if ``hosts`` is 0."""
    lab = yaml.safe_load((TOP / "inventories" / "lab" / "group_vars" / "cluster.yml").read_text())
    given = {
        "engine_runtime": "venv",
        "engine_requirements": str(TOP / "requirements" / "engine" / "lab-cp311-x86_64.txt"),
        "engine_wheel_dir": str(ENGINE / "wheels"),
        "engine_extra_env": lab["engine_extra_env"],
        "model_store_models": [{"name": "tiny-qwen3", "source": str(ENGINE / "model")}],
        "vllm_serve_recipe": "tiny-qwen3",
        **({"vllm_serve_tensor_parallel_size": 1, "vllm_serve_pipeline_parallel_size": hosts} if hosts else {}),
        # the lab's network, in the place of the owner's
        "firewall_api_sources": [],
    }
    path.write_text(json.dumps(given))
    return path


def test_an_example_is_deployed_and_answers(example: tuple[str, Lab], stranger: Controller) -> None:
    name, lab = example
    rows = lab.status()
    extra = engine_of_the_lab(stranger.home / f"{name}.json", 0 if name in GROUPS else len(rows))
    run = f"ansible-playbook sparkthor.cluster.site -i {name} -i {lab.folder / 'inventory.yml'} -e @{extra}"
    begun = time.monotonic()
    stranger.succeed(run, timeout=1800)
    print(f"{name}: deployed in {time.monotonic() - begun:.0f} s", flush=True)
    assert answer(rows[0]["address"], next(lab.folder.glob("secrets/api_key")), tls=name in TLS)
    print(f"{name}: answered {time.monotonic() - begun:.0f} s after the first run began", flush=True)
    again = stranger.succeed(run, timeout=900)
    # the hosts, and the controller's own play
    assert again.count("changed=0 ") == len(rows) + 1, again[-2000:]


def answer(address: str, key: Path, tls: bool) -> str:
    """The text of one completion."""
    context = ssl.create_default_context()
    # the certificate is the head's own, and its fingerprint was shown by the run
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    request = urllib.request.Request(
        f"{'https' if tls else 'http'}://{address}:8000/v1/completions",
        json.dumps({"model": "tiny-qwen3", "prompt": "Hello", "max_tokens": 8}).encode(),
        {"Authorization": f"Bearer {key.read_text().strip()}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=180, context=context) as reply:
        return str(json.load(reply)["choices"][0]["text"])
