# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role ``os_hardening`` puts on a host, by area, and what its teardown takes back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.sandbox import sandbox
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import unit_name
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.environment_file import MARKER
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.host_state import (
    File,
    HostState,
    merged,
    role_file,
)

_SYSTEMD = "/etc/systemd/system"
_POWER_UNIT = "sparkthor-jetson-power.service"
_CLOCK_UNIT = "sparkthor-gpu-clock.service"
#: areas that only one kind of host has
_OF_KIND = {"thor_power": "thor", "gpu_clock": "spark"}
#: what the role masks by itself: who takes one off the list wants it back; what somebody else masked stays so
_MASKED = ("apt-daily-upgrade.timer", "fwupd-refresh.timer", "packagekit-offline-update.service")
_SLEEP = ("sleep", "suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate")


@dataclass(frozen=True)
class HardeningSettings:
    """Variables of the role."""

    os_hardening_headless: bool
    os_hardening_headless_isolate: bool
    os_hardening_swap: bool
    os_hardening_swap_swappiness: int
    os_hardening_memlock: bool
    os_hardening_drop_caches: bool
    os_hardening_core_dumps: bool
    os_hardening_core_dumps_max: str
    os_hardening_core_dumps_total: str
    os_hardening_tmp: bool
    os_hardening_tmp_age: str
    os_hardening_oom: bool
    os_hardening_oom_ssh: int
    os_hardening_oom_journald: int
    os_hardening_updates: bool
    os_hardening_updates_masked_units: list[str]
    os_hardening_updates_excluded: list[str]
    os_hardening_suspend: bool
    os_hardening_hold: bool
    os_hardening_hold_packages: list[str]
    os_hardening_time_sync: bool
    os_hardening_time_sync_units: list[str]
    os_hardening_earlyoom: bool
    os_hardening_earlyoom_min_free_percent: int
    os_hardening_earlyoom_avoid: list[str]
    os_hardening_earlyoom_prefer: list[str]
    os_hardening_thor_power: bool
    os_hardening_thor_power_mode: int
    os_hardening_gpu_clock: bool
    os_hardening_gpu_clock_max: int


def areas(given: HardeningSettings) -> dict[str, HostState]:
    """What each area puts on a host, whether it is switched on or not."""
    return {**_boot_and_memory(given), **_limits(given), **_packages(given), **_services(given)}


def active(given: HardeningSettings, kind: str, run_tags: Sequence[str], skip_tags: Sequence[str]) -> list[str]:
    """The areas of this run.

    All areas are one task, because a task costs more than its work. So a tag picks areas inside it, and a tag that is
    skipped is none of the task's (tasks/main.yml).
    """
    picked, skipped = _named(run_tags), _named(skip_tags)
    return [
        area
        for area in areas(given)
        if getattr(given, f"os_hardening_{area}")
        and kind == _OF_KIND.get(area, kind)
        and (area in picked or not picked)
        and area not in skipped
    ]


def plan_hardening(
    given: HardeningSettings, kind: str, run_tags: Sequence[str], skip_tags: Sequence[str]
) -> dict[str, Any]:
    """For host_state: ``state``, and ``undo`` for the teardown, which takes back all areas."""
    every = areas(given)
    chosen = active(given, kind, run_tags, skip_tags)
    return {"state": merged(every[area] for area in chosen).arguments(), "undo": _undo(merged(every.values()))}


def _named(tags: Collection[str]) -> list[str]:
    return [tag.removeprefix("os_hardening_") for tag in tags if tag.startswith("os_hardening_")]


def _undo(state: HostState) -> dict[str, Any]:
    masked = [unit_name(unit["name"]) for unit in state.units if "masked" in unit]
    paths = [item["path"] for item in (*state.files, *state.links)]
    own = (_POWER_UNIT, _CLOCK_UNIT)
    # of others, whom a role enabled and started; a desktop starts with the next boot
    started = [
        name for unit in state.units if unit.get("state") == "started" and (name := unit_name(unit["name"])) not in own
    ]
    return {
        "restore": [*paths, *state.sysctls, *masked, *state.restore, *started],
        "units": [{"name": name, "enabled": False, "state": "stopped"} for name in own],
    }


