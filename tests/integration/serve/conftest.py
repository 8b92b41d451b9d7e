# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A converged lab whose serving group the tests change, one after the other, in the order of the file."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml

from tests.integration.conftest import TOP, Cluster
from tools.playbooks import Outcome, run_playbook

MODEL = "tiny-qwen3"
HERE = Path(__file__).resolve().parent
#: what the scenario's first converge serves
FIRST = yaml.safe_load((HERE / "first.yml").read_text())
#: what is asked of the cluster and of one host alone
PROMPTS = ("hello",)
TOKENS = 16
ENGINE_ROLES = ["--tags", "ray,vllm_serve"]


def reference(prompt: str) -> dict[str, Any]:
    """The greedy answer of one host alone, from the cache where it was asked before."""
    command = [sys.executable, str(TOP / "lab/engine/reference_answer.py")]
    done = subprocess.run(
        [*command, "--prompt", prompt, "--max-tokens", str(TOKENS)],
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
    )
    return json.loads(done.stdout.splitlines()[-1])


@dataclass
class Serving:
    """The lab, and how to ask for another configuration of it."""

    cluster: Cluster
    inventories: list[Path] = field(default_factory=list)

    def play(self, playbook: str = "site.yml", arguments: list[str] | None = None, **variables: Any) -> Outcome:
        outcome = run_playbook(
            playbook,
            self.inventories or self.cluster.inventories,
            extra_vars=variables or None,
            arguments=arguments or [],
            name="serve",
            say=lambda line: None,
        )
        print(f"{playbook} {variables}: {outcome.seconds:.0f} s, rc {outcome.rc}", flush=True)
        return outcome

    def site(self, *, whole: bool = False, **variables: Any) -> Outcome:
        outcome = self.play("site.yml", [] if whole else ENGINE_ROLES, **variables)
        assert outcome.rc == 0, outcome.failures
        return outcome

    @property
    def api(self) -> openai.OpenAI:
        return openai.OpenAI(
            base_url=f"{self.cluster.endpoint}/v1", api_key=self.cluster.api_key, timeout=180.0, max_retries=0
        )

    def starts(self, unit: str = "sparkthor-vllm.service", host: str | None = None) -> int:
        """How often systemd has started a unit on a host since it was made."""
        text = self.cluster.run(host or self.cluster.head, f"journalctl --no-pager -o cat -u {unit} -t systemd")
        return sum(line.startswith("Starting ") for line in text.splitlines())

    def chat(self, prompt: str, **more: Any) -> Any:
        return self.api.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": prompt}],
            max_tokens=TOKENS,
            temperature=0.0,
            **more,
        )

    def assert_answers_as_one_host(self) -> None:
        for prompt in PROMPTS:
            expected = reference(prompt)
            # far enough apart that float32 rounding in another order of summation cannot swap two tokens
            assert expected["margin"] > 0.005, expected
            reply = self.chat(prompt, logprobs=True, top_logprobs=2)
            choice = reply.choices[0]
            text = choice.message.content or getattr(choice.message, "reasoning", None)
            assert text == expected["content"], prompt
            leads = [item.top_logprobs[0].logprob - item.top_logprobs[1].logprob for item in choice.logprobs.content]
            assert len(leads) == TOKENS
            assert min(leads) == pytest.approx(expected["margin"], abs=2e-3)

    def units(self) -> dict[str, str]:
        """What must not move while bad input is refused."""
        names = " ".join(f"sparkthor-{name}.service" for name in ("ray", "vllm", "front", "watchdog"))
        command = f"systemctl show -p Id -p MainPID -p ActiveState -p InvocationID {names}"
        return {host: self.cluster.run(host, command) for host in self.cluster.hosts}

    def files(self) -> dict[str, str]:
        command = "cd /etc/sparkthor && find . -type f ! -path './front*' -print0 | sort -z | xargs -0 sha256sum"
        return {host: self.cluster.run(host, command) for host in self.cluster.hosts}


@pytest.fixture(scope="session")
def serving(cluster: Cluster) -> Serving:
    return Serving(cluster)
