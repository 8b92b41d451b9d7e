# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page in a real browser: signing in, each state, the chat, actions, and what a model or a host may not do to it.

``PAGE_PICTURES=FOLDER`` keeps a picture of each state at three widths, light and dark.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.integration.page.conftest import (
    CHATS,
    KEY,
    OPERATES,
    PICTURES,
    Cluster,
    Watched,
    exporter_page,
    sign_in,
    verdict,
)

WIDTHS = (320, 390, 768, 1366, 1920)
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    '<iframe srcdoc="<script>alert(1)</script>"></iframe>',
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt:alert(1))",
    "[a](&#106;avascript:alert(1))",
    "[a](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "![x](http://example.invalid/leak?q=1)",
    "[a]: javascript:alert(1)",
    "`<b>` **<script>alert(1)</script>**",
)


def test_signing_in_and_out(tab: Watched, cluster: Cluster) -> None:
    tab.page.goto(f"http://127.0.0.1:{cluster.port}/")
    verdict(tab.page, "Serving")
    # what everybody may know, and nothing else
    assert "spark-0" not in tab.page.content()
    for key in ("x" * 20, CHATS):
        tab.page.get_by_label("API key").fill(key)
        tab.page.get_by_role("button", name="Show the cluster").click()
        expect(tab.page.get_by_role("alert")).to_contain_text("not known here")
        assert "spark-0" not in tab.page.content()
    page = sign_in(tab, cluster, KEY)
    expect(page.locator("#hosts")).to_contain_text("spark-03")
    expect(page.locator("header .key")).to_have_text("default, may view")
    assert page.evaluate("document.cookie") == ""
    assert page.evaluate("localStorage.length") == 0
    page.get_by_role("button", name="Sign out").click()
    assert page.evaluate("sessionStorage.getItem('key')") is None
    assert "spark-0" not in page.locator("body").inner_text()


STATES: dict[str, tuple[dict[str, Any], str | re.Pattern[str]]] = {
    "serving": ({"state": "serving"}, "Serving"),
    "loading": (
        {
            "state": "loading",
            "fraction": 0.64,
            "progress": "loading weights 81 %",
            "load": {"left": 170.0, "former": 3},
        },
        "Loading 64 %",
    ),
    "starting": ({"state": "starting", "fraction": 0.02, "progress": "waiting for the ranks"}, "Starting 2 %"),
    "draining": ({"state": "draining"}, re.compile("^Draining: 3 requests left")),
    "maintenance": ({"state": "maintenance", "detail": "a new fan"}, "Stopped for maintenance"),
    "asleep": ({"state": "asleep"}, "Asleep"),
    "restarting": ({"state": "restarting", "detail": "the rank on spark-03 was lost"}, "Healing by itself"),
    "away": (
        {"state": "degraded", "ranks": {"missing": ["spark-03"], "without": []}, "detail": "waiting for spark-03."},
        "Not serving: spark-03 is away",
    ),
    "smaller": ({"state": "degraded", "healthy": True, "detail": "without spark-03."}, "Serving the smaller model"),
    "stopped": ({"state": "stopped", "detail": "cables"}, "Stopped"),
    "unknown": ({"state": "serving", "updated": 5}, "Unknown"),
    "other": ({"state": "serving", "version": 0}, "Unknown"),
    "new": ({"state": "some new word", "detail": "of a later version"}, "some new word"),
}


