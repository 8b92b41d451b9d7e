# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two serving groups that take turns on one head, in the page of a real browser; and what is left of all in the end.

These tests come last: they set up the groups, and take everything back.
"""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.conftest import Cluster
from tests.integration.page_lab.conftest import (
    ANNA,
    LOAD,
    MODEL,
    OTHER,
    SOON,
    answers_truly,
    ended,
    loads,
    looked_at,
    played,
    say,
    sign_in,
    verdict,
    verdicts,
    visitor,
)

#: the group of all hosts, and the one beside it that is on demand
OWN, SLEEPER = "trio", "solo"


@pytest.fixture(scope="module")
def groups(cluster: Cluster) -> None:
    """The hosts as a serving group with a name, and another model on demand on its head."""
    sleeper = {
        "host": cluster.head,
        "vllm_serve_recipe": OTHER,
        "on_demand": {"idle_minutes": 1, "every_minutes": 1},
    }
    given = {
        "children": {OWN: {"hosts": dict.fromkeys(cluster.hosts)}},
        "vars": {"serving_groups": [OWN], "serving_beside": {SLEEPER: sleeper}},
    }
    file = cluster.lab.folder / "groups.yml"
    file.write_text(json.dumps({"all": {"children": {"cluster": given}}}), encoding="utf-8")
    cluster.inventories.append(file)
    played(cluster, "site.yml")


def other_group(page: Page, name: str, told: str) -> None:
    """In the list below the group that is shown."""
    expect(page.locator("#now .groups li").filter(has_text=name)).to_contain_text(told, timeout=1000 * SOON)


def show(page: Page, name: str) -> None:
    page.get_by_role("button", name=f"Show {name}").click()


def test_a_model_on_demand_sleeps_is_woken_serves_and_sleeps_again(
    chromium: Browser, cluster: Cluster, groups: None
) -> None:
    with visitor(chromium, cluster) as page:
        sign_in(page, ANNA)
        verdict(page, f"{OWN}: Serving", LOAD)
        other_group(page, SLEEPER, f"Asleep: {OTHER}")
        looked_at(page, "one-serves-one-sleeps")
        show(page, SLEEPER)
        verdict(page, f"{SLEEPER}: Asleep")
        expect(page.locator("#now .say")).to_have_text(f"{OTHER} starts when it is asked for.")
        # a message is a request as any other: it is refused for now, wakes the model, and can be sent again
        page.get_by_label("Model").select_option(OTHER)
        expect(page.locator("#chat .none")).to_contain_text("It sleeps")
        refused = say(page, "Hello")
        expect(refused.get_by_role("alert")).to_contain_text(re.compile("^503: The model .*asleep.* Try again in"))
        expect(page.get_by_label("Message")).to_have_value("Hello")
        looked_at(page, "asleep")
        page.get_by_role("button", name="Wake").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("The group that serves in its place gives way")
        looked_at(page, "ask-wake")
        dialog.get_by_role("button", name=f"Wake {SLEEPER}").click()
        expect(page.locator("#now .fix").first).to_contain_text(
            re.compile("Wake is noted for a minute, asked for by anna: The model")
        )
        seen = verdicts(page, lambda told: told == f"{SLEEPER}: Serving", LOAD)
        loads(seen)
        other_group(page, OWN, f"Asleep: {MODEL}")
        page.get_by_role("button", name="Send").click()
        ended(page, page.locator("#chat .it").last)
        expect(page.locator("#events")).to_contain_text(f"watchdog {SLEEPER} serving", timeout=1000 * SOON)
        looked_at(page, "sleeper-serves")
        show(page, OWN)
        verdict(page, f"{OWN}: Asleep")
        told = f"It gave way: {SLEEPER} serves. {MODEL} starts when it is asked for."
        expect(page.locator("#now .say")).to_have_text(told)
        looked_at(page, "own-group-asleep")
        # nobody asks the other one for a minute
        seen = verdicts(page, lambda told: told == f"{OWN}: Serving", LOAD)
        loads(seen)
        other_group(page, SLEEPER, f"Asleep: {OTHER}")
        page.get_by_label("Model").select_option(MODEL)
        answers_truly(page)


def test_a_second_run_changes_nothing_and_a_teardown_takes_it_back(cluster: Cluster, groups: None) -> None:
    again = played(cluster, "site.yml")
    assert not any(again.changed.values()), again.changes
    played(cluster, "playbooks/teardown.yml", teardown_parts="serving,monitoring", teardown_acknowledged=True)
    left = "ls -d /usr/local/share/sparkthor/page /etc/sparkthor/console.json /var/lib/sparkthor-console 2>/dev/null"
    assert cluster.run(cluster.head, left, check=False) == ""
    assert cluster.run(cluster.head, "systemctl list-unit-files 'sparkthor-console*' --no-legend", check=False) == ""
