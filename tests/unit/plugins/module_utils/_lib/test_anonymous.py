# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tells machines and people apart is replaced, always by the same; what does not, stays."""

from __future__ import annotations

import ipaddress
import re
import time

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.anonymous import Anonymous
from hypothesis import given
from hypothesis import strategies as st

HIDE = Anonymous("key", ["spark-5c2d", "spark-5c2d-2", "localhost"])


@pytest.mark.parametrize(
    "text",
    [
        "3c:6d:66:cc:b3:b7",
        "fe80::3e6d:66ff:fecc:b3b7/64",
        "fe80:0000:0000:0000:3e6d:66ff:fecc:b3b7",
        "GPU-0f1e2d3c-1111-2222-3333-444455556666",
        "machine-id 0123456789abcdef0123456789abcdef",
        'DGX_SERIAL_NUMBER="1234567890123"',
        "    Serial Number                         : 1234567890123",
        '"serial": "1234567890123"',
        "inet 93.184.216.34/24 brd",
        "inet6 2606:2800:220:1:248:1893:25c8:1946/64",
        "/home/jane/models",
        "host spark-5c2d answered spark-5c2d-2.",
    ],
)
def test_replaced(text: str) -> None:
    told = r"cc:b3:b7|fecc:b3b7|444455556666|89abcdef|1234567890123|93\.184|2606:|jane|5c2d"
    assert re.search(told, text)
    assert not re.search(told, HIDE.text(text)), HIDE.text(text)


@pytest.mark.parametrize(
    "text",
    [
        "ff:ff:ff:ff:ff:ff",
        "00:00:00:00:00:00",
        "inet 192.168.1.11/24",
        "169.254.207.1",
        "10.100.0.1 172.17.0.1 127.0.0.1",
        "fe80::1/64 fd00::2/64 ::1",
        "0000:0000:0000:0000:0000:ffff:c0a8:640a",
        "580.173.02 6.17.0-1032-nvidia 28.45.4028",
        "0000:01:00.0",
        "0000000F:01:00.0",
        "/home/nvidia/x",
        "10de:2e12",
        "12:34:56 up 1 day",
        "Serial Number                         : [N/A]",
        "localhost",
    ],
)
def test_kept(text: str) -> None:
    assert HIDE.text(text) == text


def test_a_makers_part_stays_and_one_thing_has_one_replacement_however_it_is_written() -> None:
    mac = HIDE.text("3c:6d:66:cc:b3:b7")
    assert mac.startswith("3c:6d:66:")
    digits = mac.replace(":", "")[6:]
    address = HIDE.text("fe80::3e6d:66ff:fecc:b3b7")
    assert address == f"fe80::3e6d:66ff:fe{digits[:2]}:{digits[2:]}"
    assert HIDE.text("3C:6D:66:CC:B3:B7")[9:] == mac[9:]
    assert Anonymous("other").text("3c:6d:66:cc:b3:b7") != mac


def test_data_keeps_its_form() -> None:
    found = HIDE.data({"spark-5c2d": [1, None, True, {"a": "spark-5c2d"}]})
    (name,) = found
    assert name.startswith("host-")
    assert found[name] == [1, None, True, {"a": name}]


@given(st.ip_addresses(v=4))
def test_an_address_that_is_somebodys_never_stays(address: ipaddress.IPv4Address) -> None:
    assert (HIDE.text(f"inet {address}/24") == f"inet {address}/24") is (not address.is_global)


@pytest.mark.parametrize("part", ["aa:", "serial", "aa:aa:aa:aaaaaaaaaaaaaaaaaaaaaaaag ", "aserial = "])
def test_a_hostile_text_takes_no_longer(part: str) -> None:
    """One line of a log was enough to hold a capture for ever."""
    began = time.process_time()
    Anonymous("key").text(part * (100_000 // len(part)))
    assert time.process_time() - began < 20


@pytest.mark.parametrize("address", ["2a01:4f8:0:1::1", "2a01:4f8:1:2:3:4:5:6", "2a01:4f8:0:1::", "2a01:4f8:1:2:3::6"])
def test_every_way_to_write_a_public_address(address: str) -> None:
    assert Anonymous("key").text(f"from {address} on").startswith("from 2001:db8::")
