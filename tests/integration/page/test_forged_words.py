# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words that are made to do something: names of states and models, endless answers, links, and a key that is none."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.integration.page.conftest import Cluster, Watched, sign_in, verdict


def test_a_host_or_a_watchdog_calls_its_state_what_a_browser_has_words_for(tab: Watched, cluster: Cluster) -> None:
    """The names of what every object of a browser has are words like others."""
    page = sign_in(tab, cluster)
    for word in ("constructor", "__proto__", "toString", "hasOwnProperty"):
        cluster.state(word, detail=word)
        verdict(page, word)
    page.get_by_role("button", name="Sign out").click()
    tab.page.route("**/health", lambda route: route.fulfill(status=200, body='{"status": "__proto__"}'))
    tab.page.goto(cluster.url)
    verdict(tab.page, "__proto__")
    tab.page.route("**/health", lambda route: route.fulfill(status=200, body='{"status": {"a": ["b"]}}'))
    tab.page.goto(cluster.url)
    verdict(tab.page, "[object Object]")


def test_a_name_of_a_model_runs_nothing_where_its_commands_are_pasted(
    tab: Watched, cluster: Cluster, tmp_path: Path
) -> None:
    evil = "m'\"$(touch ran)`touch ran`;touch ran;#\\"
    cluster.config(model=evil)
    page = sign_in(tab, cluster)
    expect(page.locator("#now")).to_contain_text("touch ran", timeout=15000)
    folder = tmp_path / "pasted"
    folder.mkdir()
    for program in ("curl", "claude"):
        (folder / program).write_text('#!/bin/sh\nprintf "%s\\n" "$@" "$ANTHROPIC_MODEL" > told\n')
        (folder / program).chmod(0o755)
    for name in ("curl", "Claude Code"):
        page.locator("#with").select_option(name)
        text = page.locator(".cmd.long code").inner_text()
        subprocess.run(["bash", "-c", text], cwd=folder, check=True, env={"PATH": f"{folder}:/usr/bin:/bin"})
        assert evil in (folder / "told").read_text() or json.dumps(evil)[1:-1] in (folder / "told").read_text()
    for name in ("OpenAI SDK", "Anthropic SDK"):
        page.locator("#with").select_option(name)
        text = page.locator(".cmd.long code").inner_text()
        compiled = compile(text, "pasted", "exec")
        assert evil in compiled.co_consts
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    "part",
    [
        *("> " * 20000, "*" * 50000, "[" * 50000, "`" * 50001, "|" * 20000 + "\n" + "|-" * 20000, "#" * 50000),
        *("- " * 20000, "\n" * 100000, "![](x)" * 10000, "\u202e" * 10000, "<!--" * 10000, "$" * 50001),
        {"content": {"constructor": 1}, "reasoning_content": ["x"]},
    ],
    ids=lambda part: str(part)[:4],
)
def test_no_answer_of_a_model_freezes_the_tab(tab: Watched, cluster: Cluster, part: Any) -> None:
    cluster.parts, cluster.pause = [part, "\n\nthe end"], 0.0
    page = sign_in(tab, cluster)
    page.get_by_label("Message").fill("Go on")
    begun = time.monotonic()
    page.keyboard.press("Enter")
    expect(page.locator("#chat .it .stat")).to_contain_text("tokens", timeout=30000)
    expect(page.locator("#chat .it")).to_contain_text("the end")
    # and it still asks the head
    expect(page.locator(".live")).to_contain_text(re.compile("^[0-5] s ago"), timeout=15000)
    print(f"\n{str(part)[:4]!r}: {time.monotonic() - begun:.1f} s")
    assert page.locator("#chat .it").locator("img[src], iframe, script").count() == 0


def test_a_link_of_a_model_leaves_the_conversation_alone(tab: Watched, cluster: Cluster) -> None:
    cluster.parts = [
        "[a](https://example.invalid/) [b](#now) [c](//example.invalid/x) [d](/console/do) [e](\x01javascript:x)"
    ]
    page = sign_in(tab, cluster)
    page.get_by_label("Message").fill("Go on")
    page.keyboard.press("Enter")
    expect(page.locator("#chat .it .stat")).to_contain_text("tokens")
    links = page.locator("#chat .it a").evaluate_all(
        "all => all.map(one => ['href', 'target', 'rel'].map(name => one.getAttribute(name)))"
    )
    rel = "noreferrer noopener"
    assert links == [
        ["https://example.invalid/", "_blank", rel],
        ["#now", None, rel],
        *[[None, None, None]] * 3,
    ]


def test_a_key_of_odd_letters_is_said_to_be_one(tab: Watched, cluster: Cluster) -> None:
    """A browser sends no such key, and a page that says that the head is silent sends its reader to the wrong place."""
    for key in ("\u043a\u043b\u044e\u0447" * 5, "two words of a key"):
        page = sign_in(tab, cluster, key)
        expect(page.get_by_role("alert")).to_contain_text("letters, digits and signs without spaces")
        assert page.evaluate("sessionStorage.getItem('key')") is None
