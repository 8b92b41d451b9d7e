# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name that a host has for itself (hostnamectl), and the one that it had when it was last set up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIX = "sudo hostnamectl set-hostname {was}, or run site.yml, which takes the new name for the right one"


def renamed(node: Mapping[str, Any]) -> tuple[str, str]:
    """What the name was and what it is, by the host's facts; empty where it is the same or was never written down."""
    was, now = str((node.get("declared") or {}).get("hostname") or ""), str(node.get("hostname") or "")
    return (was, now) if was and now and was != now else ("", "")


def told(node: Mapping[str, Any]) -> str:
    """The same in words; empty where there is nothing to say."""
    was, now = renamed(node)
    return f"its host name is {now}; it was {was} when site.yml last set the host up" if was else ""


def fix(node: Mapping[str, Any]) -> str:
    """What a person does about it."""
    return FIX.format(was=renamed(node)[0])
