# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a page can look like beside a group's own states: people, hosts, groups, faults, dialogs and a chat.

Each is looked at on narrow and wide screens: nothing scrolls sideways or is cut off, and axe finds nothing serious.
``PAGE_PICTURES=FOLDER`` keeps a picture of each.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import console_state, places
from playwright.sync_api import Page, expect

from tests.integration.accessible import look
from tests.integration.page.conftest import (
    KEY,
    NAMES,
    Cluster,
    Watched,
    cables,
    exporter_page,
    sign_in,
    verdict,
)
from tests.integration.page.test_browser import STATES, WIDTHS, pictures
from tests.integration.page.test_quality import jump, unlink

SOON = 20000
#: text that is wider or higher than the box that hides what is beyond
CUT = """() => [...document.querySelectorAll('body *')].filter(one => {
  const style = getComputedStyle(one)
  return one.checkVisibility() && !one.closest('.vh, .mem, svg') && style.clipPath === 'none' &&
    ((one.scrollWidth > one.clientWidth + 1 && ['hidden', 'clip'].includes(style.overflowX)) ||
     (one.scrollHeight > one.clientHeight + 1 && ['hidden', 'clip'].includes(style.overflowY)))
}).map(one => one.outerHTML.slice(0, 120))"""
#: what is beyond the right edge
WIDE = """() => [...document.querySelectorAll('body *')]
  .filter(one => one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML.slice(0, 120))"""
#: figures, numbers with their units, names of hosts and options of commands that are on more than one line
SPLIT = r"""() => {
  const found = []
  const look = (range, told) => {
    const [first] = range.getClientRects()
    if (first && range.getBoundingClientRect().height > 1.6 * first.height) found.push(told)
  }
  const figures = '.figures dd:not(.usual), .num:not(:has(button)), nav a, .live span, .axis span, .charts h3 span'
  for (const one of document.querySelectorAll(figures)) {
    const range = document.createRange()
    range.selectNodeContents(one)
    look(range, one.textContent)
  }
  for (const place of document.querySelectorAll('#now h1, #now .say, .worries li, .log li, #hosts .small, .cmd code')) {
    const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT)
    while (texts.nextNode()) {
      const node = texts.currentNode
      for (const told of node.data.matchAll(/\d\s(?:%|(?:d|h|min|s|GB|GiB)\b)|\bspark-\d+\b|(?<=\s)--?\w+(?=\s|$)/g)) {
        const range = document.createRange()
        range.setStart(node, told.index)
        range.setEnd(node, told.index + told[0].length)
        look(range, node.data)
      }
    }
  }
  return found
}"""
#: lines of the drawing and the charts with less than 3:1 to what they are on
FAINT = """() => {
  const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true})
  const light = colour => {
    pen.fillStyle = colour
    pen.fillRect(0, 0, 1, 1)
    const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data]
      .map(one => one / 255).map(one => one <= .04045 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4)
    return .2126 * r + .7152 * g + .0722 * b + .05
  }
  return [...document.querySelectorAll('.fabric :is(line, rect), .charts path.line')].filter(one => {
    const [a, b] = [getComputedStyle(one).stroke, getComputedStyle(one.closest('section')).backgroundColor].map(light)
    return Math.max(a, b) / Math.min(a, b) < 3
  }).map(one => `${one.getAttribute('class')} ${getComputedStyle(one).stroke}`)
}"""
#: letters of the drawing that nobody can read, in pixels of the screen
SMALL = """() => [...document.querySelectorAll('.fabric text.m')]
  .map(one => [one.textContent, parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a])
  .filter(([, size]) => size < 9.5)"""
#: words and numbers in a table of an answer that are on more than one line
BROKEN = r"""() => [...document.querySelectorAll('.talk :is(th, td)')].flatMap(cell => [...cell.childNodes])
  .flatMap(node => [...(node.data || '').matchAll(/\S+/g)].filter(told => {
    const range = document.createRange()
    range.setStart(node, told.index)
    range.setEnd(node, told.index + told[0].length)
    return range.getBoundingClientRect().height > 1.6 * range.getClientRects()[0].height
  }).map(told => told[0]))"""
#: whether the newest of a conversation is seen
AT_END = "(one => one.scrollHeight - one.scrollTop - one.clientHeight < 5)(document.querySelector('.talk'))"
ANSWER = (
    "These are the **five largest** folders:\n\n",
    "```sh\ndu -xh --max-depth=1 . | sort -rh | head -6\n```\n\n",
    "1. one line is the folder itself\n2. the others are `below` it\n\n",
    "| folder | GB |\n|---|---|\n| models | 812 |\n| cache | 31 |\n\n",
    "> A word that is longer than the screen: " + "x" * 300 + "\n\n[More](https://example.invalid/)",
)


