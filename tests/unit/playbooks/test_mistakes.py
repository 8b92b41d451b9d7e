# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes of a first hour, counted off: what each is told, before anything is changed.

Those without a test of their own are made here, several in one inventory, in a real run of render.yml: a run tells all
that is wrong at once.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
FIRST = "tests/unit/playbooks/test_inventory_first.py::"
CONTACT = "tests/unit/playbooks/test_contact.py::test_each_host_has_its_cause_and_its_fix"
SOURCES = "tests/unit/plugins/plugin_utils/_inventory/test_sources.py::"
HERE = "tests/unit/playbooks/test_mistakes.py::test_each_is_told_in_one_run"

#: mistake -> the test that makes it
MISTAKES = {
    # the first ten of a newcomer
    "a line indented wrongly": FIRST + "test_it_says_where_and_nothing_else_runs",
    "a tab": FIRST + "test_it_says_where_and_nothing_else_runs",
    "no -i": FIRST + "test_no_inventory_at_all",
    "no model": FIRST + "test_what_is_served_is_known_before_a_host_is_asked",
    "a recipe's name with a letter missing": HERE,
    "a variable without its role's second word": FIRST + "test_what_is_served_is_known_before_a_host_is_asked",
    "a password of sudo that was not given": CONTACT,
    "a wrong password of sudo": CONTACT,
    "a Python that is not there": CONTACT,
    "a machine without an ssh server": CONTACT,
    # more of them
    "a group called clusters": FIRST + "test_it_says_where_and_nothing_else_runs",
    "a group called ray_heads": FIRST + "test_it_says_where_and_nothing_else_runs",
    "a --limit that leaves nobody": FIRST + "test_a_limit_that_leaves_nobody_of_the_cluster",
    "a variable beside the hosts of a group": FIRST + "test_a_limit_and_tags_do_not_leave_it_out",
    "the name of a model as a recipe": FIRST + "test_what_is_served_is_known_before_a_host_is_asked",
    "an engine that is none": FIRST + "test_what_is_served_is_known_before_a_host_is_asked",
    "a password in a variable that nobody defines": FIRST + "test_a_password_that_leads_to_nothing",
    "an -i that is not there": SOURCES + "test_what_is_not_there_is_named_with_what_may_be_meant",
    "a space too few": SOURCES + "test_a_mistake_is_named_with_its_file_and_line",
    "the word INVENTORY as it stands in the pages": SOURCES + "test_what_is_not_there_is_named_with_what_may_be_meant",
    "a group called workers": "tests/unit/plugins/plugin_utils/_inventory/test_inventory.py::test_groups",
    "a recipe for two machines on three": FIRST + "test_what_is_served_is_known_before_a_host_is_asked",
    "the name of a recipe as a model": HERE,
    "ansible_hosts for ansible_host": HERE,
    "an address that is none": HERE,
    "one address for two machines": HERE,
    "a range with host bits": HERE,
    "a cage that no Spark has": HERE,
    "a frame of 90,000 bytes": HERE,
    "an argument of vLLM as a variable": HERE,
    "128k for a number": HERE,
    "a port above 65,535": HERE,
    "docker for container": HERE,
    "an API key of three letters": HERE,
    "a cable for two between three machines": HERE,
    "four GPUs in a Spark": HERE,
    "options of vLLM as on its command line": HERE,
    "ansible_prot for ansible_port": HERE,
    "a file of variables called clusters": FIRST + "test_variables_under_a_name_that_is_nearly_right",
    "no space after a colon": SOURCES + "test_files_of_variables_are_read_as_well",
}


