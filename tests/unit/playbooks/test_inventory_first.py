# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An inventory that Ansible reads in part, or not at all, stops every playbook for a cluster in its first play."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.plays import CHECK, IMPORT, PLAYBOOKS

TOP = PLAYBOOKS.parent
#: it is for no machine of an inventory
WITHOUT = {"switch"}
#: they are for machines that are in no cluster yet, or for none: an inventory that is named has to be one
OPTIONAL = {"discover", "first_contact", "recipe"}
FILES = sorted(PLAYBOOKS.rglob("*.yml"))
SOUND = (TOP / "inventories/3spark/hosts.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("*.yml")), ids=lambda path: path.stem)
def test_every_playbook_for_a_cluster_checks_first(path: Path) -> None:
    first, *others = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert (first.get(IMPORT) == CHECK) is (path.stem not in WITHOUT)
    # of all of them one alone can do without a cluster
    assert first.get("when") == ("not (doctor_logs | default(''))" if path.stem == "doctor" else None)
    assert first.get("vars", {}).get("__inventory_optional", False) is (path.stem in OPTIONAL)
    assert all(play.get(IMPORT) != CHECK for play in others)


def play(playbook: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), f"playbooks/{playbook}.yml", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=TOP,
        env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
    )


def test_a_password_that_leads_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(
        SOUND.replace("192.168.1.12", '192.168.1.12\n          ansible_become_password: "{{ vault_sudo }}"'),
        encoding="utf-8",
    )
    done = play("site", "-i", str(tmp_path / "hosts.yml"))
    assert done.returncode != 0
    assert "host spark-02: ansible_become_password: 'vault_sudo' is undefined; define that variable" in done.stdout
    assert "spark-02 " not in done.stdout.split("PLAY RECAP")[1]


@pytest.mark.parametrize(
    ("playbook", "right", "wrong", "said"),
    [
        (
            "site",
            "          ansible_host: 192.168.1.11",
            "        ansible_host: 192.168.1.11",
            ", line 9: ansible_host ",
        ),
        ("status", "      hosts:\n        spark-01", "\thosts:\n        spark-01", ", line 7: a tab indents it"),
        ("teardown", "cluster:\n  children:\n    ray_h", "clusters:\n  children:\n    ray_h", "is 'clusters' meant?"),
        ("drain", "    ray_head:", "    ray_heads:", "group ray_head: it has no host"),
    ],
)
def test_it_says_where_and_nothing_else_runs(tmp_path: Path, playbook: str, right: str, wrong: str, said: str) -> None:
    text = SOUND.replace("sparks:\n  children:\n    cluster:\n", "")
    assert right in text
    (tmp_path / "hosts.yml").write_text(text.replace(right, wrong), encoding="utf-8")
    done = play(playbook, "-i", str(tmp_path))
    assert done.returncode != 0
    assert "Nothing was changed: " in done.stdout
    assert said in done.stdout
    assert done.stdout.count("PLAY [") == 1


@pytest.mark.parametrize("playbook", sorted(OPTIONAL))
def test_who_needs_no_inventory_refuses_one_that_was_not_read(tmp_path: Path, playbook: str) -> None:
    (tmp_path / "hosts.yml").write_text(SOUND.replace("      hosts:\n", "\thosts:\n", 1), encoding="utf-8")
    for given, said in (("nothere", "-i nothere: there is no such file or folder"), (tmp_path, "a tab indents it")):
        done = play(playbook, "-i", str(given))
        assert done.returncode != 0
        assert said.partition(" ")[2] in done.stdout
        assert done.stdout.count("PLAY [") == 1


