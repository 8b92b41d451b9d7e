# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Groups that take turns on a host, a model that is another one in the middle of a conversation, and a small disk."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import console_state
from playwright.sync_api import expect

from tests.integration.page.conftest import Cluster, Watched, exporter_page, sign_in, verdict
from tests.integration.page.test_states import SOON, beside, seen

FIRST = "qwen3.5-397b-a17b-nvfp4"


def test_a_group_that_gave_way_says_to_whom_and_takes_a_message(open_tab: Watched, cluster: Cluster) -> None:
    beside(cluster, "coder", "qwen3-coder-30b-a3b", "serving")
    (cluster.folder / "lasting" / "maintenance").write_text("asleep: coder serves\n")
    page = sign_in(open_tab, cluster)
    verdict(page, "coder: Serving")
    expect(page.locator("#now .groups li")).to_contain_text(f"Asleep: {FIRST}", timeout=SOON)
    page.get_by_role("button", name="Show cluster").click()
    verdict(page, "cluster: Asleep")
    expect(page.locator("#now .say")).to_have_text(f"It gave way: coder serves. {FIRST} starts when it is asked for.")
    expect(page.get_by_role("button", name="Wake")).to_be_enabled()
    page.get_by_label("Model").select_option(FIRST)
    expect(page.locator("#chat .none")).to_have_text(re.compile("^It sleeps. A message wakes it"))
    page.get_by_label("Message").fill("Good morning")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    seen(page, "gave-way")


def test_a_message_that_was_refused_can_be_sent_again_as_it_is(open_tab: Watched, cluster: Cluster) -> None:
    line = "The model is asleep: the model that serves is in use."
    page = sign_in(open_tab, cluster)
    message, answer = page.get_by_label("Message"), page.locator("#chat .it")
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(
            status=503, headers={"Retry-After": "40"}, body=json.dumps({"error": {"message": line}})
        ),
    )
    message.fill("Good morning")
    page.get_by_role("button", name="Send").click()
    expect(answer.get_by_role("alert")).to_have_text(f"503: {line} Try again in 40 s.")
    expect(message).to_have_value("Good morning")
    seen(page, "chat-asleep")
    # what is written meanwhile is not lost for it
    message.fill("Good evening")
    page.keyboard.press("Enter")
    message.fill("Good night")
    expect(answer.nth(1).get_by_role("alert")).to_be_visible()
    expect(message).to_have_value("Good night")
    page.unroute("**/v1/chat/completions")
    cluster.state("serving")
    page.get_by_role("button", name="Send").click()
    expect(answer.nth(2)).to_contain_text("Paris", timeout=SOON)
    expect(message).to_have_value("")
    assert cluster.asked[-1]["messages"] == [{"role": "user", "content": "Good night"}]


def test_another_model_answers_and_what_was_said_keeps_the_name_of_its_own(open_tab: Watched, cluster: Cluster) -> None:
    other = "organisation/" + "model-with-a-long-name-" * 6
    page = sign_in(open_tab, cluster)
    answer = page.locator("#chat .it")
    page.get_by_label("Message").fill("The capital of France?")
    page.keyboard.press("Enter")
    expect(answer.locator(".stat")).to_contain_text("tokens", timeout=SOON)
    expect(answer.locator(".stat")).not_to_contain_text(FIRST)
    cluster.config(model=other)
    expect(page.locator("#chat > header")).to_contain_text(f"with {other}", timeout=SOON)
    expect(answer.locator(".stat")).to_contain_text(f"by {FIRST}")
    page.get_by_label("Message").fill("Sure?")
    page.keyboard.press("Enter")
    expect(answer.nth(1).locator(".stat")).to_contain_text("tokens", timeout=SOON)
    assert cluster.asked[-1]["model"] == other
    cluster.config(model=FIRST)
    expect(answer.nth(1).locator(".stat")).to_contain_text(f"by {other}", timeout=SOON)
    expect(answer.first.locator(".stat")).not_to_contain_text("by ")
    seen(page, "chat-of-two-models")


def test_a_wish_to_wake_is_noted_and_not_done(open_tab: Watched, cluster: Cluster) -> None:
    beside(cluster, "coder", "qwen3-coder-30b-a3b", "", on_demand=True)
    cluster.wakes = "The model is asleep: the model that serves is in use."
    page = sign_in(open_tab, cluster)
    page.get_by_role("button", name="Show coder").click()
    verdict(page, "coder: Asleep")
    page.get_by_role("button", name="Wake").click()
    page.get_by_role("dialog").get_by_role("button", name="Wake coder").click()
    told = "Wake is noted for a minute, asked for by operates: The model is asleep: the model that serves is in use."
    expect(page.locator("#now .fix")).to_have_text(told, timeout=SOON)
    seen(page, "noted")


def test_a_group_that_came_later_has_a_line_of_its_own_time(
    open_tab: Watched, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = console_state.History.document

    def longer(self: console_state.History) -> dict[str, Any]:
        told = inner(self)
        more = {name: [7.0] * 101 for name in told["series"] if name.endswith("/cluster")}
        return {**told, "series": {**told["series"], **more, "running/coder": [3.0] * 11}}

    monkeypatch.setattr(console_state.History, "document", longer)
    beside(cluster, "coder", "qwen3-coder-30b-a3b", "serving")
    page = sign_in(open_tab, cluster)
    expect(page.locator("#traffic .legend span")).to_have_text(["cluster", "coder"], timeout=SOON)
    lines = page.locator("#traffic figure").filter(has_text="Requests").locator("path.line")
    drawn = [[float(x) for x in re.findall(r"[ML]([\d.]+) ", line.get_attribute("d") or "")] for line in lines.all()]
    # a tenth of the time, at the end of it
    assert [(places[0], places[-1]) for places in drawn] == [(0.0, 100.0), (90.0, 100.0)]


def test_a_small_disk_with_room_is_no_worry(open_tab: Watched, cluster: Cluster) -> None:
    small = exporter_page(disk=7_000_000_000).replace("disk_total_bytes 3670000000000", "disk_total_bytes 12000000000")
    cluster.hosts["spark-02"] = small
    page = sign_in(open_tab, cluster)
    own = page.locator("#hosts tbody tr").filter(has_text="spark-02").locator("td[data-name=Disk]")
    expect(own).to_contain_text(re.compile(r"7\sGB left"), timeout=SOON)
    expect(own.locator(".tone-bad")).to_have_count(0)
    expect(page.locator("#now .worries")).to_have_count(0)
    cluster.hosts["spark-02"] = small.replace("disk_free_bytes 7000000000", "disk_free_bytes 0")
    expect(page.locator("#now .worries")).to_contain_text(re.compile(r"spark-02 has 0\sGB left"), timeout=SOON)
    expect(own.locator(".tone-bad")).to_have_count(1)
