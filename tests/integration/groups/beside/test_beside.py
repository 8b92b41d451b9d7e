# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A group beside the pair's, on its head: neither is touched by what happens to the other.

The tests build on each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.integration.groups.conftest import (
    EMBED,
    HEADS,
    NARROW,
    PAIR,
    PAIR_HEAD,
    PAIR_WORKER,
    SINGLE,
    SINGLE_A,
    SINGLE_B,
    Doors,
)
from tests.integration.sites import within


def write_beside(doors: Doors, **settings: object) -> Path:
    """The inventory's file with the group beside the pair's, and these settings of it."""
    embed = {"host": PAIR_HEAD, "vllm_serve_recipe": "tiny-qwen3", "vllm_serve_served_model_name": EMBED}
    given = {"serving_beside": {"embed": {**embed, "vllm_serve_max_model_len": 256, **settings}}}
    file = doors.cluster.lab.folder / "beside.yml"
    file.write_text(json.dumps({"all": {"children": {"cluster": {"vars": given}}}}), encoding="utf-8")
    return file


def served_length(doors: Doors) -> str:
    return doors.cluster.run(PAIR_HEAD, "grep ^max-model-len: /etc/sparkthor/beside/embed/vllm.yaml").split()[1]


@pytest.fixture(scope="module")
def beside(doors: Doors) -> Iterator[str]:
    """A group beside the pair's, on its head, until the tests of it have ended; the name of its unit."""
    file = write_beside(doors)
    doors.cluster.inventories.append(file)
    try:
        outcome = doors.play("site.yml")
        assert outcome.rc == 0, outcome.failures
        # the memory of the host is planned for both, with the numbers of each
        assert f"memory of {PAIR_HEAD}: " in outcome.output
        assert "embed " in outcome.output.partition(f"memory of {PAIR_HEAD}: ")[2].partition("\n")[0]
        yield "sparkthor-vllm-embed.service"
    finally:
        doors.cluster.inventories.remove(file)


def test_a_small_group_beside_another_is_behind_every_door(doors: Doors, beside: str) -> None:
    for head in HEADS:
        assert doors.models(head) == {PAIR, SINGLE, EMBED}
        assert [doors.ask(head, model) for model in (PAIR, EMBED)] == [PAIR, EMBED]
        assert doors.health(head, "embed") == 200
    on = doors.cluster.run
    assert "max-model-len: 256" in on(PAIR_HEAD, "cat /etc/sparkthor/beside/embed/vllm.yaml")
    assert "max-model-len: 512" in on(PAIR_HEAD, "cat /etc/sparkthor/vllm.yaml")
    # the narrow key is for another model
    with pytest.raises(openai.PermissionDeniedError):
        doors.ask(SINGLE_A, EMBED, NARROW)
    again = doors.play("site.yml")
    assert (again.rc, set(again.changed.values())) == (0, {0}), (again.failures, again.changes)
    assert "embed: " in doors.play("playbooks/status.yml").output


def test_a_restart_of_one_group_does_not_touch_the_other_on_its_host(doors: Doors, beside: str) -> None:
    pair, embed = doors.starts(PAIR_HEAD), doors.starts(PAIR_HEAD, beside)
    with doors.asking(SINGLE_A, PAIR) as counted:
        assert doors.play("playbooks/restart.yml", "--extra-vars=serving_group=embed").rc == 0
    assert set(counted) == {"answered"}, counted
    assert doors.starts(PAIR_HEAD) == pair
    assert doors.starts(PAIR_HEAD, beside) != embed
    embed = doors.starts(PAIR_HEAD, beside)
    with doors.asking(SINGLE_A, EMBED) as counted:
        assert doors.play("playbooks/restart.yml", "--extra-vars=serving_group=pair").rc == 0
    assert set(counted) == {"answered"}, counted
    assert doors.starts(PAIR_HEAD) != pair
    assert doors.starts(PAIR_HEAD, beside) == embed