def seen(page: Page, name: str) -> None:
    """It fits, keeps nobody out, and is kept as a picture where that is asked for."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width, page.evaluate(WIDE))
        assert page.evaluate(CUT) == [], (name, width)
        assert page.evaluate(SPLIT) == [], (name, width)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert page.evaluate(FAINT) == [], (name, scheme)
    assert look(page, name) == []
    pictures(page, name)
    page.set_viewport_size({"width": 1366, "height": 900})


def an_hour(monkeypatch: pytest.MonkeyPatch, groups: int = 1) -> None:
    """Let the page's process have a history, as after an hour with a restart in it."""
    inner = console_state.History.document

    def filled(self: console_state.History) -> dict[str, Any]:
        told = inner(self)
        for number, (name, points) in enumerate(sorted(told["series"].items())):
            high = {"tokens_per_second": 40.0, "running": 4.0, "first_token": 0.6}[name.partition("/")[0]]
            wave = [high * (1 + 0.4 * math.sin(step / (17 + 5 * (number % groups)))) for step in range(360)]
            points[:] = [*wave[:200], *[None] * 40, *wave[240:]]
        return told

    monkeypatch.setattr(console_state.History, "document", filled)


def beside(cluster: Cluster, name: str, model: str, state: str, **more: Any) -> None:
    folder = cluster.folder / "etc" / "beside" / name
    folder.mkdir(parents=True)
    (folder / "serving.json").write_text(json.dumps({"unit": "x.service", "model": model, **more}))
    if not more.get("on_demand"):
        told = json.loads((cluster.folder / "run" / "state.json").read_text())
        path = Path(places.Places(name).state)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**told, "state": state, "fraction": 0.38, "updated": time.time() + 80}))
    cluster.groups.append({"name": name, "beside": name, "head": NAMES[0], "here": True, "hosts": [NAMES[0]]})


def test_at_the_door(open_tab: Watched, cluster: Cluster) -> None:
    page = open_tab.page
    page.goto(cluster.url)
    verdict(page, "Serving")
    seen(page, "login")
    sign_in(open_tab, cluster, "x" * 20)
    expect(page.get_by_role("alert")).to_contain_text("not known here")
    # the next try is typed at once, and the field says why
    expect(page.get_by_label("API key")).to_be_focused()
    expect(page.get_by_label("API key")).to_have_accessible_description(re.compile("not known here"))
    seen(page, "wrong-key")
    sign_in(open_tab, cluster, KEY)
    verdict(page, "Serving")
    expect(page.locator("#traffic")).to_contain_text("all keys", timeout=SOON)
    seen(page, "may-view")
    page.get_by_role("button", name="Restart").click()
    page.get_by_label("Why?").fill("a try")
    page.get_by_role("dialog").get_by_role("button", name="Restart the group").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("may look but not operate", timeout=SOON)
    seen(page, "no-rights")


