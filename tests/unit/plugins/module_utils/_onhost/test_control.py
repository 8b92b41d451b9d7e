# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import control as serving_control
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import places, serving

from tests.unit.plugins.module_utils.serving_head import Engine, Systemd


def control(tmp_path: Path, config: str, systemd: Systemd, check: bool = False) -> serving_control.Control:
    return serving_control.Control(
        check=check,
        config_path=config,
        draining=str(tmp_path / "draining"),
        marker=str(tmp_path / "maintenance"),
        markers=(str(tmp_path / "maintenance"), str(tmp_path / "maintenance2")),
        runner=systemd,
        connections=lambda path: 0,
        sleep=lambda seconds: None,
    )


def test_stop_and_start(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    predicted = control(tmp_path, config, systemd, check=True).apply("stopped", "cables", 0)
    assert predicted.changed
    assert not (tmp_path / "maintenance").exists()
    assert systemd.calls == []
    done = control(tmp_path, config, systemd).apply("stopped", "cables", 0)
    assert done.steps == predicted.steps
    assert places.maintenance([str(tmp_path / "maintenance")]) == "cables"
    assert (systemd.enabled, systemd.unit["ActiveState"]) == (False, "inactive")
    assert control(tmp_path, config, systemd).apply("stopped", "cables", 0).changed is False
    (tmp_path / "draining").touch()
    started = control(tmp_path, config, systemd).apply("started", "", 0)
    assert started.changed
    assert (systemd.enabled, systemd.unit["ActiveState"]) == (True, "activating")
    assert not (tmp_path / "maintenance").exists()
    assert not (tmp_path / "draining").exists()
    assert control(tmp_path, config, systemd).apply("started", "", 0).changed is False


def test_restart_after_stop_serves_after_a_reboot_too(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    control(tmp_path, config, systemd).apply("stopped", "cables", 0)
    predicted = control(tmp_path, config, systemd, check=True).apply("restarted", "", 0)
    assert (systemd.enabled, systemd.unit["ActiveState"]) == (False, "inactive")
    done = control(tmp_path, config, systemd).apply("restarted", "", 0)
    assert done.steps == predicted.steps
    assert (systemd.enabled, systemd.unit["ActiveState"]) == (True, "activating")
    assert not (tmp_path / "maintenance").exists()
    again = control(tmp_path, config, systemd).apply("restarted", "", 0)
    assert [step for step in again.steps if step.startswith("enable")] == []


def test_a_restart_that_cannot_drain_leaves_what_was_said(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    systemd.enabled = False
    (tmp_path / "maintenance").write_text("cables\n")
    engine.metrics = 'vllm:num_requests_running{engine="0"} 2.0\n'
    one = control(tmp_path, config, systemd)
    clock = iter(range(0, 1000, 10))
    one.clock = lambda: float(next(clock))
    with pytest.raises(serving_control.ControlError, match="still running"):
        one.apply("restarted", "", 30)
    assert not systemd.enabled
    assert (tmp_path / "maintenance").exists()


def test_drain_waits_for_running_requests(engine: Engine, tmp_path: Path, config: str) -> None:
    engine.metrics = 'vllm:num_requests_running{engine="0"} 2.0\nvllm:num_requests_waiting{engine="0"} 1.0\n'
    group = control(tmp_path, config, Systemd())
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == 3:
            engine.metrics = 'vllm:num_requests_running{engine="0"} 0.0\n'

    group.sleep = sleep
    outcome = group.apply("drained", "", 60)
    # once more after the first round without requests
    assert (outcome.changed, outcome.in_flight, len(sleeps)) == (True, 0, 4)
    assert (tmp_path / "draining").exists()
    assert control(tmp_path, config, Systemd()).apply("drained", "", 60).changed is False


def test_drain_sees_a_request_that_the_gauges_do_not_show(engine: Engine, tmp_path: Path, config: str) -> None:
    """A lone request in its first step: vLLM's gauges say 0, its connection is open."""
    group = control(tmp_path, config, Systemd())
    # the request, the front proxy that hands on one more, and the watchdog's own probe
    seen = iter([1, 1, 0, 1, 0, 1, 0, 0])
    asked: list[str] = []

    def connections(path: str) -> int:
        asked.append(path)
        return next(seen)

    group.connections = connections
    outcome = group.apply("drained", "", 60)
    assert (outcome.in_flight, len(asked)) == (0, 8)
    assert set(asked) == {engine.path}
    late = control(tmp_path, config, Systemd())
    late.connections = lambda path: 1
    clock = iter(range(0, 1000, 10))
    late.clock = lambda: float(next(clock))
    with pytest.raises(serving_control.ControlError, match="1 requests are still running after 30 s"):
        late.apply("drained", "", 30)


def test_drain_of_an_engine_without_gauges(engine: Engine, tmp_path: Path, config: str) -> None:
    engine.metrics = "python_info 1.0\n"
    assert control(tmp_path, config, Systemd()).apply("drained", "", 60).in_flight == 0
    blind = control(tmp_path, config, Systemd())
    blind.connections = lambda path: None
    clock = iter(range(0, 1000, 10))
    blind.clock = lambda: float(next(clock))
    with pytest.raises(serving_control.ControlError, match="an unknown number of requests"):
        blind.apply("drained", "", 30)


def test_drain_that_does_not_end_says_what_is_left(engine: Engine, tmp_path: Path, config: str) -> None:
    engine.metrics = 'vllm:num_requests_running{engine="0"} 2.0\n'
    one = control(tmp_path, config, Systemd())
    clock = iter(range(0, 1000, 10))
    one.clock = lambda: float(next(clock))
    with pytest.raises(serving_control.StillRunning, match="2 requests are still running after 30 s"):
        one.apply("drained", "", 30)


def test_unit_that_is_not_there(tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    systemd.unit["LoadState"] = "not-found"
    with pytest.raises(serving_control.ControlError, match="vllm_serve role"):
        control(tmp_path, config, systemd).apply("started", "", 0)


def test_a_group_beside_another_is_moved_by_its_own_files() -> None:
    own, beside = (serving_control.of_group(group, check=True) for group in ("", "embed"))
    assert (own.config_path, own.draining, own.markers) == (serving.CONFIG, serving.DRAINING, serving.MAINTENANCE)
    assert own.marker == serving.MAINTENANCE[0]
    assert beside.config_path == "/etc/sparkthor/beside/embed/serving.json"
    assert beside.draining == "/run/sparkthor/beside/embed/draining"
    assert (beside.marker, beside.check) == ("/var/lib/sparkthor/beside/embed/maintenance", True)


def test_a_restart_that_waits_for_requests_takes_new_ones_again(
    engine: Engine, tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert serving_control.drained_restart("embed", 0) is None
    systemd, seen = Systemd(), []
    engine_group = control(tmp_path, config, systemd)
    engine_group.connections = lambda _path: seen.append((tmp_path / "draining").exists()) or 0
    monkeypatch.setattr(serving_control, "of_group", lambda group, check: engine_group)
    restart = serving_control.drained_restart("embed", 30)
    assert restart is not None
    assert restart() == ""
    assert seen == [True, True]
    assert ["--no-block", "restart", "sparkthor-vllm.service"] in systemd.calls
    assert not (tmp_path / "draining").exists()
    engine.metrics, engine_group.runner = 'vllm:num_requests_running{engine="0"} 2.0\n', Systemd()
    clock = iter(range(0, 1000, 10))
    engine_group.clock = lambda: float(next(clock))
    assert "2 requests are still running after 30 s" in restart()


@pytest.fixture
def pair(engine: Engine, tmp_path: Path, config: str) -> tuple[serving_control.Control, serving_control.Control]:
    """The host's own group, and one that takes turns with it."""
    given = json.loads(Path(config).read_text())
    found = []
    for name, more in (("own", {"on_demand_groups": {"embed": {}}}), ("embed", {"on_demand": True})):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "serving.json"
        path.write_text(json.dumps({**given, **more}))
        one = control(tmp_path / name, str(path), Systemd())
        one.lock = str(tmp_path / "lock")
        found.append(one)
    own, embed = found
    own.other = lambda name, check: embed
    assert isinstance(embed.runner, Systemd)
    embed.runner.enabled = False
    embed.runner.unit.update(ActiveState="inactive", SubState="dead")
    return own, embed


def active(one: serving_control.Control) -> tuple[str, bool]:
    assert isinstance(one.runner, Systemd)
    return one.runner.unit["ActiveState"], one.runner.enabled


def test_a_group_gives_way_and_comes_back(pair: tuple[serving_control.Control, serving_control.Control]) -> None:
    group, embed = pair
    group.give_way("embed")
    embed.wake()
    # enabled still: a reboot brings it back, and the marker is gone by then
    assert (active(group), active(embed)) == (("inactive", True), ("activating", False))
    assert serving.asleep(group.markers) == "embed"
    # a site.yml meanwhile finds nothing to remove
    assert not Path(group.draining).exists()
    embed.fall_asleep()
    group.come_back()
    assert (active(group), active(embed)) == (("activating", True), ("inactive", False))
    assert places.maintenance(group.markers) is None
    assert not [path for one in pair for path in [one.draining] if Path(path).exists()]


def test_a_group_that_cannot_end_its_requests_goes_on(
    engine: Engine, pair: tuple[serving_control.Control, serving_control.Control]
) -> None:
    group, _embed = pair
    engine.metrics = 'vllm:num_requests_running{engine="0"} 2.0\n'
    clock = iter(range(0, 10000, 100))
    group.clock = lambda: float(next(clock))
    with pytest.raises(serving_control.ControlError, match="still running"):
        group.give_way("embed")
    assert active(group) == ("active", True)
    assert places.maintenance(group.markers) is None
    assert not Path(group.draining).exists()


@pytest.mark.parametrize("state", ["started", "restarted", "awake"])
def test_a_playbook_that_starts_the_own_group_sends_the_other_one_away(
    pair: tuple[serving_control.Control, serving_control.Control], state: str
) -> None:
    own, embed = pair
    own.give_way("embed")
    embed.wake()
    assert own.apply(state, "", 0).changed
    assert (active(own)[0], active(embed)) == ("activating", ("inactive", False))
    assert places.maintenance(own.markers) is None


def test_a_playbook_leaves_a_group_asleep(pair: tuple[serving_control.Control, serving_control.Control]) -> None:
    own, embed = pair
    for state in ("started", "restarted"):
        assert not embed.apply(state, "", 0).changed
    assert active(embed) == ("inactive", False)
    # nobody gives way, so nothing is to be done
    assert not own.apply("awake", "", 0).changed
    embed.apply("stopped", "cables", 0)
    assert embed.apply("started", "", 0).steps != []
    assert active(embed) == ("inactive", False)


@pytest.mark.parametrize("state", ["stopped", "restarted", "drained"])
def test_a_start_ends_a_drain_and_what_was_to_follow(engine: Engine, tmp_path: Path, config: str, state: str) -> None:
    """Somebody drains and will stop; another takes requests again meanwhile: nothing is stopped."""
    engine.metrics = 'vllm:num_requests_running{engine="0"} 2.0\n'
    systemd = Systemd()
    group = control(tmp_path, config, systemd)
    entered, ended = threading.Event(), list[Exception]()

    def sleep(seconds: float) -> None:
        entered.set()
        time.sleep(0.01)

    group.sleep = sleep

    def drain() -> None:
        try:
            group.apply(state, "cables", 60)
        except serving_control.ControlError as error:
            ended.append(error)

    other = threading.Thread(target=drain)
    other.start()
    assert entered.wait(10)
    control(tmp_path, config, systemd).apply("started", "", 0)
    other.join(10)
    [error] = ended
    assert str(error) == "somebody let new requests in again meanwhile; this drain ends and stops nothing"
    # the page would break off what did not end in time
    assert not isinstance(error, serving_control.StillRunning)
    assert [words for words in systemd.calls if words[1] in ("stop", "restart", "disable")] == []
    assert not (tmp_path / "draining").exists()
    assert not (tmp_path / "maintenance").exists()


def test_two_who_move_one_group_wait_for_each_other(
    engine: Engine, tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_control, "PATIENCE", 0.3)
    one = control(tmp_path, config, Systemd())
    with serving_control.alone(f"{one.draining}.lock") as mine:
        assert mine
        with pytest.raises(serving_control.ControlError, match="another command has been stopping or starting"):
            one.apply("restarted", "", 0)
    assert one.apply("restarted", "", 0).changed


def test_one_at_a_time_moves_groups(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with serving_control.alone(path) as mine, serving_control.alone(path, wait=False) as another:
        assert (mine, another) == (True, False)
    with serving_control.alone(path, wait=False) as mine:
        assert mine


@pytest.mark.parametrize("check", [False, True])
def test_nothing_sleeps_on_a_host_that_was_never_set_up(tmp_path: Path, check: bool) -> None:
    systemd = Systemd()
    systemd.unit["LoadState"] = "not-found"
    group = control(tmp_path, str(tmp_path / "none.json"), systemd, check)
    assert not group.apply("awake", "", 0).changed
    with pytest.raises(serving_control.ControlError, match="is not set up on this host"):
        group.apply("started", "", 0)
    # one that sleeps and cannot be woken is no success
    Path(group.markers[-1]).write_text("asleep: embed serves\n")
    with pytest.raises(serving_control.ControlError, match="is not set up on this host"):
        group.apply("awake", "", 0)
