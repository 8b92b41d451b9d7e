# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real browser and the page of a real head: keys, the chat, the group's way through its states, two visitors.

``PAGE_PICTURES=FOLDER`` keeps a picture of each state.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.integration.conftest import Cluster
from tools import browser
from tools.playbooks import Outcome, run_playbook

GIVEN = Path(__file__).parent / "page.yml"
ANNA, CHATS = (key["key"] for key in yaml.safe_load(GIVEN.read_text(encoding="utf-8"))["vllm_serve_api_keys"])
PICTURES = os.environ.get("PAGE_PICTURES", "")
#: seconds: of what the page learns at its next questions, and of a load of the model
SOON, LOAD = 60, 1200


@pytest.fixture(name="chromium", scope="module")
def _chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=browser.program(), args=["--no-sandbox"])
        yield made
        made.close()


@contextlib.contextmanager
def visitor(chromium: Browser, cluster: Cluster) -> Iterator[Page]:
    """A visitor's tab, which asks nobody but the head and trips over nothing."""
    context, amiss = chromium.new_context(viewport={"width": 1366, "height": 900}, ignore_https_errors=True), []
    own = cluster.endpoint.replace("http://", "https://")
    try:
        page = context.new_page()
        page.on("request", lambda request: amiss.append(request.url) if not request.url.startswith(own) else None)
        page.on("pageerror", lambda error: amiss.append(str(error)))
        page.goto(f"{own}/console/")
        yield page
    finally:
        context.close()
    assert amiss == []


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Show the cluster").click()


def act(page: Page, name: str, why: str) -> Locator:
    """Press an action's button, say why and confirm; the dialog."""
    page.get_by_role("button", name=name).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Why?").fill(why)
    dialog.get_by_role("button", name=f"{name} the group").click()
    return dialog


@pytest.fixture(name="anna")
def _anna(chromium: Browser, cluster: Cluster) -> Iterator[Page]:
    """Signed in by the key that may operate."""
    with visitor(chromium, cluster) as page:
        sign_in(page, ANNA)
        verdict(page, "Serving", LOAD)
        yield page


def verdict(page: Page, text: str | re.Pattern[str], seconds: float = SOON) -> None:
    expect(page.locator("h1")).to_have_text(text, timeout=1000 * seconds)


