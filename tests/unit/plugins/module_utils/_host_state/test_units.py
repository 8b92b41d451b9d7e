# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd units."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.units import parse_unit_show
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import (
    HostStateError,
)

from tests.unit.simulated_host import MARK, UNIT, FakeHost, write

PATH = "/etc/systemd/system/x.service"


def test_new_unit_is_written_enabled_and_started(host: FakeHost) -> None:
    done = host.converge(
        files=[{"path": PATH, "content": UNIT}],
        units=[{"name": "x", "enabled": True, "state": "started", "restart_on": [PATH]}],
    )
    assert host.verbs() == ["daemon-reload", "enable x.service", "start x.service"]
    assert done.changed_units == ["x.service"]
    assert done.restarted_units == []
    assert done.daemon_reloaded
    assert done.units["x.service"]["active"] == "active"
    assert done.units["x.service"]["enabled"] == "enabled"


def test_running_unit_restarts_when_its_file_changes(host: FakeHost) -> None:
    write(host, PATH, UNIT)
    host.unit("x.service", "active", "enabled")
    changed = UNIT.replace("true", "false")
    wanted = [{"name": "x.service", "enabled": True, "state": "started", "restart_on": ["/etc/systemd/system"]}]
    done = host.converge(files=[{"path": PATH, "content": changed}], units=wanted)
    assert host.verbs() == ["daemon-reload", "restart x.service"]
    assert done.restarted_units == ["x.service"]


def test_other_changes_reload_and_restart_nothing(host: FakeHost) -> None:
    host.unit("x.service", "active", "enabled")
    (host.root / "etc").mkdir()
    done = host.converge(
        files=[{"path": "/etc/other", "content": MARK}],
        units=[{"name": "x.service", "state": "started", "restart_on": ["/etc/oth", PATH]}],
    )
    assert host.verbs() == []
    assert done.changed_paths == ["/etc/other"]
    assert not done.changed_units
    assert not done.daemon_reloaded


DESKTOP = {"name": "display-manager.service", "state": "stopped", "optional": True}


def test_a_desktop_that_somebody_uses_goes_on_with_a_warning(host: FakeHost) -> None:
    host.unit("display-manager.service", "active", "alias", Id="gdm.service")
    host.session = "Name=ada\nType=wayland\nClass=user\nState=active\n"
    done = host.apply(units=[{**DESKTOP, "spare_desktop": True}])
    assert host.verbs() == []
    assert not done.changed
    (warning,) = done.warnings
    assert warning.startswith("gdm.service goes on, because ada is logged in on the desktop: reboot this host")
    host.apply(units=[{**DESKTOP, "spare_desktop": False}])
    assert host.verbs() == ["stop display-manager.service"]


def test_a_desktop_that_nobody_uses_ends_at_once(host: FakeHost) -> None:
    host.unit("display-manager.service", "active", "alias", Id="gdm.service")
    done = host.converge(units=[{**DESKTOP, "spare_desktop": True}])
    assert host.verbs() == ["stop display-manager.service"]
    assert done.warnings == []


def test_a_failed_unit_that_is_to_be_stopped_is_forgotten_as_failed(host: FakeHost) -> None:
    host.unit("x.service", "failed", "disabled")
    done = host.apply(units=[{"name": "x.service", "state": "stopped"}])
    assert host.verbs() == ["stop x.service", "reset-failed x.service"]
    assert done.changed_units == ["x.service"]
    assert "failed" in done.diff[0]["before"]


def test_stopped_unit_is_not_restarted_by_restart_on(host: FakeHost) -> None:
    host.unit("x.service", "inactive", "disabled")
    host.converge(files=[{"path": PATH, "content": UNIT}], units=[{"name": "x.service", "restart_on": [PATH]}])
    assert host.verbs() == ["daemon-reload"]


def test_reload_on(host: FakeHost) -> None:
    host.unit("x.service", "active", "enabled")
    host.converge(files=[{"path": "/etc/x", "content": MARK}], units=[{"name": "x.service", "reload_on": ["/etc/x"]}])
    assert host.verbs() == ["reload x.service"]