@pytest.mark.parametrize("named", sorted(set(MISTAKES.values())))
def test_each_mistake_is_made_by_a_test_that_is_there(named: str) -> None:
    path, _sep, name = named.partition("::")
    tree = ast.parse((TOP / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_each_that_is_made_here_is_counted() -> None:
    made = [mistake for _changes, mistakes in RUNS for mistake in mistakes]
    assert sorted(made) == sorted(mistake for mistake, test in MISTAKES.items() if test == HERE)


GIVEN = "ansible_user: nvidia\n"
#: what is changed in the inventory of three Sparks -> mistake -> the message
RUNS = [
    (
        [
            ("ansible_host: 192.168.1.12", "ansible_hosts: 192.168.1.12"),
            ("192.168.1.13", "192.168.1.300"),
            ("10.100.0.0/16", "10.100.0.5/16"),
            ("fabric_cage: 1", "fabric_cage: 2"),
            ("qwen3.5-397b-a17b-nvfp4", "gpt-oss-12b"),
            (GIVEN, GIVEN + "fabric_mtu: 90000\nvllm_serve_gpu_memory_utilization: 85\nengine_runtime: docker\n"),
            (GIVEN, GIVEN + "vllm_serve_max_model_len: 128k\nvllm_serve_api_key: abc\nvllm_serve_api_port: 80000\n"),
        ],
        {
            "a recipe's name with a letter missing": "'gpt-oss-12b' is unknown. Did you mean gpt-oss-120b",
            "ansible_hosts for ansible_host": "host spark-02: ansible_hosts: Ansible has no variable of this name",
            "an address that is none": "host spark-03: ansible_host: '192.168.1.300': it is no IPv4 address; give four",
            "a range with host bits": "fabric_cidr is 10.100.0.5/16: host bits are set; did you mean 10.100.0.0/16?",
            "a cage that no Spark has": "fabric_cage of host spark-01 is 2: a Spark has the cages 0 and 1; use 0 for",
            "a frame of 90,000 bytes": "fabric_mtu is 90000: an MTU here is a whole number from 1280 to 9216; use 9000",
            "an argument of vLLM as a variable": "an option of the engine itself goes into vllm_serve_args",
            "128k for a number": "'vllm_serve_max_model_len' is of type str and we were unable to convert to int",
            "a port above 65,535": "vllm_serve_api_port: 80000",
            "docker for container": "it is not one of venv, container (did you mean 'container'?); set it",
            "an API key of three letters": "spark-02, spark-03: vllm_serve_api_key: the value given has 3 char",
        },
    ),
    (
        [
            ("192.168.1.13", "192.168.1.12"),
            (GIVEN, GIVEN + "ray_node_num_gpus: 4\nvllm_serve_pipeline_parallel_size: 4\nansible_prot: 22\n"),
            (GIVEN, GIVEN + "vllm_serve_args: --max-num-seqs 4\n"),
            ("fabric_topology: switch", "fabric_topology: direct"),
            ("vllm_serve_recipe: qwen3.5-397b-a17b-nvfp4", "vllm_serve_model: gpt-oss-120b"),
        ],
        {
            "one address for two machines": "hosts spark-02 and spark-03 have the same address 192.168.1.12; give each",
            "the name of a recipe as a model": "it is the name of a recipe, and no model is called so; set",
            "four GPUs in a Spark": "hosts spark-01, spark-02, spark-03: ray_node_num_gpus: 4: a Spark has one",
            "options of vLLM as on its command line": "as `vllm_serve_args: {max-num-seqs: 4}`; correct",
            "ansible_prot for ansible_port": "spark-03: ansible_prot: Ansible has no variable of this name",
            "a cable for two between three machines": "direct cable joins exactly 2 hosts; for three or more use ring",
        },
    ),
]


#: what else would be said of these mistakes
CONSEQUENCES = ("value of engine_runtime must be", "cannot do a docker", "has the same address")


@pytest.mark.parametrize(("changes", "mistakes"), RUNS, ids=["values", "names"])
def test_each_is_told_in_one_run(tmp_path: Path, changes: list[tuple[str, str]], mistakes: dict[str, str]) -> None:
    inventory = tmp_path / "mine"
    shutil.copytree(TOP / "inventories/3spark", inventory, ignore=shutil.ignore_patterns(".secrets"))
    for right, wrong in changes:
        [path] = [path for path in inventory.rglob("*.yml") if right in path.read_text(encoding="utf-8")]
        path.write_text(path.read_text(encoding="utf-8").replace(right, wrong), encoding="utf-8")
    done = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "ansible-playbook"), "playbooks/render.yml", "-i", str(inventory)),
            *("-e", json.dumps({"render_dir": str(tmp_path / "rendered")})),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=TOP,
        env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
    )
    assert done.returncode != 0
    assert "Nothing was changed: " in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout
    assert not (tmp_path / "rendered").exists()
    told = (done.stdout + done.stderr).split("Nothing was changed: ", 1)[1]
    assert [words for words in CONSEQUENCES if words in told] == [], told
    assert [mistake for mistake, words in mistakes.items() if words not in told] == [], told
