# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""The steps before a start of Ray, in its unit."""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Sequence

from .._lib.deadline import wait_until
from . import former_head, ray_config, ray_probe, series
from .ray_processes import end_processes, leftovers, owner_of, read_processes
from .ray_start_check import NodeSettings, check, is_local

RUN_DIR = "/run/sparkthor/ray"
KEPT_SESSIONS = 3
#: "try again later": not 1, which the unit takes for an orderly end because Ray itself ends with it
NOT_NOW = 75


def say(text: str) -> None:
    print(text, flush=True)


def old_sessions(names: Iterable[str], keep: int = KEPT_SESSIONS) -> list[str]:
    """Session folders to remove; their names sort by time.  One is left by every start of the head."""
    sessions = sorted(name for name in names if name.startswith("session_") and name != "session_latest")
    return sessions[: max(0, len(sessions) - keep)]


def clean_temp_dir(temp_dir: str) -> list[str]:
    removed = []
    with contextlib.suppress(FileNotFoundError):
        for name in old_sessions(os.listdir(temp_dir)):
            shutil.rmtree(os.path.join(temp_dir, name), ignore_errors=True)
            removed.append(name)
        # Ray's note of "the cluster on this machine"; a client without an address would follow it to a dead one
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(temp_dir, "ray_current_cluster"))
    return removed


def port_taken(port: int) -> bool:
    """Somebody listens on it, on whatever address."""
    with contextlib.closing(socket.socket(socket.AF_INET)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("0.0.0.0", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _port_is_free(port: int) -> bool:
    return not port_taken(port)


def wait_for_head(
    config: ray_config.Config,
    ask: Callable[[], ray_probe.RayProbe] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    tell: Callable[[str], None] = say,
) -> None:
    """For ever: a connection attempt a second costs nothing, a start of Ray that fails costs seconds of CPU."""
    question = ask or (lambda: ray_probe.probe_tcp("gcs", config.head_address, config.gcs_port, 2.0))
    said, last = None, ""
    while True:
        probe = question()
        if probe.ok:
            return
        if probe.status != last or said is None or clock() - said >= 60:
            tell(f"waiting for the head's GCS at {config.head_address}:{config.gcs_port}: {probe.status}")
            said, last = clock(), probe.status
        sleep(1.0)


def ask_head(config: ray_config.Config) -> int:
    """A wrong token costs Ray 25 s and a page of output; this costs half a second and one line, and more where the
    machine is busy: a start must not fail for that."""
    probe = ray_probe.probe_engine(config, 60.0)
    if probe.ok:
        return 0
    if probe.status == ray_probe.UNAUTHORIZED:
        say(f"the head refuses this host's token ({config.token_path}): run the ray roles on all hosts")
    else:
        say(f"the head's GCS does not answer yet ({probe.status}): {probe.detail}")
    return NOT_NOW


def main(argv: Sequence[str] | None = None) -> int:
    """Runs before ``ray start``.  Status 0: start; anything else: systemd tries again."""
    parser = argparse.ArgumentParser(prog="sparkthor_host ray-prepare", description="Steps before a start of Ray.")
    parser.add_argument("--config", default=ray_config.CONFIG_PATH)
    parser.add_argument("--run-dir", default=RUN_DIR)
    parser.add_argument("--check", action="store_true", help="change nothing; print what stands against a start")
    parser.add_argument("--ask-head", action="store_true", help="only ask the head's GCS as a member would")
    options = parser.parse_args(argv)
    try:
        config = ray_config.load_config(options.config)
        settings = NodeSettings.load(options.config)
    except (ray_config.RayConfigError, OSError, ValueError) as error:
        say(str(error))
        return NOT_NOW
    if options.check:
        report = check(config, settings)
        say(json.dumps(report))
        return 1 if report["problems"] else 0
    if options.ask_head:
        return 0 if config.on_head else ask_head(config)
    delay = series.note_series_start(options.run_dir, time.time())
    if delay:
        say(f"several starts within {series.SERIES_SECONDS} s of one another: waiting {delay:g} s")
        if delay == series.FIRST_DELAY:
            # once in a series: Ray gives its raylet 30 s, and compiling takes a busy host longer
            series.remove_bytecode(config.environment.get("PYTHONPYCACHEPREFIX", ""), say)
        time.sleep(delay)
    if config.on_head:
        former_head.stay_down(tell=say)
    remains = leftovers(read_processes(), settings.temp_dir, owner_of(settings.temp_dir), os.getpid())
    if remains:
        say("ending leftovers of a former Ray: " + ", ".join(f"{p.pid} {p.command[:60]}" for p in remains))
        end_processes(remains)
    clean_temp_dir(settings.temp_dir)
    if not wait_until(lambda: is_local(config.node_address), 20):
        say(f"the control address {config.node_address} is on no interface of this host: check its fabric port")
        return NOT_NOW
    for port, name in settings.own_ports(config.on_head):
        if not wait_until(functools.partial(_port_is_free, port), 5):
            say(f"port {port} ({name}) is taken by another program on this host: ss -ltnp 'sport = :{port}'")
            return NOT_NOW
    token = ray_config.read_token(config)
    if config.auth and not token:
        say(f"there is no Ray token in {config.token_path}: run the ray roles")
        return NOT_NOW
    if not config.on_head:
        wait_for_head(config)
        if not config.in_container:
            return ask_head(config)
    return 0