@pytest.mark.parametrize("defer", [False, True])
def test_a_reload_that_an_interrupted_run_owes(host: FakeHost, defer: bool) -> None:
    host.unit("x.service", "active", "enabled")
    unit = {"name": "x.service", "state": "started", "reload_on": ["/etc/x"]}
    files = {"files": [{"path": "/etc/x", "content": MARK}]}
    if defer:
        host.apply(**files, units=[{**unit, "defer": True}])
    else:
        host.fail["reload"] = "no space left"
        with pytest.raises(HostStateError, match=r"x\.service: reload failed"):
            host.apply(**files, units=[unit])
        host.fail.clear()
    assert host.apply(**files, units=[unit]).changed_units == ["x.service"]
    assert host.verbs()[-1] == "reload x.service"
    assert not host.apply(**files, units=[unit]).changed


def test_a_restart_pays_a_reload_that_is_owed(host: FakeHost) -> None:
    host.unit("x.service", "active", "enabled")
    unit = {"name": "x.service", "reload_on": ["/etc/x"]}
    host.fail["reload"] = "no space left"
    with pytest.raises(HostStateError, match="reload failed"):
        host.apply(files=[{"path": "/etc/x", "content": MARK}], units=[unit])
    host.fail.clear()
    host.apply(units=[{"name": "x.service", "state": "restarted"}])
    assert not host.apply(units=[unit]).changed


def test_a_deferred_unit_is_left_alone_and_its_restart_owed(host: FakeHost) -> None:
    unit = {"name": "x.service", "enabled": True, "state": "started", "restart_on": ["/etc/x.conf"]}
    host.unit("x.service", "active", "enabled")
    files = {"files": [{"path": "/etc/x.conf", "content": "1\n"}]}
    (host.root / "etc").mkdir()
    done = host.apply(**files, units=[{**unit, "defer": True}])
    assert done.deferred_units == {"x.service": "restart"}
    assert (done.changed_paths, done.changed_units, done.restarted_units) == (["/etc/x.conf"], [], [])
    assert host.verbs() == []
    # said again until it is done, whoever does it
    assert host.apply(**files, units=[{**unit, "defer": True}]).deferred_units == {"x.service": "restart"}
    assert host.apply(units=[unit]).restarted_units == ["x.service"]
    assert host.apply(**files, units=[{**unit, "defer": True}]).deferred_units == {}


def test_a_deferred_unit_that_does_not_run_is_to_be_started(host: FakeHost) -> None:
    host.unit("x.service", "inactive", "disabled")
    unit = {"name": "x.service", "enabled": True, "state": "started", "defer": True}
    done = host.apply(units=[unit])
    assert done.deferred_units == {"x.service": "start"}
    assert not done.changed
    assert host.apply(units=[{**unit, "state": None}]).deferred_units == {"x.service": "enable"}


def main_process(host: FakeHost, name: str, content: bytes) -> None:
    """What /proc says of process 77."""
    (host.root / "proc/77").mkdir(parents=True)
    (host.root / "proc/77" / name).write_bytes(content)


@pytest.mark.parametrize(
    ("given", "restarted"),
    [
        (b"A=1\0B=2 3\0", False),
        (b"A=1\0B=2 3\0C=4\0", False),
        (b"A=1\0B=2\0", True),
        (b"A=1\0", True),
        (b"XA=1\0B=2 3\0", True),
        (None, False),  # it ended meanwhile
    ],
)
def test_a_process_started_with_another_environment_is_restarted(host: FakeHost, given, restarted) -> None:
    host.unit("x.service", "active", "enabled", MainPID="77")
    if given is not None:
        main_process(host, "environ", given)
    unit = {"name": "x.service", "state": "started", "environment": {"A": 1, "B": "2 3"}, "defer": True}
    assert host.apply(units=[unit]).deferred_units == ({"x.service": "restart"} if restarted else {})


@pytest.mark.parametrize(
    ("command", "restarted"),
    [
        (b"/opt/venvs/a.1/bin/python\0/opt/venv/bin/ray\0", False),
        (b"/opt/venv/bin/python\0/opt/venv/bin/ray\0", False),
        (b"/opt/venvs/a.0/bin/python\0/opt/venv/bin/ray\0", True),
        (b"/opt/venvs/a.10/bin/python\0/opt/venv/bin/ray\0", True),
        (b"/opt/venvs/a.gone/bin/python\0", True),
        (b"ray: renamed itself\0", False),
        (b"", False),
        (None, False),  # it ended meanwhile
    ],
)
def test_a_process_from_another_folder_than_the_link_leads_to_is_restarted(host: FakeHost, command, restarted) -> None:
    host.unit("x.service", "active", "enabled", MainPID="77")
    for name in ("a.0", "a.1", "a.10"):
        (host.root / "opt/venvs" / name / "bin").mkdir(parents=True)
        (host.root / "opt/venvs" / name / "bin/python").symlink_to("/usr/bin/python3")
    (host.root / "opt/venv").symlink_to("venvs/a.1")
    if command is not None:
        main_process(host, "cmdline", command)
    unit = {"name": "x.service", "state": "started", "program_from": "/opt/venv", "defer": True}
    assert host.apply(units=[unit]).deferred_units == ({"x.service": "restart"} if restarted else {})