def _file(path: str, *lines: str) -> File:
    return {"path": path, "content": "\n".join([MARKER, *lines, ""])}


def _boot_and_memory(given: HardeningSettings) -> dict[str, HostState]:
    # The alias leads to whichever display manager is installed; on a host without one there is nothing to stop.
    # Isolating the target would also stop what others started by hand.
    spare = not given.os_hardening_headless_isolate
    desktop = {"name": "display-manager.service", "state": "stopped", "optional": True, "spare_desktop": spare}
    target = {"path": f"{_SYSTEMD}/default.target", "target": "/usr/lib/systemd/system/multi-user.target"}
    swappiness = given.os_hardening_swap_swappiness
    script = "/usr/local/lib/sparkthor/sparkthor-drop-caches"
    unit = _file(
        f"{_SYSTEMD}/sparkthor-drop-caches.service",
        *("[Unit]", "Description=Free the clean page cache before an engine start"),
        *("Documentation=man:proc_sys_vm(5)", ""),
        *("[Service]", "Type=oneshot", f"ExecStart={script}", "TimeoutStartSec=300"),
        # the script writes to one of the kernel's tunables
        sandbox(families=["none"], writable=["/run/sparkthor"], without=["ProtectKernelTunables"]),
    )
    return {
        "headless": HostState(links=[target], units=[desktop]),
        "swap": HostState(
            files=[_file("/etc/sysctl.d/60-sparkthor.conf", f"vm.swappiness = {swappiness}")],
            sysctls={"vm.swappiness": swappiness},
        ),
        "memlock": HostState(
            files=[
                # PAM sessions only; the wildcard does not mean root
                _file("/etc/security/limits.d/60-sparkthor.conf", "* - memlock unlimited", "root - memlock unlimited"),
                _file("/etc/systemd/system.conf.d/60-sparkthor.conf", "[Manager]", "DefaultLimitMEMLOCK=infinity"),
            ]
        ),
        "drop_caches": HostState(files=[role_file("os_hardening", "sparkthor-drop-caches", script, "0755"), unit]),
    }


def _limits(given: HardeningSettings) -> dict[str, HostState]:
    dump, age = given.os_hardening_core_dumps_max, given.os_hardening_tmp_age
    # people keep things in /var/tmp: without an age it is cleaned as the distribution does it, or not at all
    cleaned = [f"q /var/tmp 1777 root root {age}"] if age else []
    return {
        "core_dumps": HostState(
            files=[
                _file(
                    "/etc/systemd/coredump.conf.d/60-sparkthor.conf",
                    *("[Coredump]", f"ProcessSizeMax={dump}", f"ExternalSizeMax={dump}"),
                    f"MaxUse={given.os_hardening_core_dumps_total}",
                )
            ]
        ),
        "tmp": HostState(
            # Of two files that name one path the first by name counts, so this outranks the distribution's tmp.conf
            files=[
                _file(
                    "/etc/tmpfiles.d/60-sparkthor.conf",
                    *(*cleaned, "x /tmp/ray", "x /var/tmp/ray"),
                )
            ]
        ),
        "oom": HostState(
            files=[
                _file(
                    f"{_SYSTEMD}/ssh.service.d/60-sparkthor.conf",
                    "# Logins inherit this value. It must not make a job that was started by hand the last one to be "
                    "killed.",
                    *("[Service]", f"OOMScoreAdjust={given.os_hardening_oom_ssh}"),
                ),
                _file(
                    f"{_SYSTEMD}/systemd-journald.service.d/60-sparkthor.conf",
                    *("[Service]", f"OOMScoreAdjust={given.os_hardening_oom_journald}"),
                ),
            ]
        ),
    }


