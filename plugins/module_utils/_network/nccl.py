# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL's configuration files, read as NCCL reads them and edited key by key.

How NCCL reads a file: a line is a comment only if ``#`` is its very first character; the key is everything before the
first ``=`` and the value everything after it, blanks included; a key that is already set keeps its value.  So the
process environment outranks the files, ``NCCL_CONF_FILE`` (else ``~/.nccl.conf``) outranks ``/etc/nccl.conf``, and
inside a file the first line of a key counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SYSTEM_FILE = "/etc/nccl.conf"
KEY = re.compile(r"[A-Z][A-Z0-9_]*")


class NcclError(ValueError):
    """A key or value that cannot stand in NCCL's file; the message names it."""


@dataclass(frozen=True)
class Line:
    """One line of a file with its end, so that what is not touched is written back byte for byte."""

    number: int
    raw: bytes

    @property
    def body(self) -> bytes:
        return self.raw[:-1] if self.raw.endswith(b"\n") else self.raw

    @property
    def key(self) -> str:
        """The key NCCL sees, or an empty string for a comment and a line without ``=``."""
        if self.raw.startswith(b"#") or b"=" not in self.body:
            return ""
        return self.body.split(b"=", 1)[0].decode("utf-8", "surrogateescape")

    @property
    def value(self) -> str:
        return self.body.split(b"=", 1)[1].decode("utf-8", "surrogateescape") if self.key else ""

    @property
    def ineffective(self) -> str:
        """Why a line that looks like a setting sets nothing NCCL knows; an empty string otherwise."""
        text = self.body.decode("utf-8", "surrogateescape")
        if self.raw.startswith(b"#") or not text.strip():
            return ""
        if "=" not in text:
            return "" if text.lstrip().startswith("#") else "no '='"
        if text.lstrip().startswith("#"):
            return "a comment must begin in column 1; this line sets a variable of that odd name"
        key = self.key
        if key != key.strip():
            return "blanks around the key are part of it; NCCL never looks it up"
        if key.startswith("export "):
            return "this is not a shell file; the key would be 'export …'"
        return ""


def split_lines(content: bytes) -> list[Line]:
    """Lines end at a line feed only, as for getline(); a carriage return belongs to the value."""
    parts = content.split(b"\n")
    raws = [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
    return [Line(number, raw) for number, raw in enumerate(raws, 1)]


def effective(content: bytes) -> dict[str, str]:
    """Key → value as NCCL takes them from this file alone: the first line of a key wins."""
    found: dict[str, str] = {}
    for line in split_lines(content):
        if line.key:
            found.setdefault(line.key, line.value)
    return found


def check_setting(key: str, value: str) -> None:
    if not KEY.fullmatch(key):
        raise NcclError(f"{key!r} is not the name of a variable (capital letters, digits, underscores)")
    if "\n" in value or "\0" in value or "\r" in value:
        raise NcclError(f"the value of {key} must be one line")
    if value != value.strip():
        raise NcclError(f"the value {value!r} of {key} has blanks around it, which NCCL would keep")
    if len(value) > 1023:
        raise NcclError(f"the value of {key} is longer than the 1023 characters NCCL keeps")


def edit(content: bytes, present: Mapping[str, str], absent: Sequence[str], header: str = "") -> bytes:
    """The content with ``present`` set and ``absent`` gone.

    The line of a key that already has its value stays as it is.  A changed key keeps its place; further lines of the
    same key, which NCCL ignores, go.  New keys are appended.  ``header`` is written if there was no content at all.
    """
    for key, value in present.items():
        check_setting(key, value)
    for key in absent:
        check_setting(key, "")
        if key in present:
            raise NcclError(f"{key} is to be set and to be removed")
    out: list[bytes] = []
    seen: set[str] = set()
    for line in split_lines(content):
        if line.key in absent and line.key:
            continue
        if line.key not in present or not line.key:
            out.append(line.raw)
            continue
        if line.key in seen:
            continue
        seen.add(line.key)
        if line.value == present[line.key]:
            out.append(line.raw)
        else:
            out.append(f"{line.key}={present[line.key]}\n".encode())
    missing = [key for key in present if key not in seen]
    if missing:
        if not out and not content and header:
            out.append(f"{header}\n".encode())
        if out and not out[-1].endswith(b"\n"):
            out[-1] += b"\n"
        out += [f"{key}={present[key]}\n".encode() for key in missing]
    return b"".join(out)


def taken_back(content: bytes, original: bytes | None, keys: Sequence[str], header: str) -> bytes | None:
    """The content with these keys as they were in the original; None for no file.

    Other lines stay, whoever wrote them; where there are none of somebody else's the original comes back byte for byte.
    """
    now, was = effective(content), effective(original or b"")
    mine = {key: value for key, value in now.items() if key in keys}
    if edit(original or b"", mine, [key for key in keys if key not in mine], header) == content:
        return original
    lines = content.splitlines(keepends=True)
    rest = b"".join(line for line in lines if line.strip() != header.encode())
    present = {key: value for key, value in was.items() if key in keys}
    return edit(rest, present, [key for key in keys if key not in present]) or None


@dataclass(frozen=True)
class NcclSource:
    """One place NCCL takes settings from, highest rank first in a list of them."""

    name: str
    rank: str
    content: bytes | None

    def report(self, planned: Mapping[str, str]) -> dict[str, Any]:
        lines = split_lines(self.content or b"")
        settings = effective(self.content or b"")
        return {
            "name": self.name,
            "rank": self.rank,
            "exists": self.content is not None,
            "settings": settings,
            # The planned environment outranks every file, so this is a trap for whatever runs without it
            "differs": {
                key: {"value": value, "planned": planned[key]}
                for key, value in settings.items()
                if key in planned and planned[key] != value
            },
            "ineffective": [
                {
                    "line": line.number,
                    "text": line.body.decode("utf-8", "replace"),
                    "reason": line.ineffective,
                }
                for line in lines
                if line.ineffective
            ],
        }


def difference(arguments: Mapping[str, Any]) -> str:
    """The file, if it is not as the arguments of the module ``nccl_conf`` want it; nothing is written."""
    try:
        with open(SYSTEM_FILE, "rb") as stream:
            before = stream.read()
    except FileNotFoundError:
        before = b""
    present = {str(key): str(value) for key, value in arguments["present"].items()}
    return "" if edit(before, present, list(arguments["absent"])) == before else SYSTEM_FILE