def pictures(page: Page, name: str) -> None:
    if not PICTURES:
        return
    Path(PICTURES).mkdir(parents=True, exist_ok=True)
    for width, scheme in itertools.product(WIDTHS, ("light", "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.evaluate("scrollTo(0, 0)")
        # the library would leave threads behind that write files
        Path(f"{PICTURES}/{name}-{width}-{scheme}.png").write_bytes(page.screenshot(full_page=True))
    page.emulate_media(color_scheme="light")


def test_every_state_in_its_words(tab: Watched, cluster: Cluster) -> None:
    page = sign_in(tab, cluster)
    for name, (told, words) in STATES.items():
        cluster.state(**told)
        if name == "stopped":
            (cluster.folder / "lasting" / "maintenance").write_text("stopped by laptop: moving the rack\n")
        verdict(page, words)
        expect(page).to_have_title(re.compile(r" · spark-01$"))
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
        pictures(page, name)
        (cluster.folder / "lasting" / "maintenance").unlink(missing_ok=True)


def test_who_does_not_answer_has_no_figures_and_takes_no_message(tab: Watched, cluster: Cluster) -> None:
    page = sign_in(tab, cluster)
    send, figures = page.get_by_role("button", name="Send"), page.locator("#now .figures")
    page.get_by_label("Message").fill("Hello")
    expect(send).to_be_enabled()
    cluster.state(**STATES["away"][0])
    verdict(page, STATES["away"][1])
    expect(page.locator("#now .say")).to_contain_text("Waiting for spark-03. It goes on by itself")
    expect(figures).to_have_count(0)
    expect(page.locator("#chat .none")).to_contain_text("Not serving: spark-03 is away. What you write here is kept")
    expect(send).to_be_disabled()
    page.get_by_label("Message").press("Enter")
    expect(page.get_by_label("Message")).to_have_value("Hello")
    expect(page.locator("#chat .me")).to_have_count(0)
    # another model in its place is one that answers
    cluster.state(**STATES["smaller"][0])
    verdict(page, STATES["smaller"][1])
    expect(figures).to_have_count(1)
    expect(send).to_be_enabled()


def test_a_load_says_how_long_it_takes_and_a_restart_what_it_costs(tab: Watched, cluster: Cluster) -> None:
    cluster.state(**STATES["loading"][0])
    page = sign_in(tab, cluster)
    verdict(page, "Loading 64 %")
    expect(page.locator("#now .say")).to_contain_text("About 3 min to go, as the last 3 loads went.")
    expect(page.locator("#now .load")).to_contain_text("The last 3 loads took 4 min, 6 min 3 s and 4 min 15 s.")
    cluster.state("loading", load={"left": 30.0, "former": 0})
    expect(page.locator("#now .say")).to_contain_text("Less than a minute to go, until the weights are there")
    cluster.state("loading", load=None)
    expect(page.locator("#now .say")).not_to_contain_text("to go")
    cluster.state("serving")
    verdict(page, "Serving")
    page.get_by_role("button", name="Restart").click()
    expect(page.get_by_role("dialog")).to_contain_text("about 4 min without answers")


def test_the_fabric_is_drawn_and_a_cut_cable_is_seen(tab: Watched, cluster: Cluster) -> None:
    page = sign_in(tab, cluster)
    drawn = page.locator(".fabric svg")
    expect(drawn).to_have_attribute("aria-label", "3 hosts on a ring: each known cable has its carrier")
    assert (drawn.locator("rect").count(), drawn.locator("line").count()) == (3, 6)
    cluster.hosts["spark-02"] = exporter_page(link=0)
    expect(drawn).to_have_attribute("aria-label", re.compile("no carrier on spark-02 enP2p1s0f0np0"), timeout=15000)
    assert drawn.locator("line.cut").count() == 1
    # of a host that is away nobody knows its cables, and none is said to be whole
    cluster.hosts.clear()
    expect(drawn.locator("line.dim")).to_have_count(6, timeout=15000)
    expect(drawn).to_contain_text("no answer")


def test_memory_is_shown_by_its_parts(tab: Watched, cluster: Cluster) -> None:
    page = sign_in(tab, cluster)
    bars = page.locator("#hosts .memory").first.locator("i")
    expect(bars).to_have_count(4)
    assert bars.evaluate_all("all => all.map(one => one.className)") == ["w", "k", "b", "o"]
    expect(page.locator("#hosts .legend")).to_contain_text("its parts are planned")


def test_a_chat_streams_stops_and_says_what_is_amiss(tab: Watched, cluster: Cluster) -> None:
    page = sign_in(tab, cluster, KEY)
    page.get_by_label("Message").fill("The capital of France?")
    page.keyboard.press("Enter")
    answer = page.locator("#chat .it")
    expect(answer).to_contain_text("Paris is the capital of France.")
    expect(answer.locator("strong")).to_have_text("Paris")
    expect(answer.locator(".stat")).to_contain_text("to the first token")
    assert cluster.asked[0]["messages"] == [{"role": "user", "content": "The capital of France?"}]
    assert cluster.asked[0]["model"] == "qwen3.5-397b-a17b-nvfp4"
    # a long one is stopped, and the engine hears it
    cluster.parts, cluster.pause = ["word "] * 2000, 0.02
    page.get_by_label("Message").fill("Go on")
    page.get_by_role("button", name="Send").click()
    expect(answer.nth(1)).to_contain_text("word word")
    page.locator("#chat").get_by_role("button", name="Stop").click()
    expect(answer.nth(1).locator(".stat")).to_contain_text("stopped")
    end = time.monotonic() + 20
    while not cluster.left:
        assert time.monotonic() < end
        time.sleep(0.1)
    # what was thought is folded
    cluster.parts, cluster.pause = [{"reasoning_content": "hm"}, "Yes."], 0.0
    page.get_by_label("Message").fill("Sure?")
    page.get_by_role("button", name="Send").click()
    expect(answer.nth(2)).to_contain_text("Yes.")
    expect(answer.nth(2).locator("summary")).to_have_text("Thought")
    expect(answer.nth(2).locator(".thought")).not_to_be_visible()
    # and thinks no more when it is stopped before its first word
    cluster.parts, cluster.pause = [{"reasoning_content": "hm "}] * 2000, 0.02
    page.get_by_label("Message").fill("Why?")
    page.get_by_role("button", name="Send").click()
    expect(answer.nth(3).locator("summary")).to_have_text("Thinks")
    page.locator("#chat").get_by_role("button", name="Stop").click()
    expect(answer.nth(3).locator("summary")).to_have_text("Thought")


def test_a_chat_is_with_the_chosen_group_and_its_prompt(tab: Watched, cluster: Cluster) -> None:
    beside = cluster.folder / "etc" / "beside" / "embed"
    beside.mkdir(parents=True)
    (beside / "serving.json").write_text(json.dumps({"unit": "x.service", "model": "e5", "on_demand": True}))
    cluster.groups.append({"name": "embed", "beside": "embed", "head": "spark-01", "here": True, "hosts": ["spark-01"]})
    page = sign_in(tab, cluster, KEY)
    page.get_by_label("Model").select_option("e5")
    page.locator(".system summary").click()
    page.locator("#system").fill("Answer in one word.")
    page.get_by_label("Message").fill("The capital of France?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#chat .it")).to_contain_text("Paris")
    system = {"role": "system", "content": "Answer in one word."}
    assert cluster.asked[0]["messages"] == [system, {"role": "user", "content": "The capital of France?"}]
    assert cluster.asked[0]["model"] == "e5"


def test_what_programs_need_is_copied_as_it_is_written(tab: Watched, cluster: Cluster) -> None:
    """Also where a browser has no clipboard for pages: then it is selected, with its lines."""
    page = sign_in(tab, cluster, KEY)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    place = page.locator(".cmd.long")
    for name in ("curl", "OpenAI SDK", "Anthropic SDK", "Claude Code"):
        page.locator("#with").select_option(name)
        place.get_by_role("button").click()
        expect(place.get_by_role("button")).to_have_text("Copied")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert f"http://127.0.0.1:{cluster.port}" in copied
        assert "qwen3.5-397b-a17b-nvfp4" in copied
        expect(place.get_by_role("button")).to_have_text("Copy", timeout=15000)
        page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('plain HTTP')) }")
        place.get_by_role("button").click()
        expect(place.get_by_role("button")).to_have_text("Selected")
        assert page.evaluate("getSelection().toString()").splitlines() == copied.splitlines()
        page.evaluate("() => { delete navigator.clipboard.writeText }")
        expect(place.get_by_role("button")).to_have_text("Copy", timeout=15000)


