# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import console_state
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.exporter import Page
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.watchdog_report import metrics_text


def test_samples_are_read_as_the_exporter_writes_them() -> None:
    page = Page()
    page.add("sparkthor_link_up", "1 with carrier.", 1, netdev='a"b\\c\nd', planned="yes")
    page.add("sparkthor_node_uptime_seconds", "Time since boot.", 1.5)
    page.add("sparkthor_other", "Not asked for.", 3)
    found = console_state.samples(page.text(), ["sparkthor_link_up", "sparkthor_node_uptime_seconds"])
    assert found == {
        "sparkthor_link_up": [({"netdev": 'a"b\\c\nd', "planned": "yes"}, 1.0)],
        "sparkthor_node_uptime_seconds": [({}, 1.5)],
    }


@pytest.mark.parametrize("line", ["x", "x NaN", "x +Inf", "x{", "x{} y", "x 1 2 3"])
def test_a_line_that_is_none_says_nothing(line: str) -> None:
    assert console_state.samples(line, ["x"]) == {}


def test_a_long_line_of_labels_is_read_in_linear_time() -> None:
    text = "x{" + 'a="' * 200_000 + "} 1"
    assert len(console_state.samples(text, ["x"])) <= 1


def test_a_host_cannot_make_the_page_large_slow_or_no_json() -> None:
    """Its exporter's page is its own to write: a reader's time and memory are not."""
    names = [f"eth{number}" for number in range(5000)]
    lines = [f'sparkthor_link_up{{netdev="{name}",planned="yes"}} 1' for name in names]
    lines += [f'sparkthor_link_rx_bytes_total{{netdev="{name}"}} 1e308' for name in names]
    lines += [f'sparkthor_gpu_power_watts{{gpu="\x1b]52;c;eA==\x07{name}"}} 1' for name in names]
    lines += [f'sparkthor_gpu_slowed{{gpu="0",reason="{"x" * 900}{name}"}} 1' for name in names]
    rates = console_state.Rates()
    for now in (0.0, 2.0):
        found = console_state.host("\n".join(lines), "a", rates, now)
    text = json.dumps(found, allow_nan=False, ensure_ascii=False)
    assert len(text) < 30_000
    assert "\x1b" not in text
    assert 0 < len(found["links"]) <= console_state.MOST_PARTS
    huge = "\n".join(f'vllm:num_requests_running{{a="{number}"}} 1e308' for number in range(3))
    json.dumps(console_state.engine(huge), allow_nan=False)
    tiny = "vllm:spec_decode_num_draft_tokens_total 1e-310\nvllm:spec_decode_num_accepted_tokens_total 1e18"
    assert console_state.engine(tiny)["drafted"], "the name of this counter is another one"
    json.dumps(console_state.group(facts(), tiny, rates, 3.0), allow_nan=False)


@pytest.mark.parametrize(
    ("clock", "reasons", "slowed"),
    [
        (2.4e9, ["sw_power_cap"], None),
        (None, ["sw_power_cap"], None),
        (0.8e9, ["sw_power_cap"], ["sw_power_cap"]),
        (2.4e9, ["sw_power_cap", "sw_thermal_slowdown"], ["sw_power_cap", "sw_thermal_slowdown"]),
        (2.4e9, ["hw_power_brake"], ["hw_power_brake"]),
    ],
)
def test_a_gpu_at_its_own_power_limit_is_slowed_where_its_clock_is_low(
    clock: float | None, reasons: list[str], slowed: list[str] | None
) -> None:
    lines = ['sparkthor_gpu_utilization_ratio{gpu="0"} 0.96', 'sparkthor_gpu_clock_limit_hertz{gpu="0"} 2.4e9']
    lines += [f'sparkthor_gpu_clock_hertz{{gpu="0"}} {clock}'] if clock else []
    lines += [f'sparkthor_gpu_slowed{{gpu="0",reason="{reason}"}} 1' for reason in reasons]
    [gpu] = console_state.host("\n".join(lines), "a", console_state.Rates(), 0.0)["gpus"]
    assert gpu.get("slowed") == slowed


def test_names_that_change_in_every_look_are_forgotten() -> None:
    rates = console_state.Rates()
    for look in range(200):
        for number in range(64):
            rates.per_second(f"a eth{look}-{number}", 1.0, 2.0 * look)
    assert len(rates._before) <= console_state.MOST_RATES
    assert rates.per_second("a eth199-0", 3.0, 400.0) == 1.0


def test_rates_begin_anew_with_a_counter() -> None:
    rates = console_state.Rates()
    seen = [rates.per_second("a", value, now) for now, value in ((0, 10), (2, 30), (4, 5), (6, None), (8, 9))]
    assert seen == [None, 10.0, None, None, None]


def test_a_history_of_an_hour_with_gaps() -> None:
    history = console_state.History()
    history.add({"a": 1.0}, 0)
    history.add({"a": 2.0}, 9)
    history.add({"a": 3.0, "b": 9.0}, 34)
    assert history.document()["series"] == {"a": [2.0, None, None, 3.0], "b": [9.0]}
    for step in range(console_state.POINTS + 5):
        history.add({"a": 1.0}, 40 + step * console_state.STEP)
    assert len(history.document()["series"]["a"]) == console_state.POINTS
    # the clock was set back
    history.add({"a": 7.0}, 3)
    assert history.document()["series"] == {"a": [7.0]}


