# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.nccl import (
    NcclError,
    NcclSource,
    edit,
    effective,
    split_lines,
)
from hypothesis import given
from hypothesis import strategies as st

SHIPPED = b"# NCCL settings\nNCCL_IB_DISABLE=1\n  # not a comment=here\nNCCL_DEBUG=WARN\n"


@pytest.mark.parametrize(
    ("name", "content", "present", "absent", "expected"),
    [
        ("remove", SHIPPED, {}, ["NCCL_IB_DISABLE"], SHIPPED.replace(b"NCCL_IB_DISABLE=1\n", b"")),
        ("nothing to do", b"NCCL_DEBUG=WARN", {}, ["NCCL_IB_DISABLE"], b"NCCL_DEBUG=WARN"),
        ("empty stays empty", b"", {}, ["NCCL_IB_DISABLE"], b""),
        ("last key goes", b"NCCL_IB_DISABLE=1", {}, ["NCCL_IB_DISABLE"], b""),
        ("change in place", b"A=1\nNCCL_X=1\nB=2\n", {"NCCL_X": "2"}, [], b"A=1\nNCCL_X=2\nB=2\n"),
        ("append after a line without an end", b"A=1", {"NCCL_X": "2"}, [], b"A=1\nNCCL_X=2\n"),
        ("new file", b"", {"NCCL_X": "2"}, [], b"# head\nNCCL_X=2\n"),
        ("right value keeps its bytes", b"NCCL_X=2", {"NCCL_X": "2"}, [], b"NCCL_X=2"),
        ("duplicates go", b"NCCL_X=2\nA=1\nNCCL_X=3\n", {"NCCL_X": "2"}, [], b"NCCL_X=2\nA=1\n"),
        ("first duplicate counts", b"NCCL_X=3\nNCCL_X=2\n", {"NCCL_X": "2"}, [], b"NCCL_X=2\n"),
        ("all duplicates removed", b"NCCL_X=3\nA=1\nNCCL_X=2\n", {}, ["NCCL_X"], b"A=1\n"),
        ("value with equals sign", b"", {"NCCL_IB_HCA": "=rocep1s0f1"}, [], b"# head\nNCCL_IB_HCA==rocep1s0f1\n"),
        ("commented key is no key", b"#NCCL_X=1\n", {"NCCL_X": "2"}, [], b"#NCCL_X=1\nNCCL_X=2\n"),
        ("indented key is another key", b" NCCL_X=1\n", {}, ["NCCL_X"], b" NCCL_X=1\n"),
        ("prefix is another key", b"NCCL_X_Y=1\n", {}, ["NCCL_X"], b"NCCL_X_Y=1\n"),
        ("carriage return belongs to the value", b"NCCL_X=2\r\nA=1\r\n", {"NCCL_X": "2"}, [], b"NCCL_X=2\nA=1\r\n"),
        ("bytes that are no text", b"\xff\xfe=\x80\nNCCL_X=1\n", {}, ["NCCL_X"], b"\xff\xfe=\x80\n"),
        ("blank after the sign", b"NCCL_X= 1\n", {}, ["NCCL_X"], b""),
    ],
)
def test_edit(name: str, content: bytes, present: dict[str, str], absent: list[str], expected: bytes) -> None:
    assert edit(content, present, absent, header="# head") == expected


@given(st.binary(), st.sampled_from(["", "0", "1", "=a,b"]))
def test_edit_is_idempotent_and_touches_nothing_else(content: bytes, value: str) -> None:
    present = {"NCCL_X": value} if value else {}
    absent = ["NCCL_IB_DISABLE"] + ([] if value else ["NCCL_X"])
    once = edit(content, present, absent)
    assert edit(once, present, absent) == once
    keys = effective(once)
    assert keys.get("NCCL_X") == (value or None)
    assert "NCCL_IB_DISABLE" not in keys
    ours = ("NCCL_X", "NCCL_IB_DISABLE")
    others = [line.body for line in split_lines(content) if line.key not in ours]
    assert [line.body for line in split_lines(once) if line.key not in ours] == others


@given(st.binary())
def test_lines_make_up_the_content(content: bytes) -> None:
    assert b"".join(line.raw for line in split_lines(content)) == content


@pytest.mark.parametrize(
    ("present", "absent", "message"),
    [
        ({"nccl x": "1"}, [], "not the name of a variable"),
        ({"NCCL_X": "1\nNCCL_Y=2"}, [], "must be one line"),
        ({"NCCL_X": " 1"}, [], "blanks around it"),
        ({"NCCL_X": "1" * 1024}, [], "longer than"),
        ({"NCCL_X": "1"}, ["NCCL_X"], "to be set and to be removed"),
        ({}, ["x=y"], "not the name of a variable"),
    ],
)
def test_bad_settings(present: dict[str, str], absent: list[str], message: str) -> None:
    with pytest.raises(NcclError, match=message):
        edit(b"", present, absent)


def test_report() -> None:
    content = b"# ok\n # no\nNCCL_IB_DISABLE=1\nNCCL_IB_DISABLE=0\nNCCL_DEBUG =INFO\nexport NCCL_A=1\njunk\n\n"
    report = NcclSource("/etc/nccl.conf", "system", content).report({"NCCL_IB_DISABLE": "0", "NCCL_NET": "IB"})
    assert report["settings"]["NCCL_IB_DISABLE"] == "1"
    assert report["differs"] == {"NCCL_IB_DISABLE": {"value": "1", "planned": "0"}}
    assert [(item["line"], item["text"]) for item in report["ineffective"]] == [
        (5, "NCCL_DEBUG =INFO"),
        (6, "export NCCL_A=1"),
        (7, "junk"),
    ]


def test_report_of_a_missing_file() -> None:
    report = NcclSource("/root/.nccl.conf", "home", None).report({})
    assert report["exists"] is False
    assert report["settings"] == {}
