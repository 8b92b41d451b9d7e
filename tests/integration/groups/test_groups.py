# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several groups serve side by side, behind doors that any head has, and one's trouble is not another's.

The tests build on each other: the last one ends with a host that is off.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.integration.groups.conftest import (
    EMBED,
    PAIR,
    PAIR_HEAD,
    PAIR_WORKER,
    SINGLE,
    SINGLE_A,
    SINGLE_B,
    Doors,
)
from tests.integration.sites import within

HEADS = (PAIR_HEAD, SINGLE_A, SINGLE_B)
NARROW = "narrow-key-of-the-lab"
LIMITED = "limited-key-of-the-lab"


def test_every_head_is_a_door_to_all_models(doors: Doors) -> None:
    for head in HEADS:
        assert doors.models(head) == {PAIR, SINGLE}
        assert [doors.ask(head, model) for model in (PAIR, SINGLE)] == [PAIR, SINGLE]


def test_a_stream_arrives_in_parts_through_another_groups_head(doors: Doors) -> None:
    stream = doors.client(SINGLE_A).completions.create(
        model=PAIR, prompt="hello", max_tokens=12, temperature=0.0, stream=True
    )
    assert len([part for part in stream if part.choices]) > 3


def test_each_group_runs_as_a_cluster_of_its_own(doors: Doors) -> None:
    on = doors.cluster.run
    assert "pipeline-parallel-size: 2" in on(PAIR_HEAD, "cat /etc/sparkthor/vllm.yaml")
    assert set(json.loads(on(PAIR_HEAD, "cat /etc/sparkthor/cluster.json"))["peers"]) == {PAIR_HEAD, PAIR_WORKER}
    for head in (SINGLE_A, SINGLE_B):
        assert set(json.loads(on(head, "cat /etc/sparkthor/cluster.json"))["peers"]) == {head}
        assert on(head, "systemctl is-active sparkthor-ray.service", check=False).strip() != "active"


def test_a_key_is_for_its_models_alone_at_every_door(doors: Doors) -> None:
    for head in HEADS:
        assert doors.models(head, NARROW) == {SINGLE}
        assert doors.ask(head, SINGLE, NARROW) == SINGLE
        with pytest.raises(openai.PermissionDeniedError):
            doors.ask(head, PAIR, NARROW)


def test_the_keys_are_listed_without_a_change(doors: Doors) -> None:
    outcome = doors.play("playbooks/keys.yml")
    assert outcome.rc == 0, outcome.failures
    assert set(outcome.changed.values()) == {0}, outcome.changed
    assert f"narrow: {SINGLE}, 600 requests a minute" in outcome.output
    assert NARROW not in outcome.output


def test_a_limit_of_tokens_is_hit_and_shown(doors: Doors) -> None:
    """At the door that counted, for a plain answer or a stream; and the list says what was used."""
    client = doors.client(PAIR_HEAD, LIMITED)

    def ask_much() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            # one that does not ask for its tokens
            assert list(client.completions.create(model=SINGLE, prompt="hello", max_tokens=8, stream=True))
            time.sleep(0.5)

    with pytest.raises(openai.RateLimitError) as refused:
        ask_much()
    assert 1 <= int(refused.value.response.headers["Retry-After"]) <= 60
    assert "tokens of 12 in a minute; it may go on at " in refused.value.message
    # each door counts by itself, and another key goes on at this one
    assert doors.ask(SINGLE_A, SINGLE, LIMITED) == SINGLE
    assert doors.ask(PAIR_HEAD, SINGLE, NARROW) == SINGLE
    outcome = doors.play("playbooks/keys.yml")
    assert outcome.rc == 0, outcome.failures
    shown = r"limited: all models, no limit of requests, \d+ of 12 tokens a minute, [1-9]\d* of 1000000 tokens a month"
    # long lines are folded
    assert re.search(shown, " ".join(outcome.output.split()))
    assert LIMITED not in outcome.output
    # the month's count is on the disk, and the counter goes on from it
    command = "systemctl restart sparkthor-tokens && sleep 3 && cat /run/sparkthor-tokens/usage.json"
    used = json.loads(doors.cluster.run(PAIR_HEAD, command))["limited"]
    assert used["month"] > 0
    assert used["limits"] == {"minute": 12, "month": 1000000}


def test_what_names_no_model_of_ours_is_told_so(doors: Doors) -> None:
    with pytest.raises(openai.NotFoundError, match="GET /v1/models"):
        doors.ask(PAIR_HEAD, "tiny-singel")
    with pytest.raises(openai.AuthenticationError):
        doors.ask(PAIR_HEAD, SINGLE, "no-key-of-this-cluster")