def facts(**more: Any) -> console_state.GroupFacts:
    state = {"version": 1, "state": "serving", "healthy": True, "updated": 100.0, "since": 40.0}
    return console_state.GroupFacts("g", "m", **{"state": state, **more})


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({}, "serving"),
        ({"draining": True}, "draining"),
        ({"stopped": "cables"}, "stopped"),
        ({"stopped": "asleep: chat serves"}, "asleep"),
        ({"state": {}}, "unknown"),
        ({"state": {}, "on_demand": True}, "asleep"),
        ({"state": {"version": 1, "state": "serving", "updated": -900.0}}, "unknown"),
        ({"state": {"version": 1, "state": ["serving"], "updated": 100.0}}, "unknown"),
        ({"state": {"version": 1, "state": "loading", "updated": True}}, "unknown"),
    ],
)
def test_a_word_for_what_a_group_does(more: dict[str, Any], state: str) -> None:
    assert console_state.group(facts(**more), "", console_state.Rates(), 100.0)["state"] == state


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({}, "Its watchdog has said nothing yet."),
        ({"state": "serving", "updated": 100.0}, "Its watchdog speaks another version than this page: run site.yml."),
        ({"version": 2, "state": "serving", "updated": 100.0}, "another version"),
        ({"version": 1, "state": "serving", "updated": -100.0}, "The last word of its watchdog is 3 min 20 s old."),
        ({"version": 1, "state": "serving", "updated": 3700.0}, "is from 60 min 00 s ahead: a clock was set."),
        ({"version": 1, "state": "serving", "updated": 100.0 - 5 * 3600}, "is 5 h old."),
        ({"version": 1, "state": "serving", "updated": 100.0 - 9e7}, "is 1041 days old."),
        ({"version": 1, "state": "serving", "updated": 130.0}, ""),
    ],
)
def test_why_nothing_is_known_is_said(state: dict[str, Any], problem: str) -> None:
    found = console_state.group(facts(state=state), "", console_state.Rates(), 100.0)
    assert (found["state"] == "unknown") == bool(problem)
    assert problem in found["problem"]


def test_a_clock_that_jumps_begins_the_history_anew_and_a_gap_is_a_gap() -> None:
    history = console_state.History()
    later = 1015.0 + console_state.STEP * console_state.POINTS
    for now in (1000.0, 1015.0, later):
        history.add({"a": now}, now)
    assert history.document()["series"]["a"] == [later]
    history.add({"a": 1.0}, 900.0)
    history.add({"a": 2.0}, 930.0)
    assert history.document()["series"]["a"] == [1.0, None, None, 2.0]


def test_what_a_watchdog_wrote_is_shown_as_text_and_numbers() -> None:
    told = {"state": "loading", "updated": 1e300, "fraction": "x", "detail": "\x1b]52;c;aGk=\x07ok" + "y" * 9999}
    told |= {"ranks": {"missing": [{"a": 1}] * 999}, "completion": [1], "answers": {"asked": "x"}}
    found = console_state.group(facts(state=told), "vllm:num_requests_running NaN\n", console_state.Rates(), 5.0)
    assert found["detail"].startswith("oky")
    assert len(found["detail"]) == console_state.LINE
    assert (found["percent"], found["running"], found["age"]) == (None, None, None)
    assert len(found["missing"]) == 64
    json.dumps(found, allow_nan=False)


def test_another_head_is_known_by_its_metrics() -> None:
    state = {"state": "loading", "healthy": False, "since": 70.0, "completion": {"seconds_ago": 3.0}}
    found = console_state.state_of_metrics(metrics_text(state, 100.0), 200.0)
    assert found == {
        "version": 1,
        "state": "loading",
        "healthy": False,
        "since": 170.0,
        "updated": 200.0,
        "completion": {"seconds_ago": 3.0},
        "ranks": {"missing": []},
    }
    assert console_state.state_of_metrics("", 1.0) == {}


def test_forged_usage_is_of_no_more_keys_and_of_no_other_names() -> None:
    """The exporter is the serving user's: it may say anything, and the page gets little of it."""
    lines = ['sparkthor_front_requests_total{key="\\n\x1b]52;c;aGk=\x07",status="200"} 5']
    lines += [f'sparkthor_front_requests_total{{key="made-up-{number}",status="200"}} 1' for number in range(1500)]
    lines += [f'sparkthor_front_requests_total{{key="{"y" * 900}",status="500"}} 2']
    # of one that is shown already
    lines += ['sparkthor_front_requests_total{key="made-up-0",status="429"} 3']
    lines += ['sparkthor_front_requests_total{key="anna",status="200"} 7']
    lines += [f'sparkthor_front_key_tokens_limit{{key="anna",period="{"p" * 3000}"}} 5']
    lines += ['sparkthor_front_key_tokens_limit{key="anna",period="month"} 9']
    found = {one["name"]: one for one in console_state.keys("\n".join(lines), ["anna", "default"])}
    assert len(found) <= console_state.MOST_PARTS + 3
    assert all(re.fullmatch(r"[a-z0-9_-]{1,32}", name) for name in found)
    assert sum(one["requests"] for one in found.values()) == 5 + 1500 + 2 + 3 + 7
    assert found["made-up-0"]["requests"] == 4
    assert (found["anna"]["requests"], found["anna"]["limits"]) == (7, {"month": {"limit": 9}})
    assert {name for name, one in found.items() if one["known"]} == {"anna", "default"}