def test_a_day_at_work(open_tab: Watched, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of figures, a journal that is full, and a log."""
    lines = [f"step {number} of a decision, with what led to it and what is next" for number in range(30)]
    cluster.journal = {unit: ["restart: the rank on spark-03 was lost", *lines] for unit in cluster.journal}
    page = open_tab.page
    an_hour(monkeypatch)
    sign_in(open_tab, cluster)
    expect(page.locator("#events")).to_contain_text("spark-03 was lost", timeout=SOON)
    expect(page.locator("#traffic .axis").first).to_contain_text("1 h ago")
    expect(page.locator("#traffic .axis").first).not_to_contain_text("30 min")
    seen(page, "an-hour")
    page.locator("#events summary").click()
    expect(page.locator("#events pre")).to_contain_text("step 29", timeout=SOON)
    # the newest of them is what is seen first
    expect(page.locator("#events pre div").last).to_be_in_viewport()
    page.locator(".elsewhere summary").click()
    page.locator(".system summary").click()
    seen(page, "all-open")


def test_a_conversation(open_tab: Watched, cluster: Cluster) -> None:
    page = sign_in(open_tab, cluster)
    cluster.parts, cluster.pause = [{"reasoning_content": "hm, " * 60}, *ANSWER], 0.0
    page.get_by_label("Message").fill("A line that shows the five largest folders here, please: " + "y" * 200)
    page.keyboard.press("Enter")
    answer = page.locator("#chat .it")
    expect(answer.locator(".stat")).to_contain_text("tokens", timeout=SOON)
    answer.locator("summary").click()
    expect(answer.locator("table")).to_contain_text("812")
    seen(page, "chat-ended")
    cluster.state("serving")
    cluster.parts, cluster.pause = ["word "] * 4000, 0.1
    page.get_by_label("Message").fill("Go on")
    page.get_by_role("button", name="Send").click()
    expect(answer.nth(1)).to_contain_text("word word")
    seen(page, "chat-streams")
    page.locator("#chat").get_by_role("button", name="Stop").click()
    expect(answer.nth(1).locator(".stat")).to_contain_text("stopped")
    seen(page, "chat-stopped")
    cluster.state("serving")
    page.route(
        "**/v1/chat/completions", lambda route: route.fulfill(status=429, body='{"error": {"message": "Slow."}}')
    )
    page.get_by_label("Message").fill("And?")
    page.get_by_role("button", name="Send").click()
    expect(answer.nth(2).get_by_role("alert")).to_have_text("429: Slow.")
    seen(page, "chat-refused")
    page.unroute("**/v1/chat/completions")
    cluster.state("serving")
    cluster.parts, cluster.pause = ["Now."], 0.0
    page.get_by_label("Message").fill("And now?")
    page.get_by_role("button", name="Send").click()
    expect(answer.nth(3).locator(".stat")).to_contain_text("tokens", timeout=SOON)
    # a question that was refused is not asked again, and both take turns
    asked = cluster.asked[-1]["messages"]
    assert [one["role"] for one in asked] == ["user", "assistant", "user", "assistant", "user"]
    assert asked[-1]["content"] == "And now?"


def test_a_long_answer_is_followed_and_can_be_read(open_tab: Watched, cluster: Cluster) -> None:
    """Whatever comes in one piece; who has scrolled up is left alone; an error in the middle leaves what was said."""
    rows = "".join(f"| models/{number} | {number} GB | {'weights and a tokenizer, ' * 3} |\n" for number in range(40))
    code = "".join(f"def step_{number}(values): return [one for one in values if one]\n" for number in range(30))
    long = [f"```python\n{code}```\n\n", f"| folder | size | what |\n|---|---:|---|\n{rows}\n", "The end."]
    page = sign_in(open_tab, cluster)
    cluster.parts, cluster.pause = [{"reasoning_content": "hm, " * 400}, *long, *["more "] * 4000], 0.05
    talk, answer = page.locator("#chat .talk"), page.locator("#chat .it")
    page.get_by_label("Message").fill("All folders")
    page.keyboard.press("Enter")
    expect(answer.last).to_contain_text("more more", timeout=SOON)
    cluster.pause = 0.3
    page.wait_for_function(AT_END, timeout=SOON)
    seen(page, "chat-half")
    talk.evaluate("one => { one.scrollTop = 0 }")
    page.wait_for_timeout(1000)
    assert talk.evaluate("one => one.scrollTop") == 0
    page.locator("#chat").get_by_role("button", name="Stop").click()
    expect(answer.last.locator(".stat")).to_contain_text("stopped")
    # why nothing can be sent stands below what was said
    cluster.state(**STATES["away"][0])
    talk.evaluate("one => { one.scrollTop = one.scrollHeight }")
    expect(talk.locator("> :last-child")).to_contain_text("What you write here is kept", timeout=SOON)
    expect(talk.locator("> :last-child")).to_be_in_viewport()
    # the next question is at the end again
    cluster.state("serving")
    expect(talk.locator("> .none")).to_have_count(0, timeout=SOON)
    cluster.parts = [*long, {"error": {"message": "EngineCore encountered an issue."}}]
    page.get_by_label("Message").fill("Again")
    page.keyboard.press("Enter")
    expect(answer.last.get_by_role("alert")).to_have_text("EngineCore encountered an issue.", timeout=SOON)
    page.wait_for_function(AT_END, timeout=SOON)
    expect(answer.last).to_contain_text("The end.")
    # also on a phone that is turned
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_function(AT_END, timeout=SOON)
    assert page.evaluate(BROKEN) == []
    seen(page, "chat-error")


def test_what_people_wish(open_tab: Watched, cluster: Cluster) -> None:
    page = sign_in(open_tab, cluster)
    verdict(page, "Serving")
    cluster.state("serving")
    dialog = page.get_by_role("dialog")
    for name in ("Drain", "Restart", "Stop…", "Block chats"):
        cluster.state("serving")
        page.get_by_role("button", name=name).click()
        expect(dialog).to_be_visible()
        seen(page, f"ask-{re.sub(r'[^a-z]', '', name.lower())}")
        dialog.get_by_role("button", name="Leave it").click()
        expect(dialog).to_have_count(0)
    cluster.state("serving")
    page.get_by_role("button", name="Drain").click()
    dialog.get_by_label("Why?").fill("a look inside, because of " + "w" * 170)
    dialog.get_by_role("button", name="Drain the group").click()
    expect(page.locator("#now .fix").first).to_contain_text("asked for by operates", timeout=SOON)
    verdict(page, re.compile("^Draining"))
    seen(page, "drains")
    page.get_by_role("button", name="Take requests again").click()
    dialog.get_by_role("button", name="Take requests again", exact=True).click()
    verdict(page, "Serving")
    cluster.state("serving")
    cluster.refuses = "the wanted configuration of the front proxy is not valid: " + "z" * 300
    page.get_by_role("button", name="Block chats").click()
    dialog.get_by_label("Why?").fill("it leaked")
    dialog.get_by_role("button", name="Block chats").click()
    expect(page.locator("#now")).to_contain_text("is not valid", timeout=SOON)
    seen(page, "wish-failed")


def off(cluster: Cluster) -> None:
    cluster.state(**STATES["away"][0])
    del cluster.hosts["spark-03"]


def full(cluster: Cluster) -> None:
    cluster.hosts["spark-02"] = exporter_page(disk=9_000_000_000)


def hot(cluster: Cluster) -> None:
    cluster.hosts["spark-02"] += 'sparkthor_gpu_slowed{gpu="0",reason="hw_thermal_slowdown"} 1\n'


def cut(cluster: Cluster) -> None:
    cluster.hosts["spark-02"] = exporter_page(link=0)


def opened(cluster: Cluster) -> None:
    cluster.hosts["spark-02"] = exporter_page().replace("sparkthor_firewall_closed 1", "sparkthor_firewall_closed 0")


def at_work(cluster: Cluster) -> None:
    holder = {"token": "x", "owner": "ops@controller", "play": "site.yml", "since": ""}
    (cluster.folder / "controller.json").write_text(json.dumps(holder))


def gone(cluster: Cluster) -> None:
    (cluster.folder / "console" / "console.sock").unlink()


#: name -> what befalls, the verdict that is shown, and what is said
FAULTS: dict[str, tuple[Callable[[Cluster], Any], str, str]] = {
    "host-off": (off, "Not serving: spark-03 is away", "spark-03 has not answered"),
    "disk-full": (full, "Serving", "spark-02 has 9 GB left on the disk of the models"),
    "hot": (hot, "Serving", "spark-02: GPU 0 is slowed down by heat"),
    "cable-cut": (cut, "Serving", "spark-02 has no carrier on enP2p1s0f0np0"),
    "firewall-open": (opened, "Serving", "spark-02: the firewall is not the wanted one"),
    "playbook": (at_work, "Serving", "site.yml runs, by ops@controller"),
    "no-state-file": (unlink, "Unknown", "Its watchdog has said nothing yet."),
    "old-version": (lambda cluster: cluster.state("serving", version=0), "Unknown", "speaks another version"),
    "clock-behind": (lambda cluster: jump(cluster, -7200), "Unknown", "a clock was set"),
    "clock-ahead": (lambda cluster: jump(cluster, 7200), "Unknown", "The last word of its watchdog is"),
    "nothing-set-up": (lambda cluster: cluster.groups.clear(), "Nothing is set up", "site.yml sets up"),
    "process-away": (gone, "Serving", "The page's own process is away"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_said_and_fits(open_tab: Watched, cluster: Cluster, name: str) -> None:
    befalls, told, said = FAULTS[name]
    page = sign_in(open_tab, cluster)
    verdict(page, "Serving")
    befalls(cluster)
    expect(page.locator("main")).to_contain_text(said, timeout=40000)
    verdict(page, told)
    seen(page, name)


@pytest.mark.parametrize(
    ("hosts", "topology", "groups"),
    [
        *((1, "single", 1), (2, "direct", 2), (4, "ring", 3), (5, "ring", 1), (6, "switch", 1)),
        *((7, "switch", 2), (8, "switch", 4), (8, "lan", 2)),
    ],
)
def test_one_to_eight_hosts_and_one_to_four_groups(
    open_tab: Watched, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, hosts: int, topology: str, groups: int
) -> None:
    names = tuple(f"spark-{number + 1:02d}" for number in range(hosts))
    cluster.plan(topology, cables(names, topology))
    cluster.hosts |= {name: exporter_page() for name in names}
    cluster.groups[0]["hosts"] = list(names)
    more = (
        ("embed", "qwen3-embedding-0.6b", "serving"),
        ("coder", "qwen3-coder-30b-a3b", ""),
        ("mid", "glm-5.3-flash-nvfp4", "loading"),
    )
    for name, model, state in more[: groups - 1]:
        beside(cluster, name, model, state, on_demand=not state)
    page = open_tab.page
    an_hour(monkeypatch, groups)
    sign_in(open_tab, cluster)
    expect(page.locator("#hosts tbody tr")).to_have_count(hosts, timeout=SOON)
    if groups > 1:
        expect(page.locator("#now .groups li")).to_have_count(groups - 1, timeout=SOON)
        # unless it is the one that needs a person first
        if (show := page.get_by_role("button", name="Show cluster")).count():
            show.click()
        for name in ("cluster", *(one[0] for one in more[: groups - 1])):
            expect(page.locator("#traffic .legend")).to_contain_text(name)
        # seconds are no sum
        told = page.locator("#traffic h3", has_text="First token").locator("span").inner_text()
        assert float(told.split()[0]) < 0.6 * 1.4 + 0.01
    verdict(page, "cluster: Serving" if groups > 1 else "Serving")
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate(SMALL) == []
    page.set_viewport_size({"width": 1920, "height": 900})
    uses_the_width(page)
    seen(page, f"{hosts}-hosts-{topology}-{groups}-groups")


def uses_the_width(page: Page) -> None:
    """On a large screen hosts, traffic, and the chat above events stand side by side."""
    boxes = {name: page.locator(f"#{name}").bounding_box() for name in ("hosts", "traffic", "chat", "events")}
    hosts, traffic, chat, events = (box for box in boxes.values() if box)
    assert hosts["x"] + hosts["width"] < traffic["x"]
    assert traffic["x"] + traffic["width"] < chat["x"] == events["x"]
    assert hosts["y"] == traffic["y"] == chat["y"]
    assert 0 < events["y"] - chat["y"] - chat["height"] <= 24
    assert hosts["x"] <= 80
    assert chat["x"] + chat["width"] >= 1920 - 80


def test_a_group_that_is_gone_leaves_the_others_their_colours(
    open_tab: Watched, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = console_state.History.document

    def with_a_gone_one(self: console_state.History) -> dict[str, Any]:
        told = inner(self)
        # nobody asked it
        gone = {"tokens_per_second/absent": [0.0], "running/absent": [0.0], "first_token/absent": [None]}
        return {**told, "series": dict(sorted({**told["series"], **gone}.items()))}

    monkeypatch.setattr(console_state.History, "document", with_a_gone_one)
    page = sign_in(open_tab, cluster)
    expect(page.locator("#traffic .legend span")).to_have_text(["absent", "cluster"], timeout=SOON)
    for chart in page.locator("#traffic figure").all():
        expect(chart.locator("path.line")).to_have_count(2)


def test_long_names_fit(open_tab: Watched, cluster: Cluster) -> None:
    names = tuple(f"spark-of-the-laboratory-in-the-second-cellar-rack-{number}" for number in range(3))
    cluster.plan("ring", cables(names))
    cluster.hosts = {name: exporter_page(link=0) for name in names}
    cluster.groups[0] |= {"name": "the-group-with-a-name-that-has-sixty-three-characters-in-all", "hosts": list(names)}
    cluster.config(model="organisation/" + "model-with-a-long-name-" * 6)
    cluster.planned["host"] = names[0]
    cluster.hosts[names[0]] += "".join(
        f'sparkthor_front_requests_total{{key="{"k" * 28}-{number}",model="m",status="200"}} 123456789\n'
        f'sparkthor_front_completion_tokens_total{{key="{"k" * 28}-{number}",model="m"}} 98765432109876\n'
        f'sparkthor_front_key_tokens_limit{{key="{"k" * 28}-{number}",period="month"}} 99999999999999\n'
        for number in range(3)
    )
    page = sign_in(open_tab, cluster)
    expect(page.locator("#hosts")).to_contain_text(names[2], timeout=SOON)
    expect(page.locator("#traffic")).to_contain_text("k" * 28, timeout=SOON)
    seen(page, "long-names")
    page.get_by_role("button", name="Stop…").click()
    seen(page, "long-names-stop")