def test_what_a_model_writes_is_text(tab: Watched, cluster: Cluster) -> None:
    cluster.parts = [*(f"{line}\n\n" for line in HOSTILE), {"reasoning_content": HOSTILE[0]}]
    page = sign_in(tab, cluster)
    page.get_by_label("Message").fill(HOSTILE[0])
    page.keyboard.press("Enter")
    expect(page.locator("#chat .it .stat")).to_contain_text("tokens", timeout=15000)
    assert page.locator("#chat .it").locator("img[src], iframe, script, [onerror], [onload]").count() == 0
    links = page.locator("#chat .it a[href]").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert not [link for link in links if not re.match(r"(https?:|mailto:|#)", link)]
    expect(page.locator("#chat .me")).to_have_text(HOSTILE[0])


def test_what_hosts_and_logs_write_is_text(tab: Watched, cluster: Cluster) -> None:
    evil = HOSTILE[0]
    cluster.config(model=evil)
    cluster.journal = {unit: [evil, "\x1b]52;c;aGk=\x07serving"] for unit in cluster.journal}
    cluster.state("loading", detail=evil, progress=evil, fraction=0.5)
    # what a recipe names its model's folder
    (cluster.folder / "models" / evil).mkdir(parents=True)
    declared = {"folders": {"models": str(cluster.folder / "models")}}
    (cluster.folder / "etc" / "cluster.json").write_text(json.dumps(declared))
    cluster.hosts["spark-02"] += f'sparkthor_link_up{{netdev="{evil}",planned="yes"}} 0\n'
    cluster.hosts["spark-01"] += f'sparkthor_front_requests_total{{key="{evil}",model="m",status="200"}} 1\n'
    holder = {"token": "x", "owner": evil, "play": evil, "since": evil}
    (cluster.folder / "controller.json").write_text(json.dumps(holder))
    page = sign_in(tab, cluster)
    expect(page.locator("#now")).to_contain_text(evil, timeout=15000)
    expect(page.locator("#hosts")).to_contain_text(evil)
    # no key can have such a name, so there is none
    expect(page.locator("#traffic")).to_contain_text("web")
    expect(page.locator("#traffic")).not_to_contain_text(evil)
    expect(page.locator("#now .fix")).to_contain_text(f"{evil} runs, by {evil}", timeout=15000)
    # the journal is looked at each ten seconds
    expect(page.locator("#events")).to_contain_text(evil, timeout=15000)
    page.locator(".elsewhere summary").click()
    expect(page.locator(".elsewhere")).to_contain_text(f"The store of this host has {evil}.")
    page.locator("#events summary").click()
    expect(page.locator("#events pre")).to_contain_text(evil)
    assert page.locator("img, iframe, [onerror]").count() == 0


