# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make up``: lab, site.yml, one real completion, a summary."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import openai
import sparklab.inventory
from sparklab import Lab

from tools.playbooks import TOP, run_playbook

INVENTORY = TOP / "inventories" / "lab"
QUESTION = "Say hello to the cluster."


def say(line: str) -> None:
    print(line, flush=True)


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


def complete(endpoint: str, key: str, model: str) -> tuple[str, float]:
    """One chat completion through the official client; the reply's text and its seconds."""
    client = openai.OpenAI(base_url=endpoint, api_key=key, timeout=180.0, max_retries=0)
    begun = time.monotonic()
    reply = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": QUESTION}], max_tokens=16, temperature=0.0
    )
    return reply.choices[0].message.content or "", time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(prog="make up", description=__doc__)
    parser.add_argument("-i", "--inventory", default=str(INVENTORY), help="inventory whose hosts the lab makes")
    arguments = parser.parse_args()
    inventory = Path(arguments.inventory).resolve()
    begun = time.monotonic()
    stages = Stages()
    stages.run("engine wheels and model", [sys.executable, "lab/engine/prepare.py"])
    stages.run("simulated hosts", [sys.executable, "-m", "sparklab", "create", "-i", str(inventory)])

    say("--- site.yml")
    outcome = run_playbook("site.yml", [inventory], name="up", say=say)
    stages.seconds["site.yml"] = outcome.seconds
    if outcome.rc != 0:
        for failure in outcome.failures:
            say(failure)
        say(f"make up: site.yml ended with exit code {outcome.rc}; all it printed: {outcome.artifacts}")
        sys.exit(outcome.rc)

    request = sparklab.inventory.interpret(sparklab.inventory.read([str(inventory)]))
    lab = Lab(sparklab.inventory.default_name(request, [str(inventory)]))
    secrets = lab.folder / "secrets" / "api_key"
    endpoint = os.environ.get("SPARKTHOR_ENDPOINT", "http://10.77.0.11:8000/v1")
    text, seconds = complete(endpoint, secrets.read_text(encoding="utf-8").strip(), "tiny-qwen3")
    stages.seconds["first completion"] = seconds

    say("")
    say(f"endpoint   {endpoint}")
    say(f"API key    {secrets}")
    say(f"answer     {text!r}")
    say("")
    for name, value in stages.seconds.items():
        say(f"{value:8.1f} s  {name}")
        if name == "site.yml":
            for stage, part in outcome.stages.items():
                say(f"  {part:8.1f} s  {stage}")
    say(f"{time.monotonic() - begun:8.1f} s  in all")


if __name__ == "__main__":
    main()
