# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# run_command has no time limit, this has:
# pylint: disable=ansible-bad-function
"""Run one command with a time limit.

``AnsibleModule.run_command`` has no time limit, and a vendor tool that hangs on broken hardware must never hang a
play.  The outcome is always a (rc, stdout, stderr) triple; nothing raises.
"""

from __future__ import annotations

import os
import subprocess


def run_limited(argv: list[str], timeout: float, stdin: str | None = None) -> tuple[int, str, str]:
    """Run ``argv`` in the C locale; rc 127 when it is not installed, 124 when it ran past ``timeout`` seconds."""
    environment = dict(os.environ, LC_ALL="C", LANGUAGE="C")
    environment["PATH"] = environment.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=environment,
            check=False,
        )
    except FileNotFoundError:
        return 127, "", f"{argv[0]}: not installed"
    except PermissionError as error:
        return 126, "", f"{argv[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return 124, "", f"{argv[0]}: no answer within {timeout:g} s"
    return done.returncode, done.stdout, done.stderr
