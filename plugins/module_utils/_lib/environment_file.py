# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files in the form of systemd's ``EnvironmentFile=``; ``/etc/os-release`` has the same syntax."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

MARKER = "# Ansible managed: sparkthor.cluster"
#: the host's own network values, which every program of the engine gets, and what all hosts' engines have in common
FABRIC = "/etc/sparkthor/fabric.env"
ENGINE = "/etc/sparkthor/engine.env"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: one part of a value: in single quotes, in double quotes, one escaped character, or plain text
_PART = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)|([^'"\\]+)|(.)""", re.DOTALL)


def parse(text: str) -> dict[str, str]:
    """The variables of an environment file as systemd reads it: name -> value.

    Comments and lines that set nothing are left out, quotes and escapes are taken away, and of a name that is set
    twice the last value counts.
    """
    variables: dict[str, str] = {}
    # a line ends where systemd ends it: Unicode has more line breaks, which are part of a value
    for line in text.replace("\\\n", "").split("\n"):
        name, sign, value = line.strip().partition("=")
        if sign and _NAME.fullmatch(name.strip()):
            variables[name.strip()] = _value(value.strip())
    return variables


def read(paths: Iterable[str]) -> dict[str, str]:
    """The variables of all these files, of a name in several the last one's; a file that is not there has none."""
    found: dict[str, str] = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as stream:
            found.update(parse(stream.read()))
    return found


def _value(text: str) -> str:
    parts = []
    for single, double, escaped, plain, lone_quote in _PART.findall(text):
        # within double quotes a backslash stands for itself but before these four characters
        parts.append(single or re.sub(r'\\(["\\$`])', r"\1", double) or escaped or plain or lone_quote)
    return "".join(parts)


def render(variables: Mapping[str, Any]) -> str:
    """The file with these variables: our marker, then a line each, sorted, quoted only where systemd needs it.

    Raises ``ValueError`` for a name or a value that such a file cannot hold.
    """
    lines = [MARKER]
    for name in sorted(variables):
        value = str(variables[name])
        if "\n" in value or not _NAME.fullmatch(name):
            raise ValueError(f"{name}: not a variable that an environment file can hold")
        if re.search(r"[\s\"'\\#;$`]", value):
            value = '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'
        lines.append(f"{name}={value}")
    return "\n".join(lines) + "\n"
