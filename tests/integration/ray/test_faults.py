# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three hosts: what dies or goes away is a member again, without a human, within its time.

A member again is: an ALIVE row of another raylet on the expected address, its agent answering, and nothing else wrong.
"""

from __future__ import annotations

import time
from datetime import datetime

from tests.integration.ray.conftest import REPEATS, STARTS, UNIT, assert_members

KILL_LIMIT = 30
WORKER_LIMIT = 60
HEAD_LIMIT = 120
LINK_LIMIT = 60
#: 8 to 9 seconds by the settings, and one for the row's whole seconds
SILENT_LIMIT = 12
CUT_SECONDS = 90
#: the health check gives up on a silent peer after this; as long again is what a false death would need
WATCH_SECONDS = 16
GCS_LOG = "/var/lib/sparkthor/ray/t/session_latest/logs/gcs_server.out"


def again(before: dict[str, str], *hosts: str):
    """The cluster is whole, and these hosts are there as other nodes than before."""

    def good(answer) -> bool:
        now = {entry["name"]: entry["node_id"] for entry in answer["alive"]}
        return answer["healthy"] and all(now[host] != before[host] for host in hosts)

    return good


def test_a_killed_raylet_is_back(three, results):
    worker, took = three.workers[0], []
    three.healthy()
    for _unused in range(REPEATS):
        before = three.node_ids()
        three.on(worker, "kill -9 $(pgrep -x raylet)")
        seconds, answer = three.wait_for(again(before, worker), 4 * KILL_LIMIT)
        took.append(seconds)
        now = {entry["name"]: entry["node_id"] for entry in answer["alive"]}
        assert all(now[host] == before[host] for host in three.hosts if host != worker), "others were taken along"
        ended = [entry for entry in answer["dead"] if entry["node_id"] == before[worker]]
        assert ended
        assert ended[0]["reason"]
        assert ended[0]["rejoined"]
    assert results.add("kill -9 raylet, member again", took, KILL_LIMIT) < KILL_LIMIT
    assert max(took) < KILL_LIMIT


def test_a_worker_that_lost_power_is_back(three, results):
    worker, took, restarts = three.workers[1], [], []
    three.healthy()
    for _unused in range(REPEATS):
        before = three.node_ids()
        three.lab.off(worker)
        three.lab.boot(worker)
        three.lab.wait(worker, seconds=180)
        seconds, answer = three.wait_for(again(before, worker), 4 * WORKER_LIMIT)
        took.append(seconds)
        assert_members(three, answer)
        # A start too many would be the new raylet taken for the old one: the GCS asks it over the dead connection.
        restarts.append(int(three.on(worker, f"systemctl show -P NRestarts {UNIT}")))
        print(three.on(three.head, f"grep -ah 'ealth check' {GCS_LOG} | tail -n 6; exit 0"))
    results.put("worker power loss, starts too many", {"starts": restarts})
    assert results.add("worker power loss, member after its ssh", took, WORKER_LIMIT) < WORKER_LIMIT
    assert max(took) < WORKER_LIMIT


def test_a_head_that_lost_power_gets_its_workers_back(three, results):
    took = []
    three.healthy()
    for _unused in range(REPEATS):
        before = three.node_ids()
        three.lab.off(three.head)
        three.lab.boot(three.head)
        three.lab.wait(three.head, seconds=180)
        seconds, answer = three.wait_for(again(before, *three.hosts), 4 * HEAD_LIMIT)
        took.append(seconds)
        assert_members(three, answer)
    assert results.add("head power loss, all members after its ssh", took, HEAD_LIMIT) < HEAD_LIMIT
    assert max(took) < HEAD_LIMIT


def test_workers_keep_trying_while_there_is_no_head(three, results):
    """Off for longer than every limit on the way; the workers wait and say for whom."""
    three.healthy()
    before = three.node_ids()
    three.lab.off(three.head)
    try:
        time.sleep(90)
        for worker in three.workers:
            assert three.on(worker, f"systemctl show -P ActiveState {UNIT}").strip() == "activating", worker
            ends = time.monotonic() + 60
            # after several starts it says first how long it holds back
            while "waiting for the head's GCS" not in (
                said := three.on(worker, f"journalctl -u {UNIT} -n 5 -o cat --no-pager")
            ):
                assert time.monotonic() < ends, said
                time.sleep(1)
        asked = three.health(three.workers[0])
        assert not asked["healthy"]
        assert asked["problems"][0]["code"].startswith("gcs_"), asked["problems"]
    finally:
        three.lab.boot(three.head)
    three.lab.wait(three.head, seconds=180)
    seconds, _answer = three.wait_for(again(before, *three.hosts), 4 * HEAD_LIMIT)
    results.put("head away for 90 s, all members after its ssh", {"seconds": round(seconds, 1), "limit": HEAD_LIMIT})
    assert seconds < HEAD_LIMIT


def test_a_fixed_link_brings_the_node_back(three, results):
    worker, took, noticed, died = three.workers[0], [], [], []
    three.healthy()
    nic = three.fabric_nic(worker)
    for number in range(REPEATS):
        before = three.node_ids()
        silent = number % 2 == 1
        three.lab.cut(worker, nic, silent=silent)
        begun, cut_at = time.monotonic(), time.time()
        seconds, answer = three.wait_for(lambda found: worker in found["missing"], 60)
        noticed.append(seconds)
        # an answer about a cluster with a silent member waits for that member, so ray_info is later than the GCS
        [entry] = [entry for entry in answer["dead"] if entry["node_id"] == before[worker]]
        died.append(round(datetime.fromisoformat(entry["ended"]).timestamp() - cut_at, 1))
        assert "health check" in " ".join(entry["reason"] for entry in answer["dead"]).lower()
        time.sleep(max(0.0, CUT_SECONDS - (time.monotonic() - begun)))
        three.lab.fix(worker, nic)
        seconds, answer = three.wait_for(again(before, worker), 4 * LINK_LIMIT)
        took.append(seconds)
        assert_members(three, answer)
    # whole seconds, by the GCS's clock, which is this machine's
    assert results.add("silent peer dead for the GCS", died, SILENT_LIMIT) < SILENT_LIMIT
    results.add("silent peer missing for ray_info", noticed, 20)
    assert results.add("link cut for 90 s, member after fixing", took, LINK_LIMIT) < LINK_LIMIT
    assert max(took) < LINK_LIMIT


def test_clean_starts_without_a_false_death(three, results):
    """The health check is quick; it must not take a node for dead that is merely starting."""
    three.healthy()
    took = []
    for _unused in range(STARTS):
        before = three.node_ids()
        begun = time.monotonic()
        three.on(three.head, f"systemctl restart {UNIT}")
        for worker in three.workers:
            three.on(worker, f"systemctl restart --no-block {UNIT}")
        _seconds, answer = three.wait_for(again(before, *three.hosts), 240)
        took.append(time.monotonic() - begun)
        first = {entry["name"]: entry["node_id"] for entry in answer["alive"]}
        time.sleep(WATCH_SECONDS)
        answer = three.health()
        assert answer["healthy"], answer["reason"]
        assert not answer["dead"], answer["dead"]
        assert {entry["name"]: entry["node_id"] for entry in answer["alive"]} == first
    results.add(f"{STARTS} clean starts without a false death, seconds each", took, 240)