def picture(page: Page, name: str) -> None:
    if PICTURES:
        Path(PICTURES).mkdir(parents=True, exist_ok=True)
        for width in (390, 1366, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            Path(f"{PICTURES}/lab-{name}-{width}.png").write_bytes(page.screenshot(full_page=True))
        page.set_viewport_size({"width": 1366, "height": 900})


def verdicts(page: Page, end: Callable[[str], bool], seconds: float) -> list[str]:
    """Every verdict that the page shows, without a reload, until one of which ``end`` is true."""
    found: list[str] = []
    limit = time.monotonic() + seconds
    while True:
        told = page.locator("h1").inner_text()
        if not found or told != found[-1]:
            print(f"  {told}")
            found.append(told)
            picture(page, re.sub(r"\W+", "-", re.sub(r"\d", "", told)).strip("-").lower())
        if end(told):
            return found
        assert time.monotonic() < limit, found
        page.wait_for_timeout(500)


def back(page: Page) -> list[str]:
    """Until it is not serving, and then until it is."""
    seen = verdicts(page, lambda told: told != "Serving", 600)
    return seen + verdicts(page, lambda told: told == "Serving", LOAD)


@contextlib.contextmanager
def playbook(cluster: Cluster, name: str, *arguments: str, **variables: Any) -> Iterator[Callable[[], Outcome]]:
    """It runs beside the block, which may ask for its outcome."""
    given = ["--extra-vars", f"@{GIVEN}", *arguments]

    def run() -> Outcome:
        return run_playbook(
            name, cluster.inventories, extra_vars=variables, arguments=given, name="page", say=lambda _line: None
        )

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(run).result


def test_a_wrong_key_learns_nothing_and_a_right_one_sees_the_cluster(chromium: Browser, cluster: Cluster) -> None:
    with visitor(chromium, cluster) as page:
        verdict(page, "Serving", LOAD)
        for key in ("x" * 30, CHATS):
            sign_in(page, key)
            expect(page.get_by_role("alert")).to_contain_text("not known here", timeout=1000 * SOON)
            assert not [host for host in cluster.hosts if host in page.content()]
        picture(page, "wrong-key")
        sign_in(page, ANNA)
        expect(page.locator("header .key")).to_have_text("anna, may operate", timeout=1000 * SOON)
        for host in cluster.hosts:
            expect(page.locator("#hosts")).to_contain_text(host)
        expect(page.locator("#hosts header")).to_contain_text(f"{len(cluster.hosts)} of {len(cluster.hosts)} answer")
        # the same kernel, engine and revision on all
        expect(page.locator(".alike")).to_contain_text(re.compile(r"run the same: .*kernel \d"), timeout=90_000)
        expect(page.locator(".alike")).to_contain_text(re.compile(r"vllm \d"))
        expect(page.locator(".alike")).to_contain_text(re.compile(r"model tiny-qwen3 [0-9a-f]{12}"))
        picture(page, "serving")


def test_a_chat_streams_and_is_stopped(anna: Page) -> None:
    talk = anna.locator("#chat .it")
    anna.get_by_label("Message").fill("Hello")
    anna.keyboard.press("Enter")
    # a model of chance numbers may say much
    anna.locator("#chat").get_by_role("button", name="Stop").click(timeout=1000 * SOON)
    expect(talk.first.locator(".stat")).to_contain_text("stopped", timeout=1000 * SOON)
    anna.get_by_role("button", name="New conversation").click()
    anna.get_by_label("Message").fill("Hello again")
    anna.keyboard.press("Enter")
    expect(talk.first.locator(".stat")).to_contain_text("tokens/s", timeout=120_000)
    expect(talk.first.locator(".stat")).to_contain_text("to the first token")
    picture(anna, "chat")
    stop = anna.locator("#chat").get_by_role("button", name="Stop")
    if stop.count():
        stop.click()


def test_a_key_that_may_look_is_refused_to_act(chromium: Browser, cluster: Cluster) -> None:
    with visitor(chromium, cluster) as page:
        sign_in(page, cluster.api_key)
        verdict(page, "Serving")
        dialog = act(page, "Restart", "a try")
        expect(dialog.get_by_role("alert")).to_contain_text("may look but not operate", timeout=1000 * SOON)
        picture(page, "refused")
        dialog.get_by_role("button", name="Leave it").click()
        assert verdicts(page, lambda _told: True, SOON) == ["Serving"]


def test_two_visitors_see_one_drain_and_its_end(anna: Page, chromium: Browser, cluster: Cluster) -> None:
    with visitor(chromium, cluster) as other:
        sign_in(other, cluster.api_key)
        verdict(other, "Serving")
        act(anna, "Drain", "a look inside")
        for page in (anna, other):
            verdict(page, re.compile("^Draining"))
        picture(anna, "draining")
        # until the watchdog has said so too: a wish for a group that changes meanwhile is refused
        anna.wait_for_timeout(6000)
        expect(other.locator("#events")).to_contain_text("a look inside", timeout=1000 * SOON)
        anna.get_by_role("button", name="Take requests again").click()
        anna.get_by_role("dialog").get_by_role("button", name="Take requests again").click()
        for page in (anna, other):
            verdict(page, "Serving")


def test_what_playbooks_found_is_told_by_page_and_status(anna: Page, cluster: Cluster) -> None:
    for name, arguments in (("doctor", ()), ("drift", ("--check",))):
        with playbook(cluster, f"playbooks/{name}.yml", *arguments) as ended:
            assert ended().rc == 0, ended().failures
    own = anna.locator(".alike")
    for name in ("doctor.yml", "drift.yml"):
        expect(own).to_contain_text(re.compile(rf"{name} \d+\s(s|min) ago: "), timeout=1000 * SOON)
    picture(anna, "findings")
    said = own.locator(".worries").inner_text().replace("\u00a0", " ")
    with playbook(cluster, "playbooks/status.yml") as ended:
        told = ended().output
    for name in ("doctor.yml", "drift.yml"):
        found = re.search(rf"{name} .*? ago: (.*)", said)
        assert found
        assert re.search(rf"{name} .*? ago: {re.escape(found[1].strip())}", told), told[-3000:]


def test_a_playbook_restarts_the_model_in_sight(anna: Page, cluster: Cluster) -> None:
    said = "Nothing can be changed from here until it has ended."
    with playbook(cluster, "playbooks/restart.yml") as ended:
        expect(anna.locator("#now .fix").first).to_contain_text(said, timeout=600_000)
        picture(anna, "playbook")
        seen = back(anna)
        assert ended().rc == 0, ended().failures
    percents = [int(found[1]) for told in seen if (found := re.search(r"(\d+) %$", told))]
    assert percents == sorted(percents)
    assert any(re.match("Loading|Starting", told) for told in seen), seen
    expect(anna.locator("#now")).not_to_contain_text(said, timeout=120_000)


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
    picture(anna, "host-away")
    cluster.lab.boot(away)
    cluster.lab.wait(away)
    verdicts(anna, lambda told: told == "Serving", LOAD)
