# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A part of a document that a program writes, between two comments; the rest of the document stays."""

from __future__ import annotations

from pathlib import Path


def begin(name: str) -> str:
    return f"<!-- {name}: begin -->"


def end(name: str) -> str:
    return f"<!-- {name}: end -->"


def replace(path: Path, name: str, lines: str) -> None:
    """Put ``lines`` between the marks ``name`` of the document; ValueError where it has no such marks."""
    text = path.read_text(encoding="utf-8")
    head, found, rest = text.partition(begin(name))
    _old, ended, tail = rest.partition(end(name))
    if not (found and ended):
        raise ValueError(f"{path}: no part between {begin(name)} and {end(name)}")
    path.write_text(f"{head}{begin(name)}\n{lines.strip()}\n{end(name)}{tail}", encoding="utf-8")
