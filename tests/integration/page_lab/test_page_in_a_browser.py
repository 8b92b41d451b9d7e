# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real browser and the page of a real head: keys, the chat, the group's way through its states, two visitors."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, Page, expect

from tests.integration.conftest import Cluster
from tests.integration.page_lab.conftest import (
    ANNA,
    CHATS,
    LOAD,
    MODEL,
    SOON,
    act,
    answers_truly,
    back,
    looked_at,
    played,
    say,
    sign_in,
    verdict,
    verdicts,
    visitor,
)


def test_a_wrong_key_learns_nothing_and_a_right_one_sees_the_cluster(chromium: Browser, cluster: Cluster) -> None:
    with visitor(chromium, cluster) as page:
        verdict(page, "Serving", LOAD)
        for key in ("x" * 30, CHATS):
            sign_in(page, key)
            expect(page.get_by_role("alert")).to_contain_text("not known here", timeout=1000 * SOON)
            assert not [host for host in cluster.hosts if host in page.content()]
        looked_at(page, "wrong-key")
        sign_in(page, ANNA)
        expect(page.locator("header .key")).to_have_text("anna, may operate", timeout=1000 * SOON)
        for host in cluster.hosts:
            expect(page.locator("#hosts")).to_contain_text(host)
        expect(page.locator("#hosts header")).to_contain_text(f"{len(cluster.hosts)} of {len(cluster.hosts)} answer")
        # the same kernel, engine and revision on all
        expect(page.locator(".alike")).to_contain_text(re.compile(r"run the same: .*kernel \d"), timeout=90_000)
        expect(page.locator(".alike")).to_contain_text(re.compile(r"vllm \d"))
        expect(page.locator(".alike")).to_contain_text(re.compile(rf"model {MODEL} [0-9a-f]{{12}}"))
        looked_at(page, "serving")


def test_a_chat_streams_is_stopped_and_says_what_is_so(anna: Page) -> None:
    answer = say(anna, "Write a long story about a ship, its captain and a storm.")
    written = answer.locator(".writes")
    expect(written).to_contain_text(re.compile(r"\w+ \w+ \w+"), timeout=1000 * SOON)
    before = written.inner_text()
    expect(written).not_to_have_text(before, timeout=1000 * SOON)
    looked_at(anna, "chat-streams")
    anna.locator("#chat").get_by_role("button", name="Stop").click()
    expect(answer.locator(".stat")).to_contain_text("stopped", timeout=1000 * SOON)
    answers_truly(anna)
    expect(anna.locator("#chat .it .stat")).to_contain_text("to the first token")
    looked_at(anna, "chat")


def test_a_key_that_may_look_is_refused_to_act(chromium: Browser, cluster: Cluster) -> None:
    with visitor(chromium, cluster) as page:
        sign_in(page, cluster.api_key)
        verdict(page, "Serving")
        dialog = act(page, "Restart", "a try")
        expect(dialog.get_by_role("alert")).to_contain_text("may look but not operate", timeout=1000 * SOON)
        looked_at(page, "refused")
        dialog.get_by_role("button", name="Leave it").click()
        assert verdicts(page, lambda _told: True, SOON) == ["Serving"]


def test_two_visitors_see_one_drain_and_its_end(anna: Page, chromium: Browser, cluster: Cluster) -> None:
    with visitor(chromium, cluster) as other:
        sign_in(other, cluster.api_key)
        verdict(other, "Serving")
        act(anna, "Drain", "a look inside")
        for page in (anna, other):
            verdict(page, re.compile("^Draining"))
        looked_at(anna, "draining")
        # until the watchdog has said so too: a wish for a group that changes meanwhile is refused
        anna.wait_for_timeout(6000)
        expect(other.locator("#events")).to_contain_text("a look inside", timeout=1000 * SOON)
        anna.get_by_role("button", name="Take requests again").click()
        anna.get_by_role("dialog").get_by_role("button", name="Take requests again").click()
        for page in (anna, other):
            verdict(page, "Serving")


def test_what_playbooks_found_is_told_by_page_and_status(anna: Page, cluster: Cluster) -> None:
    played(cluster, "playbooks/doctor.yml")
    played(cluster, "playbooks/drift.yml", "--check")
    own = anna.locator(".alike")
    for name in ("doctor.yml", "drift.yml"):
        expect(own).to_contain_text(re.compile(rf"{name} \d+\s(s|min) ago: "), timeout=1000 * SOON)
    looked_at(anna, "findings")
    said = own.locator(".worries").inner_text().replace("\u00a0", " ")
    told = played(cluster, "playbooks/status.yml").output
    for name in ("doctor.yml", "drift.yml"):
        found = re.search(rf"{name} .*? ago: (.*)", said)
        assert found
        assert re.search(rf"{name} .*? ago: {re.escape(found[1].strip())}", told), told[-3000:]


def test_a_rank_that_is_killed_heals_without_a_reload(anna: Page, cluster: Cluster) -> None:
    cluster.run(cluster.hosts[-1], "systemctl kill --signal=KILL sparkthor-vllm.service")
    assert back(anna)[-1] == "Serving"
    expect(anna.locator("#events")).to_contain_text("watchdog", timeout=1000 * SOON)


def test_a_host_that_loses_power_is_named_until_it_is_back(anna: Page, cluster: Cluster) -> None:
    away = cluster.hosts[-1]
    cluster.lab.off(away)
    verdict(anna, re.compile(rf"{away} is away$"), 900)
    expect(anna.locator("#hosts")).to_contain_text("no answer for", timeout=1000 * SOON)
    expect(anna.locator("#now .worries")).to_contain_text(f"{away} has not answered for")
    looked_at(anna, "host-away")
    cluster.lab.boot(away)
    cluster.lab.wait(away)
    verdicts(anna, lambda told: told == "Serving", LOAD)