def _packages(given: HardeningSettings) -> dict[str, HostState]:
    listed = given.os_hardening_updates_masked_units
    upgrades = _file(
        "/etc/apt/apt.conf.d/60sparkthor",
        'Unattended-Upgrade::Automatic-Reboot "false";',
        'Unattended-Upgrade::Automatic-Reboot-WithUsers "false";',
        "Unattended-Upgrade::Package-Blacklist {",
        *(f'  "{package}";' for package in given.os_hardening_updates_excluded),
        "};",
    )
    # needrestart restarts services whose libraries were updated
    restarts = _file(
        "/etc/needrestart/conf.d/60-sparkthor.conf",
        *(f"$nrconf{{override_rc}}{{qr(^{name})}} = 0;" for name in ("sparkthor-", "docker", "containerd")),
    )
    return {
        "updates": HostState(
            files=[upgrades, restarts],
            units=[{"name": name, "masked": True, "optional": True} for name in listed],
            restore=[name for name in _MASKED if name not in map(unit_name, listed)],
        ),
        "suspend": HostState(units=[{"name": f"{name}.target", "masked": True} for name in _SLEEP]),
        "hold": HostState(
            files=[
                _file(
                    "/etc/apt/preferences.d/60-sparkthor",
                    *(f"Package: {' '.join(given.os_hardening_hold_packages)}", "Pin: release *", "Pin-Priority: -1"),
                )
            ]
        ),
    }


def _services(given: HardeningSettings) -> dict[str, HostState]:
    earlyoom = _file(
        "/etc/default/earlyoom",
        f'EARLYOOM_ARGS="-m {given.os_hardening_earlyoom_min_free_percent} -r 3600'
        f" --avoid '^({'|'.join(given.os_hardening_earlyoom_avoid)})$'"
        f" --prefer '^({'|'.join(given.os_hardening_earlyoom_prefer)})$'\"",
    )
    power = _file(
        f"{_SYSTEMD}/{_POWER_UNIT}",
        *("[Unit]", "Description=Full power and fixed clocks on a Jetson", "After=nvpmodel.service"),
        *("ConditionFileIsExecutable=/usr/bin/jetson_clocks", ""),
        *("[Service]", "Type=oneshot", "RemainAfterExit=yes"),
        "# Asks before a change that needs a reboot; without an answer it leaves the mode as it is",
        "# (found by the search path: releases differ in where it lies)",
        f"ExecStart=nvpmodel -m {given.os_hardening_thor_power_mode}",
        *("ExecStart=/usr/bin/jetson_clocks", "TimeoutStartSec=120"),
        # NVIDIA's programs change clocks and power all over /sys, so no more than this can be taken from them
        *("NoNewPrivileges=yes", "PrivateTmp=yes", "ProtectHome=yes", "RestrictSUIDSGID=yes", ""),
        *("[Install]", "WantedBy=multi-user.target"),
    )
    # the driver forgets the limit at each boot; -pl, a limit of power, does not exist on a GB10
    clock = _file(
        f"{_SYSTEMD}/{_CLOCK_UNIT}",
        *("[Unit]", "Description=Upper limit of the GPU's clock", "After=nvidia-persistenced.service", ""),
        *("[Service]", "Type=oneshot", "RemainAfterExit=yes", "TimeoutStartSec=60"),
        f"ExecStart=nvidia-smi --lock-gpu-clocks=0,{given.os_hardening_gpu_clock_max}",
        "ExecStop=nvidia-smi --reset-gpu-clocks",
        *("NoNewPrivileges=yes", "PrivateTmp=yes", "ProtectHome=yes", "ProtectSystem=strict", "RestrictSUIDSGID=yes"),
        *("", "[Install]", "WantedBy=multi-user.target"),
    )
    runs = {"enabled": True, "state": "started"}
    return {
        "gpu_clock": HostState(files=[clock], units=[{"name": _CLOCK_UNIT, **runs, "restart_on": [clock["path"]]}]),
        "time_sync": HostState(
            units=[{"name": name, **runs, "optional": True} for name in given.os_hardening_time_sync_units]
        ),
        "earlyoom": HostState(
            files=[earlyoom], units=[{"name": "earlyoom.service", **runs, "restart_on": [earlyoom["path"]]}]
        ),
        "thor_power": HostState(
            files=[power], units=[{"name": _POWER_UNIT, **runs, "optional": True, "restart_on": [power["path"]]}]
        ),
    }