def test_every_door_says_how_any_group_is(doors: Doors) -> None:
    for head in HEADS:
        assert [doors.health(head, group) for group in ("pair", "single_a", "single_b")] == [200, 200, 200]


def test_the_heads_own_port_is_for_heads(doors: Doors) -> None:
    def status(host: str, address: str) -> str:
        words = ["curl", "-s", "-m", "5", "-o", "/dev/null", "-w", "%{http_code}"]
        words += ["-H", f"Authorization: Bearer {NARROW}", f"http://{address}:8001/v1/models"]
        return doors.cluster.run(host, shlex.join(words), check=False)

    control = json.loads(doors.cluster.run(SINGLE_A, "cat /etc/sparkthor/cluster.json"))["head_address"]
    assert status(PAIR_HEAD, control) == "200"
    # a worker is not a head
    assert status(PAIR_WORKER, control) == "403"
    # and on the LAN the firewall has it closed
    assert status(PAIR_WORKER, doors.cluster.addresses[SINGLE_A]) == "000"


def test_without_a_change_nothing_changes(doors: Doors) -> None:
    outcome = doors.play("site.yml")
    assert outcome.rc == 0, outcome.failures
    assert set(outcome.changed.values()) == {0}, outcome.changed


def test_a_drained_replica_loses_no_request(doors: Doors) -> None:
    with doors.asking(PAIR_HEAD, SINGLE) as counted:
        within(60, lambda: counted["answered"] > 5)
        assert doors.play("playbooks/drain.yml", f"--limit={SINGLE_A}").rc == 0
        before = counted["answered"]
        within(60, lambda: counted["answered"] > before + 5)
    assert set(counted) == {"answered"}, counted
    assert doors.play("playbooks/start.yml", f"--limit={SINGLE_A}").rc == 0


def test_a_new_argument_of_one_group_restarts_that_group_alone(doors: Doors) -> None:
    before = {head: doors.starts(head) for head in HEADS}
    override = {"vllm_serve_args": {"max-num-seqs": 3}}
    file = doors.cluster.lab.folder / "pair.yml"
    file.write_text(json.dumps({"all": {"children": {"pair": {"vars": override}}}}), encoding="utf-8")
    doors.cluster.inventories.append(file)
    try:
        with doors.asking(SINGLE_B, SINGLE) as counted:
            outcome = doors.play("site.yml")
    finally:
        doors.cluster.inventories.remove(file)
    assert outcome.rc == 0, outcome.failures
    assert {host for host, number in outcome.changed.items() if number} <= {PAIR_HEAD, PAIR_WORKER}, outcome.changed
    assert [head for head in HEADS if doors.starts(head) != before[head]] == [PAIR_HEAD]
    assert set(counted) == {"answered"}, counted


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


def test_a_killed_engine_leaves_the_others_alone(doors: Doors) -> None:
    before = doors.starts(SINGLE_B)
    with doors.asking(SINGLE_B, SINGLE) as counted:
        doors.cluster.run(PAIR_HEAD, "systemctl kill -s KILL sparkthor-vllm.service")
        with pytest.raises(openai.InternalServerError) as refused:
            doors.ask(SINGLE_B, PAIR)
        assert refused.value.status_code == 503
        assert int(refused.value.response.headers["Retry-After"]) > 0
        assert doors.models(SINGLE_B) == {SINGLE}
        before_more = counted["answered"]
        within(60, lambda: counted["answered"] > before_more + 5)
    assert set(counted) == {"answered"}, counted
    assert doors.starts(SINGLE_B) == before
    # systemd and the watchdog bring it back
    within(600, lambda: PAIR in doors.models(SINGLE_B))


def test_a_replica_that_loses_power_is_left_out_at_once(doors: Doors) -> None:
    doors.ask(PAIR_HEAD, SINGLE)
    doors.cluster.lab.off(SINGLE_A)
    try:
        with doors.asking(PAIR_HEAD, SINGLE) as counted:
            within(120, lambda: counted["answered"] > 10)
            assert doors.health(PAIR_HEAD, "single_a") == 503
        assert set(counted) == {"answered"}, counted
    finally:
        # whoever comes next runs site.yml on all hosts
        doors.cluster.lab.boot(SINGLE_A)
        doors.cluster.lab.wait(SINGLE_A)
    within(900, lambda: doors.health(PAIR_HEAD, "single_a") == 200)