def test_one_group_is_drained_while_the_other_on_its_host_serves(doors: Doors, beside: str) -> None:
    assert doors.play("playbooks/drain.yml", "--extra-vars=serving_group=embed").rc == 0
    with pytest.raises(openai.InternalServerError):
        doors.ask(SINGLE_A, EMBED)
    assert doors.ask(SINGLE_A, PAIR) == PAIR
    assert doors.play("playbooks/start.yml", "--extra-vars=serving_group=embed").rc == 0
    assert doors.ask(SINGLE_A, EMBED) == EMBED


def test_a_killed_engine_beside_another_comes_back_by_itself(doors: Doors, beside: str) -> None:
    pair = doors.starts(PAIR_HEAD)
    with doors.asking(SINGLE_A, PAIR) as counted:
        doors.cluster.run(PAIR_HEAD, f"systemctl kill -s KILL {beside}")
        within(600, lambda: EMBED in doors.models(SINGLE_B))
    assert set(counted) == {"answered"}, counted
    assert doors.starts(PAIR_HEAD) == pair


def test_a_group_beside_another_is_measured_and_shown(doors: Doors, beside: str, tmp_path: Path) -> None:
    chosen = ("--extra-vars=serving_group=embed", f"--extra-vars=verify_folder={tmp_path}")
    for _twice in range(2):
        verified = doors.play("playbooks/verify.yml", *chosen, "--extra-vars=verify_parts=serving")
        assert verified.rc == 0, verified.failures
    [_first, second] = sorted((tmp_path / "verify").glob("*.json"))
    document = json.loads(second.read_text(encoding="utf-8"))
    assert document["group"] == "embed"
    # compared with itself, not with the pair's
    assert [line["before"] for line in document["lines"] if line["check"] == "decode"] != [None]
    page = tmp_path / "report.html"
    assert doors.play("playbooks/report.yml", *chosen, f"--extra-vars=report_path={page}").rc == 0
    assert EMBED in page.read_text(encoding="utf-8")
    refused = doors.play("playbooks/verify.yml", "--extra-vars=serving_group=embde")
    assert refused.rc != 0
    assert "'embde' is not one of pair, single_a, single_b, embed" in " ".join(refused.output.split())


def test_an_upgrade_moves_the_group_beside_another_alone_and_goes_back(doors: Doors, beside: str) -> None:
    pair, embed = doors.starts(PAIR_HEAD), doors.starts(PAIR_HEAD, beside)
    write_beside(doors, vllm_serve_max_model_len=128)
    upgraded = doors.play("playbooks/upgrade.yml", "--extra-vars=upgrade_speed=0.2")
    assert upgraded.rc == 0, upgraded.failures
    assert served_length(doors) == "128"
    assert doors.starts(PAIR_HEAD) == pair
    assert doors.starts(PAIR_HEAD, beside) != embed
    assert [doors.ask(SINGLE_A, model) for model in (PAIR, EMBED)] == [PAIR, EMBED]
    # days later: what served before, of both
    back = doors.play("playbooks/rollback.yml", "--limit=pair", "--extra-vars=roll_back_to=previous")
    assert back.rc == 0, back.failures
    assert served_length(doors) == "256"
    assert doors.starts(PAIR_HEAD) == pair
    assert [doors.ask(SINGLE_A, model) for model in (PAIR, EMBED)] == [PAIR, EMBED]
    write_beside(doors)


@pytest.mark.parametrize(
    ("settings", "more", "words"),
    [
        ({"vllm_serve_args": {"hf-overrides": {"architectures": ["NoSuchModel"]}}}, (), "NoSuchModel"),
        ({"vllm_serve_max_model_len": 128}, ("--extra-vars=upgrade_speed=1000",), "is not proven"),
    ],
)
def test_an_upgrade_that_fails_brings_the_group_beside_another_back(
    doors: Doors, beside: str, settings: dict[str, object], more: tuple[str, ...], words: str
) -> None:
    write_beside(doors, **settings)
    outcome = doors.play("playbooks/upgrade.yml", *more)
    write_beside(doors)
    assert outcome.rc != 0
    assert "The former engine serves again" in outcome.output
    assert words in outcome.output, outcome.failures
    assert served_length(doors) == "256"
    assert [doors.ask(SINGLE_A, model) for model in (PAIR, EMBED)] == [PAIR, EMBED]
    again = doors.play("site.yml")
    assert (again.rc, set(again.changed.values())) == (0, {0}), (again.failures, again.changes)