def test_actions_ask_before_and_tell_after(tab: Watched, cluster: Cluster) -> None:
    cluster.running = 0
    page = sign_in(tab, cluster)
    page.get_by_role("button", name="Stop…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("also after reboots")
    stop = dialog.get_by_role("button", name="Stop the group")
    expect(stop).to_be_disabled()
    dialog.get_by_label("Why?").fill("moving the rack")
    expect(stop).to_be_disabled()
    dialog.get_by_label("Type").fill("qwen3.5-397b-a17b-nvfp4")
    stop.click()
    verdict(page, "Stopped")
    expect(page.locator("#now .say")).to_contain_text("Stopped by operates: moving the rack. It stays")
    page.get_by_role("button", name="Start").click()
    dialog.get_by_role("button", name="Start the group").click()
    expect(dialog).to_have_count(0)
    verdict(page, "Serving")
    expect(page.locator("#events")).to_contain_text("moving the rack", timeout=15000)


def test_what_was_done_is_told_for_a_while(tab: Watched, cluster: Cluster) -> None:
    jobs: list[dict[str, Any]] = []

    def answer(route: Route) -> None:
        real = route.fetch()
        own = {"do": "restart", "group": "", "who": "anna", "address": "::1", "reason": "cables", "text": ""}
        doc = real.json()
        told = [{**own, "id": str(number), **job, "at": doc["time"] - job["ago"]} for number, job in enumerate(jobs)]
        route.fulfill(response=real, json={**doc, "jobs": told})

    tab.page.route("**/console/state", answer)
    page = sign_in(tab, cluster)
    found = page.locator("#now .fix")
    failed = {"state": "failed", "ago": 3700, "seconds": 600.0}
    later = {"state": "done", "ago": 400, "seconds": 1.0}
    for given, words in (
        # a moment after its end, however long it took
        ([{"state": "done", "ago": 320, "seconds": 300.0}], ["Restart done"]),
        ([failed], ["Restart failed"]),
        ([{**failed, "ago": 4300}], []),
        # it worked in the end; what was done with a key has nothing to do with it
        ([later, failed], []),
        ([{**later, "do": "block", "key": "ci"}, failed], ["Restart failed"]),
    ):
        jobs[:] = given
        expect(found).to_have_count(len(words), timeout=15000)
        for word in words:
            expect(found).to_contain_text(word, timeout=15000)


def test_a_head_that_is_slow_is_asked_once(tab: Watched, cluster: Cluster) -> None:
    page = sign_in(tab, cluster)
    verdict(page, "Serving")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/console/state", hold)
    with page.expect_request("**/console/state", timeout=15000):
        pass
    for _look in range(3):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_timeout(300)
    assert len(held) == 1
    page.unroute("**/console/state")


def test_a_key_that_only_looks_is_refused_and_says_why(tab: Watched, cluster: Cluster) -> None:
    page = sign_in(tab, cluster, KEY)
    page.get_by_role("button", name="Restart").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Why?").fill("a try")
    dialog.get_by_role("button", name="Restart the group").click()
    expect(dialog.get_by_role("alert")).to_contain_text("may look but not operate")
    assert cluster.systemd.calls == []
    cluster.running = 0
    dialog.get_by_label("Operator key").fill(OPERATES)
    dialog.get_by_role("button", name="Restart the group").click()
    expect(page.locator("#now .fix")).to_contain_text("asked for by operates")
    assert page.evaluate("sessionStorage.getItem('key')") == KEY


def test_a_key_is_blocked_and_unblocked(tab: Watched, cluster: Cluster) -> None:
    page = sign_in(tab, cluster)
    row = page.get_by_role("row", name="chats")
    for key in ("default", "operates"):
        expect(page.get_by_role("button", name=f"Block {key}")).to_have_count(0)
    row.get_by_role("button", name="Block chats").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Other heads have pages of their own")
    dialog.get_by_label("Why?").fill("it leaked")
    dialog.get_by_role("button", name="Block chats").click()
    expect(row).to_contain_text("blocked", timeout=15000)
    expect(page.locator("#events")).to_contain_text("operates, key chats block done: it leaked", timeout=15000)
    row.get_by_role("button", name="Unblock chats").click()
    dialog.get_by_role("button", name="Unblock chats").click()
    expect(row).not_to_contain_text("blocked", timeout=15000)
    # who may only look has no such buttons
    page.get_by_role("button", name="Sign out").click()
    sign_in(tab, cluster, KEY)
    expect(page.locator("#traffic")).to_contain_text("all keys")
    assert page.locator("#traffic").get_by_role("button").count() == 0


def test_a_group_on_demand_is_woken(tab: Watched, cluster: Cluster) -> None:
    beside = cluster.folder / "etc" / "beside" / "embed"
    beside.mkdir(parents=True)
    (beside / "serving.json").write_text(json.dumps({"unit": "x.service", "model": "e5", "on_demand": True}))
    cluster.groups.append({"name": "embed", "beside": "embed", "head": "spark-01", "here": True, "hosts": ["spark-01"]})
    page = sign_in(tab, cluster)
    page.get_by_role("button", name="Show embed").click()
    verdict(page, "embed: Asleep")
    page.get_by_role("button", name="Wake").click()
    page.get_by_role("dialog").get_by_role("button", name="Wake embed").click()
    expect(page.locator("#now")).to_contain_text("is being started", timeout=15000)
    assert cluster.woken == ["embed"]


def test_what_differs_and_what_playbooks_found_is_said_with_its_fix(tab: Watched, cluster: Cluster) -> None:
    page = sign_in(tab, cluster)
    own = page.locator(".alike")
    expect(own).to_contain_text("run the same: vllm 0.32.0, kernel 6.14.0-1015-nvidia, driver 580.95.05.")
    expect(own).to_contain_text("Neither doctor.yml nor drift.yml has looked")
    cluster.hosts["spark-03"] = exporter_page(kernel="6.14.0-1012-nvidia")
    found = {
        **{"severity": "error", "title": "spark-03 runs another kernel <b>", "hosts": ["spark-03"]},
        **{"cause": "An update that was not followed by a reboot.", "fix": "Run playbooks/reboot.yml for spark-03."},
        "evidence": ["6.14.0-1012-nvidia Authorization: Bearer abcdefghijklmnop"],
    }
    cluster.checked("doctor", errors=1, warnings=0, findings=[found])
    cluster.checked("drift", lines=["spark-03: preflight: /etc/motd"])
    differs = "kernel differs: spark-01 6.14.0-1015-nvidia, spark-02 6.14.0-1015-nvidia, spark-03 6.14.0-1012-nvidia"
    expect(own).to_contain_text(f"{differs}. Fix: run site.yml on all hosts.", timeout=15000)
    expect(own).to_contain_text("doctor.yml 2 h ago: 1 error", timeout=15000)
    expect(own).to_contain_text("drift.yml 2 h ago: 1 difference from the plan")
    expect(own.locator("details")).to_contain_text("Fix: Run playbooks/reboot.yml for spark-03.")
    expect(own).to_contain_text("runs another kernel <b>")
    expect(own).to_contain_text("spark-03: preflight: /etc/motd")
    assert "abcdefghijklmnop" not in page.content()
    pictures(page, "findings")
    # what is no such document is none
    cluster.checked("doctor", errors="x", warnings=0, findings=[])
    cluster.checked("drift", lines={"a": 1})
    expect(own).to_contain_text("Neither doctor.yml nor drift.yml has looked", timeout=15000)


def test_no_news_is_said_and_ends_by_itself(tab: Watched, cluster: Cluster) -> None:
    page = sign_in(tab, cluster)
    verdict(page, "Serving")
    page.context.set_offline(True)
    expect(page.locator("#stale")).to_contain_text("No news from spark-01", timeout=30000)
    expect(page).to_have_title(re.compile("^No news"))
    # a wish of what may be so no more
    expect(page.get_by_role("button", name="Drain")).to_be_disabled()
    expect(page.get_by_role("button", name="Block chats")).to_be_disabled()
    pictures(page, "stale")
    page.context.set_offline(False)
    expect(page.locator("#stale")).to_have_count(0, timeout=15000)


@pytest.mark.parametrize(
    "body", ["", "<html>", '{"schema": 1}', '{"schema": 2}', "null", '{"schema":2,"time":"x","hosts":3,"groups":{}}']
)
def test_an_answer_of_another_kind_is_never_a_blank(tab: Watched, cluster: Cluster, body: str) -> None:
    tab.page.route("**/console/state", lambda route: route.fulfill(status=200, body=body))
    page = sign_in(tab, cluster)
    expect(page.locator("h1")).to_have_text(re.compile("No news"), timeout=15000)
    page.unroute("**/console/state")
    verdict(page, "Serving")
