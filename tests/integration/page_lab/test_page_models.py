# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page in a real browser while disks are full, and while another model is served and the first one again."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.integration.conftest import Cluster
from tests.integration.page_lab.conftest import (
    LOAD,
    MODEL,
    OTHER,
    SOON,
    answers_truly,
    ended,
    loads,
    looked_at,
    playbook,
    say,
    verdict,
    verdicts,
)

STORE = "/var/lib/sparkthor/models"
#: extents without content: a simulated disk is a sparse file, and this writes nothing to the machine's own
FILL = f"fallocate -l $(df --output=avail -B1 {STORE} | tail -1) /var/lib/filler; df --output=avail {STORE} | tail -1"


def test_a_full_disk_is_named_while_the_model_answers_and_is_gone_with_its_cause(anna: Page, cluster: Cluster) -> None:
    full = [cluster.head, cluster.hosts[-1]]
    worries, rows = anna.locator("#now .worries"), anna.locator("#hosts tbody tr")
    expect(rows.first.locator("td[data-name=Disk]")).to_contain_text(re.compile(r"[1-9]\d*\sGB left"))
    expect(worries).to_have_count(0)
    try:
        for host in full:
            assert int(cluster.run(host, FILL)) < 1000
        for host in full:
            told = re.compile(rf"{host} has 0\sGB left on the disk of the models")
            expect(worries).to_contain_text(told, timeout=1000 * SOON)
            own = rows.filter(has_text=host).locator("td[data-name=Disk]")
            expect(own.locator(".tone-bad")).to_have_text(re.compile(r"0\sGB left"))
        expect(worries.locator("li")).to_have_count(len(full))
        looked_at(anna, "disk-full")
        # nothing of it is in the way of an answer
        answers_truly(anna)
        verdict(anna, "Serving")
    finally:
        for host in full:
            cluster.run(host, "rm -f /var/lib/filler")
    expect(worries).to_have_count(0, timeout=1000 * SOON)
    expect(rows.locator(".tone-bad")).to_have_count(0)


def switched(anna: Page, cluster: Cluster, model: str, **variables: str) -> None:
    """The playbook that the page names serves another model, in sight of a page that is never loaded anew."""
    said = "Nothing can be changed from here until it has ended."
    now = anna.locator("#now")
    with playbook(cluster, "playbooks/switch_model.yml", **variables) as runs:
        expect(now.locator(".fix").first).to_contain_text(said, timeout=600_000)
        expect(now.get_by_role("button", name="Restart")).to_be_disabled()
        looked_at(anna, f"switches-to-{model}")
        # it serves once more for a moment, between its last request and its end
        loads(verdicts(anna, lambda told: runs.done() and told == "Serving", LOAD))
        assert runs.result().rc == 0, runs.result().failures
    verdict(anna, "Serving")
    expect(now).not_to_contain_text(said, timeout=120_000)
    expect(now.locator(".say")).to_contain_text(f"{model} on {len(cluster.hosts)} hosts")
    expect(anna.locator("#chat > header")).to_contain_text(f"with {model}")
    expect(anna.locator(".alike")).to_contain_text(re.compile(rf"model {model} [0-9a-f]{{12}}"), timeout=180_000)


def test_another_model_and_back_by_the_playbook_that_the_page_names(anna: Page, cluster: Cluster) -> None:
    other = anna.locator(".elsewhere")
    other.locator("summary").click()
    expect(other).to_contain_text(f"The store of this host has {MODEL}, {OTHER}.")
    expect(other.locator("code").first).to_have_text(re.compile(r"playbooks/switch_model\.yml .* -e recipe=NAME$"))
    answers_truly(anna)
    switched(anna, cluster, OTHER, recipe=OTHER)
    # what was said stays, and whose words they are; the other one is asked from now on
    first = anna.locator("#chat .it").first
    expect(first).to_contain_text("Paris")
    expect(first.locator(".stat")).to_contain_text(f"by {MODEL}")
    ended(anna, answer := say(anna, "Hello"))
    expect(answer.locator(".stat")).not_to_contain_text("by ")
    looked_at(anna, "other-model")
    switched(anna, cluster, MODEL)
    expect(anna.locator("#chat .it").last.locator(".stat")).to_contain_text(f"by {OTHER}")
    looked_at(anna, "first-model-again")
    answers_truly(anna)
    verdict(anna, "Serving", LOAD)