def test_a_configuration_of_before_stops_a_group_that_came_later(doors: Doors, beside: str) -> None:
    kept = doors.cluster.run(PAIR_HEAD, "cat /var/lib/sparkthor-last-good/index.json")
    without = [one["name"] for one in json.loads(kept)["kept"] if "beside/embed" not in json.dumps(one["items"])]
    back = doors.play("playbooks/rollback.yml", "--limit=pair", f"--extra-vars=roll_back_to={without[0]}")
    assert back.rc == 0, back.failures
    assert doors.ask(SINGLE_A, PAIR) == PAIR
    with pytest.raises(openai.InternalServerError):
        doors.ask(SINGLE_A, EMBED)
    assert "rolled back to" in doors.cluster.run(PAIR_HEAD, "cat /var/lib/sparkthor/beside/embed/maintenance")
    # the inventory has it, so the next run serves it again
    assert doors.play("site.yml").rc == 0
    assert [doors.ask(SINGLE_A, model) for model in (PAIR, EMBED)] == [PAIR, EMBED]


def test_a_reboot_ends_with_the_group_beside_another(doors: Doors, beside: str) -> None:
    boot, worker = doors.cluster.lab.boot_id(PAIR_HEAD), doors.cluster.lab.boot_id(PAIR_WORKER)
    doors.cluster.run(PAIR_HEAD, "echo linux-image-6.18 >/run/reboot-required.pkgs; touch /run/reboot-required")
    with doors.asking(SINGLE_A, EMBED) as counted:
        outcome = doors.play("playbooks/reboot.yml")
        assert outcome.rc == 0, outcome.failures
        assert doors.ask(PAIR_HEAD, EMBED) == EMBED
    assert "embed on it is away meanwhile" in " ".join(outcome.output.split())
    assert doors.cluster.lab.boot_id(PAIR_HEAD) != boot
    assert doors.cluster.lab.boot_id(PAIR_WORKER) == worker
    # its requests ended before the host went down, and all others were told to come again
    assert set(counted) <= {"answered", "status 503"}, counted
    assert doors.ask(SINGLE_A, PAIR) == PAIR


def test_a_recipe_for_the_group_beside_another(doors: Doors, beside: str) -> None:
    refused = doors.play("playbooks/switch_model.yml", "--extra-vars=recipe=tiny-qwen3 serving_group=embde")
    assert refused.rc != 0
    assert "with one of pair, single_a, single_b, embed" in " ".join(refused.output.split())
    again = doors.play("playbooks/switch_model.yml", "--extra-vars=recipe=tiny-qwen3 serving_group=embed")
    assert (again.rc, set(again.changed.values())) == (0, {0}), (again.failures, again.changes)


def test_a_group_that_is_no_longer_beside_another_is_gone(doors: Doors, beside: str) -> None:
    file = doors.cluster.lab.folder / "beside.yml"
    file.write_text(json.dumps({"all": {}}), encoding="utf-8")
    outcome = doors.play("site.yml")
    assert outcome.rc == 0, outcome.failures
    assert doors.models(PAIR_HEAD) == {PAIR, SINGLE}
    left = "ls -d /etc/sparkthor/beside/* /run/sparkthor/beside/* /etc/systemd/system/sparkthor-*-embed.service"
    assert doors.cluster.run(PAIR_HEAD, left, check=False).strip() == ""
    assert doors.cluster.run(PAIR_HEAD, f"systemctl is-active {beside}", check=False).strip() == "inactive"