def test_a_process_that_is_only_being_started_is_not_asked_where_it_lies(host: FakeHost) -> None:
    host.unit("x.service", "activating", "enabled", MainPID="77")
    main_process(host, "cmdline", b"/usr/lib/systemd/systemd-executor\0")
    unit = {"name": "x.service", "state": "started", "program_from": "/opt/venv", "defer": True}
    assert host.apply(units=[unit]).deferred_units == {}


def test_a_unit_without_a_process_is_not_asked_what_it_was_started_with(host: FakeHost) -> None:
    host.unit("x.service", "activating", "enabled", MainPID="0")
    started_with = {"environment": {"A": "1"}, "program_from": "/opt/venv"}
    host.apply(units=[{"name": "x.service", "state": "started", **started_with}])
    assert host.verbs() == []


def test_restart_owed_by_an_interrupted_run(host: FakeHost) -> None:
    host.unit("x.service", "active", "enabled")
    wanted = {
        "files": [{"path": "/etc/x", "content": MARK}],
        "units": [{"name": "x.service", "restart_on": ["/etc/x"]}],
    }
    host.fail["restart"] = "Connection reset"
    with pytest.raises(HostStateError, match=r"x\.service: restart failed"):
        host.apply(**wanted)
    host.fail.clear()
    assert host.apply(**wanted).restarted_units == ["x.service"]
    assert not host.apply(**wanted).changed


@pytest.mark.parametrize("stopped", [False, True])
def test_a_start_pays_a_restart_that_is_owed(host: FakeHost, stopped: bool) -> None:
    host.unit("x.service", "active", "enabled")
    unit = {"name": "x.service", "state": "started", "restart_on": ["/etc/x"]}
    wanted = {"files": [{"path": "/etc/x", "content": MARK}], "units": [unit]}
    host.fail["restart"] = "bad configuration"
    with pytest.raises(HostStateError, match=r"x\.service: restart failed"):
        host.apply(**wanted)
    host.fail.clear()
    if stopped:
        host.apply(units=[{"name": "x.service", "state": "stopped"}])
        host._verb("start", "x.service")  # by hand
    else:
        host.units["x.service"]["ActiveState"] = "failed"
        assert host.apply(**wanted).restarted_units == []
    # the files that it was started with are these
    assert host.units["x.service"]["ActiveState"] == "active"
    assert not host.apply(**wanted).changed


def test_daemon_reload_when_systemd_says_so(host: FakeHost) -> None:
    host.unit("x.service", "active", "enabled", NeedDaemonReload="yes")
    assert host.converge(units=[{"name": "x.service", "state": "started"}]).daemon_reloaded
    assert host.verbs() == ["daemon-reload"]


def test_unit_is_stopped_before_its_file_goes(host: FakeHost) -> None:
    write(host, PATH, UNIT)
    host.unit("x.service", "active", "enabled")
    present = []
    real = host.run

    def run(argv: list[str], timeout: float) -> tuple[int, str, str]:
        if argv[1] in ("stop", "disable"):
            present.append((host.root / PATH.lstrip("/")).exists())
        return real(argv, timeout)

    host.run = run  # type: ignore[method-assign]
    host.apply(absent=[PATH], units=[{"name": "x.service", "state": "stopped", "enabled": False}])
    assert present == [True, True]
    assert host.verbs() == ["stop x.service", "disable x.service", "daemon-reload"]


def test_missing_unit_that_is_to_be_stopped_is_fine(host: FakeHost) -> None:
    assert not host.apply(units=[{"name": "gone.service", "state": "stopped", "enabled": False}]).changed


