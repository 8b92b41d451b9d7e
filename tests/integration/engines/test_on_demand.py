# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama.cpp on demand in turns with vLLM on one host, in a lab of its own. The tests build on each other."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import httpx
import openai
import pytest
import yaml

from tests.integration.engines.conftest import START
from tests.integration.lifecycle.edited_site import Site
from tests.integration.sites import within

HOST, OWN, DEMAND = "spark-01", "tiny-qwen3", "smollm2-demand"
UNIT, DEMAND_UNIT = "sparkthor-vllm.service", "sparkthor-vllm-gguf.service"
#: with which vLLM serves on the simulated host's CPU
VLLM = {
    "vllm_serve_recipe": OWN,
    "vllm_serve_executor": "mp",
    "engine_extra_env": {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"},
}
GGUF = {
    "host": HOST,
    "serving_engine": "llama_cpp",
    "vllm_serve_model": "smollm2",
    "vllm_serve_served_model_name": DEMAND,
    "vllm_serve_max_model_len": 2048,
    "on_demand": {"idle_minutes": 1, "every_minutes": 1},
}


class Turns(Site):
    """The engines' inventory as one host with vLLM, and the model in GGUF on demand."""

    def write(self, members: list[str], **variables: object) -> None:
        self.members, [host] = members, members
        groups = {name: {"hosts": {host: None}} for name in ("ray_head", "own")}
        hosts = {"cluster": {"children": {**groups, "ray_workers": {}}}, "sparks": {"children": {"cluster": None}}}
        (self.inventory / "hosts.yml").write_text(yaml.safe_dump(hosts))
        for group in ("layers", "alone"):
            (self.inventory / f"group_vars/{group}.yml").unlink()
        file = self.inventory / "group_vars/cluster.yml"
        given = yaml.safe_load(file.read_text())
        for name in ("serving_engine", "vllm_serve_model", "vllm_serve_max_model_len", "fabric_cidr", "fabric_cage"):
            del given[name]
        given["model_store_models"].append(
            {"name": OWN, "source": "{{ inventory_dir }}/../../.lab/engine/model"},
        )
        given |= {
            "fabric_topology": "lan",
            "vllm_serve_tls": "off",
            "serving_groups": ["own"],
            "serving_beside": {"gguf": GGUF},
            **VLLM,
        }
        file.write_text(yaml.safe_dump(given, sort_keys=False))

    @property
    def door(self) -> str:
        return f"http://{self.lab.plan.host(HOST).address}:8000"

    @property
    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.door}/v1", api_key=self.secrets()[0].strip(), timeout=120, max_retries=0)

    def asked(self, model: str) -> tuple[str, int]:
        """What a model answers, and with nothing after how many seconds it wants to be asked again."""
        said = [{"role": "user", "content": "Which city is the capital of France? Answer with one word."}]
        try:
            reply = self.client.chat.completions.create(model=model, messages=said, max_tokens=24, temperature=0)
        except openai.InternalServerError as error:
            # while llama.cpp loads it says so itself, and not for how long
            return "", int(error.response.headers.get("Retry-After", "1"))
        return reply.choices[0].message.content or "", 0

    def active(self, unit: str) -> bool:
        return self.lab.exec(HOST, ["systemctl", "is-active", unit], check=False).stdout.strip() == "active"

    def own(self) -> httpx.Response:
        """What is said of vLLM's group, without a request, which would be a wish."""
        return httpx.get(f"{self.door}/health/group/own", timeout=30.0)

    def own_is_back(self) -> bool:
        return self.own().status_code == 200 and self.active(UNIT) and not self.active(DEMAND_UNIT)


@pytest.fixture(scope="module")
def site() -> Iterator[Turns]:
    made = Turns("eng-turns", "lab_engines", [HOST], "10.79.67.0/24")
    yield made
    made.lab.destroy()


def test_it_sleeps_after_the_deploy_beside_vllm_that_answers(site: Turns) -> None:
    assert "on demand instead of own: gguf " in site.play().output
    assert {model.id for model in site.client.models.list().data} == {OWN, DEMAND}
    assert (site.active(UNIT), site.active(DEMAND_UNIT)) == (True, False)
    assert site.asked(OWN)[0]
    assert sum(site.play().changed.values()) == 0
    assert re.search(r"^gguf: .* ASLEEP ", site.play("playbooks/status.yml").output, re.MULTILINE)


def test_a_request_wakes_it_and_gets_an_answer(site: Turns) -> None:
    begun = time.monotonic()
    within(START, lambda: site.asked(DEMAND)[1] == 0)
    print(f"{DEMAND}: answered {time.monotonic() - begun:.0f} s after the first request", flush=True)
    assert "Paris" in site.asked(DEMAND)[0]
    assert (site.active(UNIT), site.active(DEMAND_UNIT)) == (False, True)
    assert site.on(HOST, "pgrep -x llama-server")
    # they take turns, and both are listed
    assert (site.own().status_code, int(site.own().headers["Retry-After"]) > 0) == (503, True)
    assert {model.id for model in site.client.models.list().data} == {OWN, DEMAND}
    assert sum(site.play().changed.values()) == 0


def test_it_sleeps_again_after_its_idle_time(site: Turns) -> None:
    print(f"{OWN}: {within(START, site.own_is_back):.0f} s until it is back", flush=True)
    assert site.asked(OWN)[0]
    assert site.lab.exec(HOST, ["pgrep", "-x", "llama-server"], check=False).stdout == ""
