# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model's revisions on a cluster that serves: switched, refused, and pushed while the power goes.

SPARKTHOR_POWER_LOSSES   how often the power goes (default 5)
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml

from tests.integration.conftest import TOP, Cluster

MODEL = "tiny-qwen3"
STORE = "/var/lib/sparkthor/models"
LOSSES = int(os.environ.get("SPARKTHOR_POWER_LOSSES", "5"))
#: time without service for a switch with everything prefetched, in clean starts
MOST = 1.3


@dataclass
class Models:
    """The lab, and a folder on the controller that is the model's source."""

    cluster: Cluster
    source: Path
    #: seconds of the restart, of the switch
    figures: dict[str, float] = field(default_factory=dict)

    def command(self, playbook: str, **variables: Any) -> list[str]:
        settings = {"model_store_models": [{"name": MODEL, "source": str(self.source)}], **variables}
        return [
            str(Path(sys.executable).with_name("ansible-playbook")),
            str(TOP / "playbooks" / playbook),
            *(f"--inventory={path}" for path in self.cluster.inventories),
            f"--extra-vars={json.dumps(settings)}",
        ]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}

    def play(self, playbook: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        begun = time.monotonic()
        done = subprocess.run(
            self.command(playbook, **variables),
            env=self.environment,
            cwd=TOP,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        print(f"{playbook}: {time.monotonic() - begun:.0f} s, rc {done.returncode}", flush=True)
        return done

    def site(self, **variables: Any) -> str:
        done = self.play("site.yml", **variables)
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout

    @property
    def api(self) -> openai.OpenAI:
        return openai.OpenAI(
            base_url=f"{self.cluster.endpoint}/v1", api_key=self.cluster.api_key, timeout=60.0, max_retries=0
        )

    def answer(self) -> str:
        found = self.api.completions.create(model=MODEL, prompt="hello", max_tokens=8, temperature=0.0)
        return found.choices[0].text

    def serves(self, seconds: float = 600) -> None:
        end = time.monotonic() + seconds
        while True:
            try:
                assert self.answer()
            except openai.OpenAIError:
                assert time.monotonic() < end, "no completion"
                time.sleep(1)
            else:
                return

    def served(self) -> str:
        """The revision that the head's configuration names."""
        config = yaml.safe_load(self.cluster.run(self.cluster.head, "cat /etc/sparkthor/vllm.yaml"))
        return Path(config["model"]).name

    def links(self) -> set[str]:
        return {self.cluster.run(host, f"readlink {STORE}/{MODEL}").strip() for host in self.cluster.hosts}

    def contents(self, revision: str) -> set[str]:
        """What the hosts have under that name; one text where they agree."""
        command = f"cd {STORE}/{revision} && find . -type f -print0 | sort -z | xargs -0 sha256sum"
        return {self.cluster.run(host, command) for host in self.cluster.hosts}

    def starts(self) -> int:
        text = self.cluster.run(self.cluster.head, "journalctl --no-pager -o cat -u sparkthor-vllm -t systemd")
        return sum(line.startswith("Starting ") for line in text.splitlines())

    @contextmanager
    def watched(self, figure: str) -> Iterator[None]:
        """Ask all the time; ``figure`` becomes the seconds from the last answer before a gap to the first one after."""
        answered: list[float] = []
        ended = threading.Event()

        def ask() -> None:
            while not ended.is_set():
                try:
                    self.api.with_options(timeout=5.0).completions.create(model=MODEL, prompt="1", max_tokens=1)
                    answered.append(time.monotonic())
                except openai.OpenAIError:
                    pass  # that is what is counted
                ended.wait(0.2)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            yield
        finally:
            ended.set()
            asking.join()
        self.figures[figure] = max(after - before for before, after in itertools.pairwise(answered))
        print(f"{figure}: {self.figures[figure]:.1f} s without an answer", flush=True)


@pytest.fixture(scope="module")
def models(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    source = tmp_path_factory.mktemp("source") / MODEL
    shutil.copytree(TOP / ".lab/engine/model", source)
    found = Models(cluster, source)
    found.site()
    yield found
    found.site(model_store_models=[{"name": MODEL, "source": str(TOP / ".lab/engine/model")}])


def revise(source: Path, number: int) -> None:
    """Another content that serves like the one before."""
    config = json.loads((source / "config.json").read_text())
    config["revision_of_the_lab"] = number
    (source / "config.json").write_text(json.dumps(config))


def test_a_new_revision_restarts_once_and_sends_what_changed(models: Models) -> None:
    old, starts = models.served(), models.starts()
    weights = f"stat -c %i {STORE}/{{}}/model.safetensors"
    inode = models.cluster.run(models.cluster.head, weights.format(old))
    revise(models.source, 1)
    models.site()
    new = models.served()
    assert new != old
    assert models.links() == {new}
    assert models.starts() == starts + 1
    assert models.cluster.run(models.cluster.head, weights.format(new)) == inode
    assert len(models.contents(old)) == len(models.contents(new)) == 1
    again = models.site()
    assert set(re.findall(r"changed=(\d+)", again)) == {"0"}
    assert models.starts() == starts + 1


def test_the_power_goes_in_the_middle_of_it(models: Models) -> None:
    """Every host and the controller's run end at a random moment; what boots is one revision on all of them."""
    chance = random.Random(22)
    begun = time.monotonic()
    revise(models.source, 100)
    models.site()
    whole = time.monotonic() - begun
    for number in range(LOSSES):
        old = models.served()
        revise(models.source, 101 + number)
        run = subprocess.Popen(
            models.command("site.yml"),
            env=models.environment,
            cwd=TOP,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        moment = chance.uniform(0.1, 0.95) * whole
        time.sleep(moment)
        models.cluster.lab.off()
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        models.cluster.lab.boot()
        models.serves()
        served = models.served()
        contents = models.contents(served)
        print(
            f"power lost after {moment:.0f} of {whole:.0f} s: {'old' if served == old else 'new'} revision", flush=True
        )
        assert len(contents) == 1, "not the same on all hosts"
        this = "_SYSTEMD_INVOCATION_ID=$(systemctl show -P InvocationID sparkthor-vllm)"
        log = models.cluster.run(models.cluster.head, f"journalctl --no-pager -o cat {this}")
        assert set(re.findall(rf"{STORE}/({MODEL}@[0-9a-f]{{16}})", log)) == {served}
        models.site()
        assert models.links() == {models.served()}
        assert models.served() != old


def test_a_revision_that_does_not_start_leaves_the_former_one_serving(models: Models) -> None:
    old, answer = models.served(), models.answer()
    kept = (models.source / "config.json").read_text()
    # what vLLM refuses when it builds the model, and nobody before; a bias that is not there it no longer misses
    (models.source / "config.json").write_text(json.dumps({**json.loads(kept), "hidden_act": "tanh"}))
    done = models.play("switch_model.yml")
    (models.source / "config.json").write_text(kept)
    assert done.returncode != 0
    assert "serves again" in done.stdout, done.stdout[-4000:]
    assert (models.served(), models.answer()) == (old, answer)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"recipe": "no-such-recipe"}, "no-such-recipe"),
        ({"recipe": "deepseek-v3-671b-awq"}, "vllm_serve_recipe"),
        ({"recipe": "tiny-qwen3", "vllm_serve_model": "other"}, "vllm_serve_model: other goes before"),
    ],
)
def test_bad_input_changes_nothing(models: Models, variables: dict[str, Any], message: str) -> None:
    starts, served = models.starts(), models.served()
    done = models.play("switch_model.yml", **variables)
    assert done.returncode != 0
    assert "Nothing was changed" in done.stdout
    assert message in done.stdout
    assert (models.starts(), models.served()) == (starts, served)
    assert models.answer()


def test_an_incomplete_revision_changes_nothing(models: Models) -> None:
    weights = models.source / "model.safetensors"
    weights.rename(models.source.parent / "away")
    try:
        starts, served = models.starts(), models.served()
        done = models.play("switch_model.yml")
        assert done.returncode != 0
        assert "Nothing was changed" in done.stdout
        assert (models.starts(), models.served()) == (starts, served)
    finally:
        (models.source.parent / "away").rename(weights)


def test_a_switch_is_away_no_longer_than_a_start(models: Models) -> None:
    with models.watched("restart"):
        assert models.play("restart.yml").returncode == 0
        models.serves()
    revise(models.source, 200)
    with models.watched("switch"):
        done = models.play("switch_model.yml")
        assert done.returncode == 0, done.stdout[-4000:]
    assert models.links() == {models.served()}
    assert models.figures["switch"] <= MOST * models.figures["restart"]
