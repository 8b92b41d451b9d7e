# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One copy to three hosts by the role, over a fabric and through a firewall that the roles made."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from tests.unit.hub_stand_in import COMMIT, Models, hub_of

from .conftest import MIB, STORE, Model, Site

#: what 200 files on three hosts may add to a run that changes nothing
SECOND_RUN_SECONDS = 3.0


def all_task_seconds(output: str) -> float:
    """What the tests' own callback says all tasks of a run took: preflight compares too, so no role's own would do."""
    return sum(float(found) for found in re.findall(r"^task-seconds ([0-9.]+) ", output, re.MULTILINE))


def test_a_model_reaches_three_hosts_and_a_second_run_moves_nothing(site: Site, model: Model) -> None:
    model.add("model-00001-of-00002.safetensors", 40 * MIB + 12345)
    model.add("model-00002-of-00002.safetensors", 24 * MIB)
    model.add("empty.json", 0)
    for number in range(197):
        model.add(f"shards/{number:03}.bin", 1000 + number)
    run = site.play(model, tags="network,model_store")
    assert run.rc == 0, run.output
    site.check_everywhere(model)
    head, *others = site.hosts
    # the controller sent it once, to the head; the others have it from the host before them, over the fabric
    assert re.findall(r"^(\S+): models: [0-9.]+ MiB in", run.output, re.MULTILINE) == [head]
    for host in others:
        report = site.report(host)
        assert (report["state"], report["received"], report["refused"]) == ("done", model.size, {})
        assert re.search(rf"^sparkthor: {host}: [0-9.]+ MiB in [0-9.]+ s \([0-9.]+ MiB/s\)$", run.output, re.MULTILINE)
    assert site.report(head)["sent"] == model.size
    assert (site.report(others[0])["upstream"], site.report(others[1])["upstream"]) == (head, others[0])
    # nothing of the copy stays behind: no process, no open port, no key
    for host in site.hosts:
        assert site.on(host, "ss -Hltn sport = :29870; ls /run/sparkthor-fanout; ls -A " + STORE).split() == [
            "fanout.pyz", "status.json", ".records", model.name, site.revision(host, model.name)
        ]  # fmt: skip
    assert list((site.cache / "sparkthor/fanout").iterdir()) == []

    site.forget_reports()
    again = site.play(model)
    assert again.rc == 0, again.output
    assert set(re.findall(r"changed=(\d+)", again.output)) == {"0"}
    assert all(site.report(host) == {} for host in site.hosts)
    none = site.play()
    assert none.rc == 0, none.output
    seconds, without = all_task_seconds(again.output), all_task_seconds(none.output)
    print(f"second run, {len(model.digests)} files: {seconds:.2f} s; without a model: {without:.2f} s")
    assert without > 0
    assert seconds - without <= SECOND_RUN_SECONDS


def test_a_new_revision_is_sent_by_its_changed_files_and_leaves_the_old_one(site: Site, model: Model) -> None:
    model.add("model.safetensors", 8 * MIB)
    model.add("config.json", 200)
    # as an earlier version left it on the hosts, of which one has lost the weights
    first = site.play(model)
    assert first.rc == 0, first.output
    old = {host: site.revision(host, model.name) for host in site.hosts}
    assert len(set(old.values())) == 1
    for host in site.hosts:
        site.on(host, f"cd {STORE}; rm {model.name}; mv {old[host]} {model.name}; cd .records; "
                      f"mv {old[host]}.json {model.name}.json")  # fmt: skip
    weights = {host: site.on(host, f"stat -c %i {STORE}/{model.name}/model.safetensors") for host in site.hosts}
    adopted = site.play(model)
    assert adopted.rc == 0, adopted.output
    assert {host: site.revision(host, model.name) for host in site.hosts} == old
    site.check_everywhere(model)
    assert set(re.findall(r"changed=(\d+)", site.play(model).output)) == {"0"}

    before = dict(model.digests)
    model.add("config.json", 300)
    changed = site.play(model)
    assert changed.rc == 0, changed.output
    site.check_everywhere(model)
    for host in site.hosts:
        assert site.digests(host, old[host]) == before
        new = site.revision(host, model.name)
        assert new != old[host]
        for folder in (new, old[host]):
            assert site.on(host, f"stat -c %i {STORE}/{folder}/model.safetensors") == weights[host]
    assert re.findall(r"models: ([0-9.]+ [KM]?i?B) in", changed.output) == ["300 B"]
    assert set(re.findall(r"changed=(\d+)", site.play(model).output)) == {"0"}

    # a host that is away keeps all others at the revision that they have
    model.add("config.json", 400)
    last = site.hosts[-1]
    now = site.revision(site.hosts[0], model.name)
    site.on(last, f"rm -rf {STORE}/.incoming; touch {STORE}/.incoming")
    broken = site.play(model)
    site.on(last, f"rm {STORE}/.incoming")
    assert broken.rc != 0
    assert {site.revision(host, model.name) for host in site.hosts} == {now}
    assert site.play(model).rc == 0
    site.check_everywhere(model)
    # two are kept, and the oldest went when the third came
    assert all(not site.visible(host, old[host]) and site.visible(host, now) for host in site.hosts)


def test_weights_in_a_hosts_hub_cache_are_not_fetched_again(
    site: Site, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub is on the controller's loopback address, and counts what it is asked for."""
    model.add("model.safetensors", 24 * MIB)
    model.add("config.json", 200)
    hub = Models({"owner/tiny": {name: (model.folder / name).read_bytes() for name in model.digests}})
    _head, owner, last = site.hosts
    cache = "/home/nvidia/.cache/huggingface/hub"
    blob = f"{cache}/models--owner--tiny/blobs/{model.digests['model.safetensors']}"
    packed = base64.b64encode((model.folder / "model.safetensors").read_bytes()).decode()
    placed = f"install -d -o nvidia {blob.rpartition('/')[0]} && base64 -d > {blob} && chown -R nvidia /home/nvidia"
    site.lab.exec(owner, ["bash", "-c", placed], stdin=packed)
    declared = {"name": model.name, "source": "owner/tiny", "revision": COMMIT}
    monkeypatch.setenv("HF_HOME", str(tmp_path / "theirs"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    try:
        with hub_of(hub) as url:
            monkeypatch.setenv("HF_ENDPOINT", url)
            run = site.play(declared)
        assert run.rc == 0, run.output
        site.check_everywhere(model)
        assert hub.sent == ["owner/tiny/config.json"]
        assert f"24.0 MiB are in a hub cache of {owner} and taken from there; to fetch" in run.output
        assert f"{owner}: models: 24.0 MiB from {cache} there" in run.output
        # the last one lacked both files, and has them over the fabric
        assert (site.report(last)["state"], site.report(last)["received"]) == ("done", model.size)
        # nobody but its user touches the cache, and the hub is asked no more
        assert site.on(owner, f"stat -c '%U %h' {blob}").split() == ["nvidia", "1"]
        again = site.play(declared)
        assert again.rc == 0, again.output
        assert set(re.findall(r"changed=(\d+)", again.output)) == {"0"}
    finally:
        site.on(owner, f"rm -rf {cache}")
