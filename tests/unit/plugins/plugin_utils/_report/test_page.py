# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of three captured clusters: well-formed, nothing from elsewhere, all escaped, ink that can be read."""

from __future__ import annotations

import copy
import html.parser
import re

import markupsafe
import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import page as _report

from tests.unit.plugins.plugin_utils._report.captured_cluster import TOP, captured

SHAPES = ("3spark_ring", "4spark", "2spark_2thor")


def made(data):
    return _report.page(data["status"], data["runs"], data["doctor"], data["memory"], data["why"])


class Checker(html.parser.HTMLParser):
    VOID = ("meta", "link", "br")

    def __init__(self):
        super().__init__()
        self.open = []
        self.addresses = []
        self.tags = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def checked(page):
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    return checker


@pytest.mark.parametrize("shape", SHAPES)
def test_the_page_needs_nothing_but_itself(shape):
    page = made(captured(shape))
    checker = checked(page)
    assert checker.addresses == ["data:,"]
    assert not checker.tags & {"script", "img", "iframe", "object", "embed"}
    assert "url(" not in page
    assert "@import" not in page


def test_a_host_without_an_answer():
    data = captured("3spark_ring")
    data["status"]["hosts"]["spark-02"] = {
        **{"reachable": False, "role": "worker", "kind": "spark", "management": "10.0.0.2", "control_address": ""},
        **{"links": [], "error": "power it on"},
    }
    page = made(data)
    checked(page)
    assert "boxbad" in page
    assert "no answer" in page
    assert "power it on" in page


def test_no_answer_at_all():
    data = captured("4spark")
    for host, found in data["status"]["hosts"].items():
        data["status"]["hosts"][host] = {
            **{"reachable": False, "role": found["role"], "kind": "", "management": "x", "links": [], "error": "e"}
        }
    data["status"]["cluster"]["topology"] = ""
    data.update(memory=None, runs=[], doctor=None)
    page = made(data)
    checked(page)
    assert "No host answered" in page
    assert "verify has not run yet" in page


def test_budgets_add_up_to_the_host():
    data = captured("4spark")
    for row in _report.budgets(data["status"], data["memory"]):
        parts = row["weights"] + row["cache"] + row["overhead"] + row["reserve"]
        assert parts == pytest.approx(row["total"], rel=0.001)


def test_everything_from_a_host_is_escaped():
    data = captured("3spark_ring")
    evil = "<script>alert(1)</script>\"'&"

    def poison(item):
        if isinstance(item, dict):
            return {
                key: poison(value) if key not in ("state", "verdict", "topology") else value
                for key, value in item.items()
            }
        if isinstance(item, list):
            return [poison(value) for value in item]
        return item + evil if isinstance(item, str) and item not in ("", *data["status"]["cluster"]["hosts"]) else item

    poisoned = copy.deepcopy(data)
    for host, found in poisoned["status"]["hosts"].items():
        links = found["links"]
        poisoned["status"]["hosts"][host] = {**poison({k: v for k, v in found.items() if k != "links"}), "links": links}
    poisoned["runs"] = poison(poisoned["runs"])
    poisoned["doctor"] = poison(poisoned["doctor"])
    page = made(poisoned)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    checked(page)


def test_findings_and_history_are_shown():
    data = captured("4spark")
    assert data["doctor"]["findings"]
    page = made(data)
    for item in data["doctor"]["findings"]:
        assert str(markupsafe.escape(item["title"])) in page
    assert page.count('class="spark"') > 3


def test_a_curve_of_equal_values_is_flat():
    assert _report.curve([]) == []
    assert _report.curve([1.0]) == []
    assert {height for _x, height in _report.curve([2.0, 2.0, 2.0])} == {13.0}
    data = captured("4spark")
    data["runs"] = [data["runs"][-1]] * 3
    drawn = re.findall(r'points="([^"]+)"', made(data))
    assert drawn
    assert {height for points in drawn for height in re.findall(r",([\d.]+)", points)} == {"13.0"}


def colours(block):
    return dict(re.findall(r"--([a-z]+):(#[0-9a-f]{3,6})", block))


def luminance(colour):
    digits = colour.lstrip("#")
    digits = "".join(letter * 2 for letter in digits) if len(digits) == 3 else digits
    parts = [int(digits[index : index + 2], 16) / 255 for index in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first, second):
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


STYLE = (TOP / "plugins/plugin_utils/_report/report.css").read_text()
ROOTS = re.findall(r":root\{(.*?)\}", STYLE, re.DOTALL)


@pytest.mark.parametrize("scheme", [0, 1, 2])
@pytest.mark.parametrize(
    ("ink", "paper"),
    [
        *(("ink", "paper"), ("ink", "card"), ("soft", "paper"), ("soft", "card"), ("ink", "badbg"), ("soft", "badbg")),
        *(("good", "goodbg"), ("bad", "badbg"), ("warn", "warnbg"), ("bad", "paper"), ("bad", "card")),
    ],
)
def test_text_is_readable_by_wcag_aa(scheme, ink, paper):
    found = colours(ROOTS[scheme])
    assert contrast(found[ink], found[paper]) >= 4.5


@pytest.mark.parametrize("scheme", [0, 1, 2])
@pytest.mark.parametrize("part", ["weights", "kv", "over", "cable", "bad"])
def test_shapes_stand_out_by_wcag_aa(scheme, part):
    found = colours(ROOTS[scheme])
    assert contrast(found[part], found["paper"]) >= 3


def test_speeds_are_shown_with_their_bound_and_what_fell():
    data = captured(SHAPES[0])
    row = {"prompt": 2048, "streams": 8, "prefill": 900.0, "throughput": 80.5, "ttft_ms": None}
    last = {"taken": "2026-01-01", "tool": "llama-benchy 1", "bound": 12.5, "rows": [row], "slower": ["<fell>"]}
    page = _report.page(data["status"], data["runs"], data["doctor"], data["memory"], data["why"], [last])
    assert '<td class="num" data-name="DECODE t/s">80.5</td>' in page
    assert "allows one stream 13 tokens/s" in page
    assert "&lt;fell&gt;" in page
    assert "bench has not run yet" not in page
    assert "bench has not run yet" in made(data)


def test_nothing_on_the_page_hides_or_turns_what_stands_beside_it():
    data = copy.deepcopy(captured(SHAPES[0]))
    hostile = "\x1b[2Jx\u202ey\u200bz\x9b"
    data["status"]["problems"] = [{"host": hostile, "text": hostile, "fix": hostile}]
    text = made(data)
    assert "x\ufffdy\ufffdz" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e]", text)


def test_the_live_page_of_the_head_is_a_click_away() -> None:
    data = captured("4spark")
    data["status"]["serving"]["page"] = "http://192.168.1.11:8000/console/"
    assert checked(made(data)).addresses == ["data:,", "http://192.168.1.11:8000/console/"]


def test_the_state_has_the_word_of_the_page_on_the_head() -> None:
    data = captured("4spark")
    data["status"]["serving"].update(state="degraded", healthy=True, line="without spark-04")
    assert "Serving the smaller model" in made(data)
    data["status"]["serving"]["healthy"] = False
    assert "Not serving" in made(data)
