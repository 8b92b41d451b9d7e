# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# run_command has no time limit, this has:
# pylint: disable=ansible-bad-function
"""Run one command with a time limit.

``AnsibleModule.run_command`` has no time limit, and a vendor tool that hangs on broken hardware must never hang a
play.  The outcome is always a (rc, stdout, stderr) triple; nothing raises.

``subprocess.run`` does not do: after its time limit it kills, and then waits without one for what may hang in the
kernel (a driver whose device is gone), where no signal arrives.
"""

from __future__ import annotations

import contextlib
import os
import subprocess

#: seconds that a killed command has to be gone; one that is not is left behind
KILLED = 1.0
#: the exit status of a command that ran past its limit, as timeout(1) has it
TIMED_OUT = 124


def run_limited(argv: list[str], timeout: float, stdin: str | None = None) -> tuple[int, str, str]:
    """Run ``argv`` in the C locale.

    rc 127 when it is not installed, 126 when it cannot be run, :data:`TIMED_OUT` when it ran past ``timeout`` seconds.
    """
    environment = dict(os.environ, LC_ALL="C", LANGUAGE="C")
    environment["PATH"] = environment.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
        )
    except FileNotFoundError:
        return 127, "", f"{argv[0]}: not installed"
    except OSError as error:
        return 126, "", f"{argv[0]}: {error.strerror}"
    try:
        out, err = process.communicate(stdin, timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILLED)
        return TIMED_OUT, "", f"{argv[0]}: no answer within {timeout:g} s"
    except BaseException:  # the caller's own time is up
        process.kill()
        raise
    return process.returncode, out, err
