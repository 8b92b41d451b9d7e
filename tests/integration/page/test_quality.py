# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page for everybody: screen readers, keyboards, slow phones; and what it says when its sources are no good."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.integration.accessible import AXE, amiss, look
from tests.integration.page.conftest import (
    KEY,
    OPERATES,
    PAGE,
    Cluster,
    Watched,
    cables,
    exporter_page,
    sign_in,
    verdict,
)
from tests.integration.page.test_browser import STATES
from tests.unit.servers import serving

AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
#: a phone on a slow 4G: bytes a second down and up, seconds there and back, times that its processor is slower
DOWN, UP, ROUND_TRIP, SLOWER = 200_000, 90_000, 0.15, 4


def test_axe_is_what_its_publisher_has() -> None:
    assert hashlib.sha256(AXE.read_bytes()).hexdigest() == AXE_SHA256


def test_no_state_keeps_anybody_out(open_tab: Watched, cluster: Cluster) -> None:
    """axe-core without a serious finding: the login, each state, a conversation, a dialog."""
    page = open_tab.page
    page.goto(cluster.url)
    found = look(page, "login")
    sign_in(open_tab, cluster)
    for name, (told, words) in STATES.items():
        cluster.state(**told)
        verdict(page, words)
        found += look(page, name)
    cluster.state("serving")
    cluster.hosts["spark-02"] = exporter_page(20000000000, link=0)
    verdict(page, "Serving")
    expect(page.locator("#now .worries")).to_contain_text("no carrier", timeout=15000)
    page.get_by_label("Message").fill("The capital of France?")
    page.keyboard.press("Enter")
    expect(page.locator("#chat .it")).to_contain_text("Paris")
    page.locator(".elsewhere summary").click()
    found += look(page, "a worry, a chat")
    page.get_by_role("button", name="Stop…").click()
    found += look(page, "dialog")
    assert found == []


def test_axe_finds_what_is_amiss(open_tab: Watched, cluster: Cluster) -> None:
    page = sign_in(open_tab, cluster)
    verdict(page, "Serving")
    # with the list of models it is drawn anew
    expect(page.get_by_placeholder("Ask the model something")).to_be_visible(timeout=15000)
    page.evaluate("document.querySelector('label[for=q]').remove(), document.querySelector('#q').placeholder = ''")
    assert [one for one in amiss(page) if one.startswith("label ")]


def test_by_keyboard_alone(tab: Watched, cluster: Cluster) -> None:
    page = tab.page
    page.goto(cluster.url)
    page.keyboard.press("Tab")
    page.keyboard.type(OPERATES)
    page.keyboard.press("Enter")
    verdict(page, "Serving")
    page.get_by_role("button", name="Restart").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    assert page.evaluate("document.querySelector('dialog').contains(document.activeElement)")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert page.evaluate("document.activeElement.textContent") == "Restart"


def test_the_page_is_light_on_the_wire(tab: Watched, cluster: Cluster) -> None:
    """All of it in 60 kB as the front proxy sends it."""
    page = sign_in(tab, cluster)
    verdict(page, "Serving")
    told = page.evaluate(
        "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
        ".map(one => [one.name.split('/').pop(), one.encodedBodySize, one.decodedBodySize])"
    )
    files = {name: (sent, whole) for name, sent, whole in told if re.search(r"(^|\.html|\.js|\.css)$", name)}
    assert sorted(filter(None, files)) == sorted(
        path.name for path in PAGE.rglob("*") if path.suffix in (".js", ".css")
    )
    assert sum(sent for sent, _whole in files.values()) < 60_000, files
    for name, (sent, whole) in files.items():
        assert whole < 500 or sent < whole, (name, sent, whole)


def test_a_slow_phone_sees_something_within_a_second(chromium: Browser, cluster: Cluster) -> None:
    """Of three first visits the fastest: what else this machine does is not the page's."""
    painted = []
    for _visit in range(3):
        context = chromium.new_context(viewport={"width": 390, "height": 844})
        page = context.new_page()
        tools = context.new_cdp_session(page)
        tools.send("Network.enable")
        conditions = {
            "offline": False,
            "latency": ROUND_TRIP * 1000,
            "downloadThroughput": DOWN,
            "uploadThroughput": UP,
        }
        tools.send("Network.emulateNetworkConditions", conditions)
        tools.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
        page.goto(cluster.url)
        expect(page.get_by_label("API key")).to_be_visible(timeout=30000)
        paints = page.evaluate("performance.getEntriesByType('paint').map(one => [one.name, one.startTime])")
        painted.append(dict(paints)["first-contentful-paint"])
        context.close()
    print(f"\nfirst paint after {', '.join(f'{one:.0f}' for one in painted)} ms")
    assert min(painted) <= 1000


#: of the whole load, as browsers measure how far what is already there moves
SHIFT = """() => { window.moved = []; new PerformanceObserver(seen => moved.push(...seen.getEntries().map(one =>
  [one.value, ...one.sources.map(source => source.node && (source.node.id || source.node.className))])))
  .observe({type: 'layout-shift', buffered: true}) }"""
MOST_SHIFT = 0.05


