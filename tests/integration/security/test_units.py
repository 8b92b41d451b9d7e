# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What code that takes over a unit of ours finds: no way to more rights."""

from __future__ import annotations

import re

from tests.integration.security.conftest import Target
from tools import unit_exposure

#: per process: its unit, its name, and whether a set-uid program gives it nothing
NO_NEW_PRIVILEGES = r"""
for unit in $(systemctl list-units --plain --no-legend --state=active 'sparkthor-*.service' | awk '{print $1}'); do
  group=$(systemctl show -P ControlGroup $unit)
  # one that only ran and is over has none
  [ -n "$group" ] || continue
  for pid in $(cat $(find /sys/fs/cgroup$group -name cgroup.procs) 2>/dev/null); do
    echo $unit $(cat /proc/$pid/comm) $(awk '/^NoNewPrivs/ {print $2}' /proc/$pid/status)
  done
done
"""


def test_a_set_uid_program_gives_nobody_anything(target: Target) -> None:
    for host in target.hosts:
        rows = [line.split() for line in target.run(host, NO_NEW_PRIVILEGES).splitlines()]
        assert {"sparkthor-ray.service", "sparkthor-vllm.service"} & {row[0] for row in rows}
        assert [row for row in rows if row[-1] != "1"] == []


def test_no_unit_is_more_open_than_the_page_says(monitored: Target) -> None:
    listed = unit_exposure.table(unit_exposure.PAGE.read_text(encoding="utf-8"))
    seen = set()
    for host in monitored.hosts:
        units = monitored.run(host, "cd /etc/systemd/system && ls -1 sparkthor-*.service").split()
        for unit in set(units) & set(listed):
            shown = monitored.run(host, f"systemd-analyze security --no-pager {unit} | tail -1")
            found = re.search(r": ([\d.]+) ", shown)
            assert found, shown
            assert float(found[1]) <= listed[unit], f"{host}: {shown}"
            seen.add(unit)
    # the lab has no Prometheus, and one group has no virtual address; the unit tests look at those that are asked for
    elsewhere = {"sparkthor-prometheus.service", "sparkthor-address.service", *unit_exposure.ASKED_FOR}
    assert set(listed) - seen <= elsewhere


def test_what_speaks_to_strangers_is_not_root(target: Target) -> None:
    """nginx never, and of the watchdog only the part that does what is on its list."""

    def users(unit: str) -> list[str]:
        processes = f"/sys/fs/cgroup$(systemctl show -P ControlGroup {unit})/cgroup.procs"
        return target.run(target.head, f"for pid in $(cat {processes}); do stat -c %U /proc/$pid; done").split()

    assert set(users("sparkthor-front")) == {"sparkthor-front"}
    # a command that the root part runs at this moment is root's as well
    assert users("sparkthor-watchdog")[:2] == ["root", "sparkthor-watchdog"]


def test_the_watchdog_still_restarts_what_it_watches(target: Target) -> None:
    """Its unprivileged part asks, its root part does."""
    run = "systemctl show -P InvocationID sparkthor-vllm"
    before = target.run(target.head, run)
    target.run(target.head, "systemctl kill --signal=SIGSTOP sparkthor-vllm")
    begun = target.until(lambda: target.run(target.head, run) != before, 300, 2)
    print(f"\nrestarted after {begun:.0f} s", flush=True)
    target.serving()
    # it asks every few seconds, and may have asked just before the engine answered
    target.until(lambda: '"state": "serving"' in target.run(target.head, "cat /run/sparkthor/state.json"), 30)


def test_a_configuration_that_nginx_refuses_is_refused_without_root(target: Target) -> None:
    before = target.invocations("sparkthor-front")
    conf = "/etc/sparkthor/front/nginx.conf"
    target.run(target.head, f"cp -p {conf} /run/nginx.conf && echo broken >>{conf}")
    try:
        assert target.run(target.head, "systemctl reload sparkthor-front && echo reloaded", check=False) == ""
    finally:
        target.run(target.head, f"cp -p /run/nginx.conf {conf} && systemctl reload sparkthor-front")
    assert target.invocations("sparkthor-front") == before
    assert target.complete().status == 200


def test_the_engine_is_closed_to_homes_and_the_kernel(target: Target) -> None:
    """As a Ray job, or code of a model, would try: inside the unit's own name space."""
    inside = (
        "nsenter --target $(systemctl show -P MainPID sparkthor-ray) --mount "
        "setpriv --reuid=sparkthor --regid=sparkthor --clear-groups"
    )
    notes = "/home/somebody/notes"
    for host in target.hosts:
        target.run(host, f"mkdir -p {notes.rpartition('/')[0]} && echo kept >{notes} && chmod -R a+rwX /home/somebody")
        for attack in (
            f"cat {notes}",
            "touch /usr/local/lib/sparkthor/planted /etc/sparkthor/planted",
            "ls /usr/lib/modules/$(uname -r)",
            "sh -c 'echo 1 > /proc/sys/vm/drop_caches'",
        ):
            assert target.run(host, f"{inside} {attack} 2>/dev/null && echo done", check=False) == "", attack
        assert target.run(host, f"cat {notes}; rm -r /home/somebody").strip() == "kept"
