# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real browser, and whoever signs in to the page of a real head.

``PAGE_PICTURES=FOLDER`` keeps a picture of each state at three widths, light and dark.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.integration.accessible import amiss
from tests.integration.conftest import Cluster
from tools import browser
from tools.playbooks import Outcome, run_playbook

GIVEN = Path(__file__).parent / "page.yml"
ANNA, CHATS = (key["key"] for key in yaml.safe_load(GIVEN.read_text(encoding="utf-8"))["vllm_serve_api_keys"])
#: what the inventory serves, and what else there is in the store
MODEL, OTHER = "smollm2-135m-instruct", "tiny-qwen3"
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
    context, strange = chromium.new_context(viewport={"width": 1366, "height": 900}, ignore_https_errors=True), []
    own = cluster.endpoint.replace("http://", "https://")
    try:
        page = context.new_page()
        page.on("request", lambda request: strange.append(request.url) if not request.url.startswith(own) else None)
        page.on("pageerror", lambda error: strange.append(str(error)))
        page.goto(f"{own}/console/")
        yield page
    finally:
        context.close()
    assert strange == []


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


def say(page: Page, text: str) -> Locator:
    """Send a message; its answer, as it is written."""
    page.get_by_label("Message").fill(text)
    page.keyboard.press("Enter")
    return page.locator("#chat .it").last


def ended(page: Page, answer: Locator) -> None:
    """It is at its end, and nothing went wrong; a model of chance numbers may say nothing at all."""
    expect(answer.locator(".stat")).to_have_text(re.compile("tokens|no answer"), timeout=120_000)
    expect(page.locator("#chat").get_by_role("button", name="Stop")).to_have_count(0, timeout=120_000)
    expect(answer.get_by_role("alert")).to_have_count(0)


def answers_truly(page: Page) -> None:
    """A new conversation, in which the model that answers says what is so."""
    anew = page.get_by_role("button", name="New conversation")
    if anew.count():
        anew.click()
    answer = say(page, "What is the capital of France?")
    expect(answer).to_contain_text("Paris", timeout=120_000)
    ended(page, answer)
    expect(answer.locator(".stat")).to_contain_text("tokens/s")


@pytest.fixture(name="anna")
def _anna(chromium: Browser, cluster: Cluster) -> Iterator[Page]:
    """Signed in by the key that may operate."""
    with visitor(chromium, cluster) as page:
        sign_in(page, ANNA)
        verdict(page, "Serving", LOAD)
        yield page


def verdict(page: Page, text: str | re.Pattern[str], seconds: float = SOON) -> None:
    expect(page.locator("h1")).to_have_text(text, timeout=1000 * seconds)


def looked_at(page: Page, name: str) -> None:
    """It keeps nobody out, by axe, and is kept as a picture where that is asked for."""
    assert amiss(page) == [], name
    if not PICTURES:
        return
    Path(PICTURES).mkdir(parents=True, exist_ok=True)
    for width, scheme in itertools.product((390, 1366, 1920), ("light", "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        Path(f"{PICTURES}/lab-{name}-{width}-{scheme}.png").write_bytes(page.screenshot(full_page=True))
    page.emulate_media(color_scheme="light")
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
            looked_at(page, re.sub(r"\W+", "-", re.sub(r"\d", "", told)).strip("-").lower())
        if end(told):
            return found
        assert time.monotonic() < limit, found
        page.wait_for_timeout(500)


def back(page: Page) -> list[str]:
    """Until it is not serving, and then until it is."""
    seen = verdicts(page, lambda told: told != "Serving", 600)
    return seen + verdicts(page, lambda told: told == "Serving", LOAD)


def loads(seen: list[str]) -> None:
    """A start is among them, and its per cent only rise."""
    assert any(re.search("Loading|Starting", told) for told in seen), seen
    percents = [int(found[1]) for told in seen if (found := re.search(r"(\d+) %$", told))]
    assert percents == sorted(percents), seen


@contextlib.contextmanager
def playbook(cluster: Cluster, name: str, *arguments: str, **variables: Any) -> Iterator[Future[Outcome]]:
    """It runs beside the block, which may ask whether it has ended, and for its outcome."""
    given = ["--extra-vars", f"@{GIVEN}", *arguments]

    def run() -> Outcome:
        outcome = run_playbook(
            name, cluster.inventories, extra_vars=variables, arguments=given, name="page", say=lambda _line: None
        )
        print(f"  {name}: {outcome.seconds:.0f} s, rc {outcome.rc}", flush=True)
        return outcome

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(run)


def played(cluster: Cluster, name: str, *arguments: str, **variables: Any) -> Outcome:
    """The outcome of a playbook that must not fail."""
    with playbook(cluster, name, *arguments, **variables) as runs:
        outcome = runs.result()
    assert outcome.rc == 0, outcome.failures
    return outcome
