# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in the units of Ray and the engine:
# pylint: disable=ansible-bad-function
"""Gives a program of the engine its environment, in a process that has the serving user's rights and no more.

systemd hands a unit's ``EnvironmentFile=`` to all of its steps, root's as well, and the loader obeys ``LD_PRELOAD``
before a program could clear it. So no unit with a step of root's has such a file; this reads the files instead, as the
last thing before the engine.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from .._lib import environment_file

#: "try again later": not 1, which Ray's unit takes for an orderly end because Ray itself ends with it
NOT_NOW = 75


class LaunchError(Exception):
    """A sentence for the journal."""


def environment(paths: Iterable[str], without: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """``given`` and above it the files' variables, the last file's first; ``without`` are names that nobody gets.

    A path with a dash before it may be missing, as with systemd. Raises LaunchError for another that cannot be read.
    """
    merged = dict(given)
    for path in paths:
        name = path.removeprefix("-")
        try:
            with open(name, encoding="utf-8") as stream:
                merged.update(environment_file.parse(stream.read()))
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError) and name != path:
                continue
            raise LaunchError(f"{name} cannot be read: {error}; run the playbook again") from None
    return {name: value for name, value in merged.items() if name not in set(without)}


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        prog="sparkthor_host launch",
        usage="sparkthor_host launch [--file=[-]FILE]... [--without=NAME]... -- COMMAND...",
        description="Run a program of the engine with the variables of environment files.",
    )
    parser.add_argument("--file", action="append", default=[], help="an environment file; -FILE may be missing")
    parser.add_argument("--without", action="append", default=[], help="a variable that the program does not get")
    options, command = parser.parse_args(words[:cut]), words[cut + 1 :]
    try:
        if not command:
            parser.error("no command after --")
        if os.geteuid() == 0:
            raise LaunchError("root gets none of the engine's variables: this is for the serving user alone")
        os.execve(command[0], command, environment(options.file, options.without, os.environ))
    except (LaunchError, OSError) as error:
        print(
            error if isinstance(error, LaunchError) else f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True
        )
        return NOT_NOW
