# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make up``: lab, site.yml, a question whose answer is known, a summary."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

import openai
import sparklab.inventory
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import front
from sparklab import Lab

from tools.playbooks import TOP, run_playbook

INVENTORY = TOP / "inventories" / "lab"
QUESTION = "What is the capital of France? Answer in one sentence."
#: what stands in a true answer, and the model that gives one; the tiny one's weights are random
TRUE, SENSIBLE = "Paris", "smollm2-135m-instruct"
ANSWER_TOKENS = 32


class Screen:
    """Lines, and one that is rewritten where a terminal shows it; in a log it is printed like the others."""

    def __init__(self) -> None:
        self._terminal, self._open = sys.stdout.isatty(), False

    def say(self, line: str) -> None:
        print(("\n" if self._open else "") + line, flush=True)
        self._open = False

    def news(self, line: str) -> None:
        if not self._terminal:
            self.say(f"           {line}")
            return
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[2K           {line}"[: width + len("\r\x1b[2K")], end="", flush=True)
        self._open = True


screen = Screen()
say = screen.say


class Stages:
    """Seconds by stage, printed as they end."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def run(self, name: str, argv: list[str]) -> None:
        say(f"--- {name}")
        begun = time.monotonic()
        done = subprocess.run(argv, cwd=TOP, check=False)
        self.seconds[name] = time.monotonic() - begun
        if done.returncode != 0:
            say(f"make up: stage '{name}' ended with exit code {done.returncode}; what it printed is above")
            sys.exit(done.returncode)


def ask(endpoint: str, key: str) -> tuple[str, str, float]:
    """One streamed chat completion through the official client, shown as it comes: model, answer and its seconds."""
    client = openai.OpenAI(base_url=endpoint, api_key=key, timeout=180.0, max_retries=0)
    model = client.models.list().data[0].id
    say(f"--- {model}: {QUESTION}")
    begun = time.monotonic()
    parts = []
    for chunk in client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": QUESTION}],
        max_tokens=ANSWER_TOKENS,
        temperature=0.0,
        stream=True,
    ):
        if chunk.choices and (part := chunk.choices[0].delta.content):
            parts.append(part)
            print(part, end="", flush=True)
    say("")
    return model, "".join(parts), time.monotonic() - begun


def is_wrong(model: str, answer: str) -> bool:
    """Whether a model that can answer did not; random weights cannot."""
    return model == SENSIBLE and TRUE not in answer


def main() -> None:
    parser = argparse.ArgumentParser(prog="make up", description=__doc__)
    parser.add_argument("-i", "--inventory", default=str(INVENTORY), help="inventory whose hosts the lab makes")
    arguments = parser.parse_args()
    inventory = Path(arguments.inventory).resolve()
    begun = time.monotonic()
    stages = Stages()
    stages.run("engine wheels and models", [sys.executable, "lab/engine/prepare.py", "--smollm2"])
    stages.run("simulated hosts", [sys.executable, "-m", "sparklab", "create", "-i", str(inventory)])

    say("--- site.yml")
    outcome = run_playbook("site.yml", [inventory], name="up", say=say, news=screen.news)
    stages.seconds["site.yml"] = outcome.seconds
    if outcome.rc != 0:
        for failure in outcome.failures:
            say(failure)
        say(f"make up: site.yml ended with exit code {outcome.rc}; all it printed: {outcome.artifacts}")
        sys.exit(outcome.rc)

    request = sparklab.inventory.interpret(sparklab.inventory.read([str(inventory)]))
    lab = Lab(sparklab.inventory.default_name(request, [str(inventory)]))
    secrets = lab.folder / "secrets" / "api_key"
    endpoint = f"http://{lab.plan.hosts[0].address}:8000/v1"
    model, answer, seconds = ask(endpoint, secrets.read_text(encoding="utf-8").strip())
    stages.seconds["answer"] = seconds

    say("")
    say(f"endpoint   {endpoint}")
    say(f"page       {front.page_url(endpoint)}")
    say(f"API key    {secrets.relative_to(TOP)}")
    say(f"model      {model}")
    say("")
    for name, value in stages.seconds.items():
        say(f"{value:8.1f} s  {name}")
        if name == "site.yml":
            for stage, part in outcome.stages.items():
                say(f"  {part:8.1f} s  {stage}")
    say(f"{time.monotonic() - begun:8.1f} s  in all")
    if is_wrong(model, answer):
        say(f"make up: the cluster serves, but the answer is wrong: {TRUE} does not stand in it")
        sys.exit(1)


if __name__ == "__main__":
    main()