@pytest.mark.parametrize("width", [390, 1366])
@pytest.mark.parametrize("hosts", [3, 8])
def test_nothing_jumps_while_it_loads(chromium: Browser, cluster: Cluster, hosts: int, width: int) -> None:
    """With a key that the tab still has, and an answer that takes its time."""
    names = tuple(f"spark-{number + 1:02d}" for number in range(hosts))
    cluster.plan("switch", cables(names, "switch"))
    cluster.hosts |= {name: exporter_page() for name in names}
    cluster.groups[0]["hosts"] = list(names)
    context = chromium.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    page.add_init_script(f"sessionStorage.setItem('key', '{KEY}'); ({SHIFT})()")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/console/state", hold)
    page.goto(cluster.url)
    expect(page.locator("#now")).to_contain_text("One moment", timeout=15000)
    for route in held:
        route.continue_()
    page.unroute("**/console/state")
    verdict(page, "Serving")
    expect(page.locator("#hosts tbody tr")).to_have_count(hosts, timeout=15000)
    page.wait_for_timeout(3000)
    moved = page.evaluate("moved")
    context.close()
    assert sum(one[0] for one in moved) <= MOST_SHIFT, moved


def unlink(cluster: Cluster) -> None:
    (cluster.folder / "run" / "state.json").unlink()


def jump(cluster: Cluster, seconds: float) -> None:
    cluster.ahead = seconds


@pytest.mark.parametrize(
    ("befalls", "said"),
    [
        (unlink, "Its watchdog has said nothing yet."),
        (lambda cluster: cluster.state("serving", version=0), "speaks another version than this page: run site.yml."),
        (lambda cluster: jump(cluster, 7200), "The last word of its watchdog is"),
        (lambda cluster: jump(cluster, -7200), "ahead: a clock was set."),
    ],
)
def test_a_source_that_is_no_good_is_said(
    tab: Watched, cluster: Cluster, befalls: Callable[[Cluster], None], said: str
) -> None:
    page = sign_in(tab, cluster)
    verdict(page, "Serving")
    befalls(cluster)
    verdict(page, "Unknown")
    expect(page.locator("#now .say")).to_contain_text(said)
    expect(page.locator("#now .say")).to_contain_text("journalctl -u sparkthor-watchdog has more")
    # the rest is there
    expect(page.locator("#hosts")).to_contain_text("spark-03")
    cluster.ahead = 0.0
    cluster.state("serving")
    verdict(page, "Serving")


def test_a_group_that_is_gone_is_said(tab: Watched, cluster: Cluster) -> None:
    other = {"name": "embed", "beside": "embed", "head": "spark-01", "here": True, "hosts": ["spark-01"]}
    cluster.groups.append(other)
    page = sign_in(tab, cluster)
    page.get_by_role("button", name="Show cluster").click()
    verdict(page, "cluster: Serving")
    gone = cluster.groups.pop(0)
    expect(page.locator("main")).to_contain_text(
        "cluster is not a serving group of this cluster any more", timeout=15000
    )
    verdict(page, "Unknown")
    page.get_by_role("button", name="Understood").click()
    expect(page.locator("main")).not_to_contain_text("any more")
    cluster.groups.clear()
    verdict(page, "Nothing is set up")
    expect(page.locator("#hosts")).to_contain_text("spark-03")
    cluster.groups.append(gone)
    verdict(page, "Serving")


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """A page with a form, of whoever wants a visitor to do something."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<form method=post></form>")

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture(name="other_site")
def _other_site() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    with serving(server):
        yield int(server.server_address[1])


def test_another_site_reads_and_changes_nothing(chromium: Browser, cluster: Cluster, other_site: int) -> None:
    """A visitor's browser that holds no key of ours by itself: no cookie, no answer to a question from elsewhere."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(cluster.url)
    page.get_by_label("API key").fill(OPERATES)
    page.get_by_role("button", name="Show the cluster").click()
    verdict(page, "Serving")
    elsewhere = f"http://127.0.0.1:{other_site}/"
    other = context.new_page()
    other.goto(elsewhere)
    wish = json.dumps({"do": "drain", "group": "", "reason": "x", "id": "0" * 16})
    ways: list[dict[str, Any]] = [
        {"method": "POST", "mode": "no-cors", "credentials": "include", "body": wish},
        {"method": "POST", "credentials": "include", "headers": {"Content-Type": "application/json"}, "body": wish},
        {
            "method": "POST",
            "headers": {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"},
            "body": wish,
        },
    ]
    ask = "([url, way]) => fetch(url, way).then(told => told.type + told.status, error => error.name)"
    told = [other.evaluate(ask, [f"{cluster.url}do", way]) for way in ways]
    assert told == ["opaque0", "TypeError", "TypeError"]
    assert other.evaluate(ask, [f"{cluster.url}state", {"credentials": "include"}]) == "TypeError"
    other.evaluate(
        "([url, text]) => { const form = document.forms[0]; form.action = url; form.enctype = 'text/plain';"
        "const field = document.createElement('input'); field.name = text; form.append(field); form.submit() }",
        [f"{cluster.url}do", wish],
    )
    expect(other.locator("body")).to_contain_text("not known here")
    assert not (cluster.folder / "audit.jsonl").exists()
    assert cluster.systemd.calls == []
    # nor is the page shown within another one
    other.goto(elsewhere)
    other.evaluate(
        "url => { const frame = document.createElement('iframe'); frame.src = url; document.body.append(frame) }",
        cluster.url,
    )
    other.wait_for_timeout(1000)
    assert [frame.get_by_label("API key").count() for frame in other.frames] == [0, 0]
    context.close()