def test_missing_unit(host: FakeHost) -> None:
    wanted = {"units": [{"name": "gone.service", "enabled": True, "state": "started"}]}
    predicted = host.apply(check=True, **wanted)
    assert predicted.changed_units == ["gone.service"]
    assert "gone.service does not exist on this host yet" in predicted.warnings[0]
    with pytest.raises(HostStateError, match=r"gone\.service does not exist on this host; install"):
        host.apply(**wanted)
    wanted["units"][0]["optional"] = True
    assert not host.apply(**wanted).changed


def test_masking(host: FakeHost) -> None:
    host.unit("sleep.target", "inactive", "static")
    host.unit("apt-daily.timer", "active", "enabled")
    done = host.converge(units=[{"name": "sleep.target", "masked": True}, {"name": "apt-daily.timer", "masked": True}])
    assert host.verbs() == ["stop apt-daily.timer", "mask sleep.target apt-daily.timer"]
    assert done.changed_units == ["sleep.target", "apt-daily.timer"]
    host.converge(units=[{"name": "sleep.target", "masked": False}])
    assert host.verbs() == ["unmask sleep.target"]


def test_optional_unit_that_somebody_masked_stays_masked(host: FakeHost) -> None:
    host.unit("x.service", "inactive", "masked", LoadState="masked")
    assert not host.apply(units=[{"name": "x.service", "state": "started", "optional": True}]).changed


def test_masked_unit_that_should_run(host: FakeHost) -> None:
    host.unit("x.service", "inactive", "masked", LoadState="masked")
    with pytest.raises(HostStateError, match=r"x\.service is masked on this host"):
        host.apply(units=[{"name": "x.service", "state": "started"}])
    host.converge(units=[{"name": "x.service", "state": "started", "enabled": True, "masked": False}])
    assert host.verbs() == ["unmask x.service", "enable x.service", "start x.service"]


def test_unit_without_install_section(host: FakeHost) -> None:
    text = MARK + "[Service]\nExecStart=/bin/true\n"
    for check in (True, False):
        with pytest.raises(HostStateError, match=r"has no \[Install\] section"):
            host.apply(check=check, files=[{"path": PATH, "content": text}], units=[{"name": "x", "enabled": True}])


def test_failed_unit_is_reset_and_started(host: FakeHost) -> None:
    host.unit("x.service", "failed", "enabled")
    host.converge(units=[{"name": "x.service", "state": "started"}])
    assert host.verbs() == ["reset-failed x.service", "start x.service"]


def test_optional_unit_whose_condition_fails_is_asked_once(host: FakeHost) -> None:
    unmet = {"ConditionResult": "no", "ConditionTimestampMonotonic": "4711"}
    host.unit("timesyncd.service", "inactive", "enabled", **unmet)
    wanted = {"name": "timesyncd.service", "state": "started"}
    assert not host.apply(units=[{**wanted, "optional": True}]).changed
    assert host.apply(units=[wanted]).changed_units == ["timesyncd.service"]
    host.unit("timesyncd.service", "inactive", "enabled", **{**unmet, "ConditionTimestampMonotonic": "0"})
    assert host.apply(units=[{**wanted, "optional": True}]).changed_units == ["timesyncd.service"]


def test_failure_carries_the_journal(host: FakeHost) -> None:
    host.unit("x.service", "inactive", "enabled")
    host.fail["start"] = "Job for x.service failed."
    with pytest.raises(HostStateError, match=r"x\.service: start failed \(1\): Job for x(?s:.*)exec format error"):
        host.apply(units=[{"name": "x.service", "state": "started"}])


def test_no_block(host: FakeHost) -> None:
    host.unit("x.service", "inactive", "enabled")
    host.converge(units=[{"name": "x.service", "state": "started", "no_block": True}])
    assert ["systemctl", "start", "--no-block", "--", "x.service"] in host.calls


def test_template_instance_of_a_new_template(host: FakeHost) -> None:
    template = "/etc/systemd/system/x@.service"
    predicted = host.apply(
        check=True, files=[{"path": template, "content": UNIT}], units=[{"name": "x@a.service", "enabled": True}]
    )
    assert predicted.changed_units == ["x@a.service"]
    assert predicted.warnings == []


def test_show_with_too_few_blocks() -> None:
    with pytest.raises(HostStateError, match="answered 1 blocks for 2 units"):
        parse_unit_show("Id=a\n", ["a", "b"])


def test_no_units_means_no_command(host: FakeHost) -> None:
    host.apply(files=[{"path": "/etc/x", "content": MARK}])
    assert host.calls == []