def test_variables_under_a_name_that_is_nearly_right(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(SOUND, encoding="utf-8")
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars/spark-09.yml").write_text("fabric_cage: 1\n", encoding="utf-8")
    done = play("recipe", "-i", str(tmp_path))
    assert done.returncode == 0, done.stdout
    assert "no host of the inventory is called spark-09" in " ".join(done.stderr.split())
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/clusters.yml").write_text("vllm_serve_recipe: gpt-oss-120b\n", encoding="utf-8")
    for playbook in ("recipe", "status"):
        done = play(playbook, "-i", str(tmp_path))
        assert done.returncode != 0
        assert "no group of the inventory is called clusters (did you mean 'cluster'?); rename it to" in done.stdout
        assert done.stdout.count("PLAY [") == 1


def test_no_inventory_at_all() -> None:
    done = play("site")
    assert done.returncode != 0
    assert "no inventory was given, so there is no host to work on; add -i" in done.stdout
    assert done.stdout.count("PLAY [") == 1


def test_a_limit_that_leaves_nobody_of_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(SOUND + "others:\n  hosts:\n    laptop:\n", encoding="utf-8")
    done = play("status", "-i", str(tmp_path), "--limit", "laptop")
    assert done.returncode != 0
    assert "--limit laptop: no host of the cluster is left" in done.stdout
    assert "name one of spark-01, spark-02, spark-03, or leave --limit out" in done.stdout
    assert done.stdout.count("PLAY [") == 1


def test_a_limit_and_tags_do_not_leave_it_out(tmp_path: Path) -> None:
    text = SOUND.replace("cluster:\n  children:\n    ray_h", "cluster:\n  fabric_cage: 1\n  children:\n    ray_h")
    (tmp_path / "hosts.yml").write_text(text, encoding="utf-8")
    done = play("site", "-i", str(tmp_path), "--limit", "spark-02", "--tags", "firewall")
    assert done.returncode != 0
    assert ", line 5: fabric_cage stands directly in group cluster" in done.stdout
    assert done.stdout.count("PLAY [") == 1


def test_a_list_of_groups_whose_every_line_is_commented_out_is_empty() -> None:
    """YAML reads such a list as null, which is a value."""
    read = {path: re.findall(r"serving_(?:groups|beside) \| default\([^)]*\)", path.read_text()) for path in FILES}
    assert {path.name for path, found in read.items() if found} >= {"beside.yml", "serving_group.yml", "update.yml"}
    assert [(path, text) for path, found in read.items() for text in found if not text.endswith(", true)")] == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"vllm_serve_recipe": ""}, "vllm_serve_recipe: no model is named, so there is nothing to serve; set"),
        ({"vllm_serve_recipe": "openai/gpt-oss-120b"}, "is the name of a model on the hub, not of a recipe."),
        (
            {"serving_engine": "flux"},
            "serving_engine: 'flux': no engine of this name can be served here; set one of vllm",
        ),
        ({"vllm_serve_recipe": "gpt-oss-120b"}, "'gpt-oss-120b': it is for 1 or 2 hosts, and 3 would serve it; set"),
        ({"serving_groups": ["cluster", "bgi"]}, "serving_groups: 'bgi': there is no such inventory group"),
        ({"serving_groups": "bgi,small"}, "serving_groups: 'small': there is no such inventory group"),
        ({"serving_groups": True}, "serving_groups: 'True': it cannot be the name of a serving group"),
        (
            {
                **{"vllm_serve_door_port": "80x1", "serving_groups": ["ray_workers"]},
                "serving_beside": {"embed": {"host": "spark-02", "vllm_serve_recipe": "qwen3-embedding-0.6b"}},
            },
            "argument 'vllm_serve_door_port' is of type str and we were unable to convert to int",
        ),
        ({"vllm_recipe": "gpt-oss-120b"}, "vllm_recipe: no role has a variable of this name (did you mean"),
    ],
)
def test_what_is_served_is_known_before_a_host_is_asked(given: dict[str, Any], said: str) -> None:
    done = play("site", "-i", "inventories/3spark", "-e", json.dumps(given))
    assert done.returncode != 0
    assert said in done.stdout
    assert "Read the facts of every host" not in done.stdout
