# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many request bodies a front proxy has at once, by their size, so that nobody takes all memory or all of a disk.

A door keeps each body in memory until its answer has ended; without one, what is larger than a megabyte is a file.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import door, front

#: bytes that the bodies of one class may take together
TOGETHER = 400_000_000
#: of decimal digits of Content-Length: bodies of up to 99,999 bytes, of up to 999,999, of up to 9,999,999
_DIGITS = (5, 6, 7)
#: of nginx itself: connections, headers, and JavaScript
_BESIDE = 1024**3
_UNITS = {"k": 1024, "m": 1024**2, "g": 1024**3}


@dataclass(frozen=True)
class BodyClass:
    """Bodies of about one size."""

    name: str
    #: nginx's expression for Content-Length and Transfer-Encoding, with a space between; "" is every other body
    pattern: str
    #: how many at once, of all keys together and of one key
    at_once: int
    of_key: int


def in_bytes(size: str) -> int:
    """Of a size of nginx: ``64m`` are 67108864."""
    return int(size.rstrip("kKmMgG")) * _UNITS.get(size[-1].lower(), 1)


def max_body(value: object, is_door: bool) -> str:
    """``vllm_serve_front_max_body``, checked; a door has a limit always. Raises FrontPlanError."""
    size = front.checked_size(value, "vllm_serve_front_max_body")
    return door.body_limit(size) if is_door else size


def body_classes(largest_body: str) -> list[BodyClass]:
    """For bodies of up to ``largest_body``, a size of nginx; no limit is "0".

    Without a length before it, a body counts as one of the largest. Half of a class is there for one key, so that
    others have the rest; one of the largest bodies always has room.
    """
    largest = in_bytes(largest_body) or TOGETHER
    found = []
    for digits in _DIGITS:
        at_once = TOGETHER // 10**digits
        found.append(BodyClass(f"digits_{digits}", f"~^[0-9]{{1,{digits}}} $", at_once, at_once // 2))
    at_once = max(2, TOGETHER // largest)
    return [*found, BodyClass("largest", "", at_once, at_once // 2)]


def memory_bytes(largest_body: str) -> int:
    """MemoryMax of a door: its bodies, each with a copy for the model that answers instead of its own, and nginx."""
    largest = in_bytes(largest_body)
    classes = body_classes(largest_body)
    return 2 * (TOGETHER * len(_DIGITS) + classes[-1].at_once * largest) + _BESIDE
