# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the front proxy says of each request becomes counts that Prometheus reads."""

from __future__ import annotations

import os
import socket
import stat
import threading

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import front_counts


def counted(*lines: str) -> list[str]:
    counts = front_counts.FrontCounts()
    for line in lines:
        counts.take(f"<190>Nov 22 23:00:00 sparkthor_front: {line}".encode())
    return [line for line in counts.lines() if not line.startswith("#")]


def test_requests_by_key_model_and_status() -> None:
    found = counted("alice mini 200 0.100", "alice mini 200 0.100", "alice mini 429 0.000", "- - 401 0.000")
    assert [line for line in found if "requests_total" in line] == [
        'sparkthor_front_requests_total{key="-",model="-",status="401"} 1',
        'sparkthor_front_requests_total{key="alice",model="mini",status="200"} 2',
        'sparkthor_front_requests_total{key="alice",model="mini",status="429"} 1',
    ]


def test_seconds_are_of_answers_alone() -> None:
    found = counted("a m 200 0.100", "a m 200 0.101", "a m 200 9999.000", "a m 503 5.000")
    buckets = [line.rpartition(" ")[2] for line in found if "_bucket" in line]
    assert buckets == ["1", *["2"] * (len(front_counts.BUCKETS) - 1), "3"]
    assert 'sparkthor_front_request_seconds_bucket{key="a",model="m",le="+Inf"} 3' in found
    assert 'sparkthor_front_request_seconds_sum{key="a",model="m"} 9999.201' in found
    assert 'sparkthor_front_request_seconds_count{key="a",model="m"} 3' in found


def test_tokens_are_of_those_that_say_them() -> None:
    found = counted("a m 200 0.100 5 6", "a m 200 0.100 50 60", "a m 200 0.100", "a m 200 0.100 -", "b m 200 0.100 ")
    for name, value in (("prompt_tokens", 55), ("completion_tokens", 66), ("counted_answers", 2)):
        wanted = f'sparkthor_front_{name}_total{{key="a",model="m"}} {value}'
        assert [line for line in found if name in line] == [wanted]


@pytest.mark.parametrize(
    "line",
    ["", "a m 200", "a m 999 0.1", "a m 200 x", 'a"} 1 m 200 0.100', "a m 200 0.100 5", "a m 200 0.100\nb m 200 0.100"],
)
def test_what_is_no_line_of_ours_is_passed_over(line: str) -> None:
    assert counted(line) == []


def test_a_name_cannot_end_its_label() -> None:
    assert 'sparkthor_front_requests_total{key="a",model="m\\"x\\\\",status="503"} 1' in counted('a m"x\\ 503 0.000')


def test_each_metric_is_said_once() -> None:
    counts = front_counts.FrontCounts()
    assert counts.lines() == []
    for line in ("a m 200 0.100 5 6", "b m 200 0.100 5 6"):
        counts.take(f"sparkthor_front: {line}".encode())
    told = [line.split()[2] for line in counts.lines() if line.startswith("# TYPE ")]
    assert len(told) == len(set(told)) == 5


def test_the_socket_is_for_the_own_group_and_takes_the_place_of_an_old_one(tmp_path) -> None:
    path = str(tmp_path / "front.sock")
    front_counts.listen(path).close()
    made = front_counts.listen(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
    counts = front_counts.FrontCounts()
    thread = threading.Thread(target=front_counts.follow, args=(counts, made))
    thread.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(path)
        sender.send(b"<190>Nov 22 23:00:00 sparkthor_front: a m 200 0.100")
        sender.send(b"")
    thread.join(60)
    assert 'sparkthor_front_requests_total{key="a",model="m",status="200"} 1' in counts.lines()
