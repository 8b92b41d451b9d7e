# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``engine``: documented in plugins/modules/engine.py."""

from __future__ import annotations

import os
import time
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image_host, image_share
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError, Pin, Target
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.venv import interesting
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import fanout, images, push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import wheels as _wheels
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import IMAGES, Record

VENV = "/opt/sparkthor/venv"
WORK_DIR = "/opt/sparkthor"
#: archive, then wheels, then done; more rounds mean that something does not arrive
ROUNDS = 6
#: variables of the role: what each host lacks, and what the one that pulled the image wrote for the others
RESULTS, PULLED = "__engine_installed", "__engine_pulled"
#: seconds between two questions to a pull, and between two lines about it
ASK_EVERY, TELL_EVERY = 2.0, 10.0
#: questions in a row that may stay without an answer: an empty one does not say that the pull has ended
UNANSWERED = 30


class ActionModule(push.StoreAction):
    MODULE = "engine"
    FACTS = ("sparkthor_engine",)
    # which folder of the controller goes to all hosts, and where it goes
    OWN = frozenset(("wheels", "sent_bytes"))
    ERRORS = (EngineError, fanout.RunError)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        download = boolean(arguments.get("download", True))
        prepare = arguments.get("stage") == "prepare"
        if arguments.get("stage") == "tried":
            return self._module(arguments)
        if arguments.get("runtime", "venv") == "venv":
            engine = _wheels.read_engine_of(arguments)
            wheel_dir = str(arguments.get("wheel_dir") or "")
            if prepare:
                return self._have_wheels(engine, wheel_dir, download)
            return self._environment(arguments, engine, wheel_dir, download)
        wanted = images.read_wanted(arguments, str(self._node.get("arch") or ""))
        if arguments.get("stage") == "pull":
            return self._pull(arguments, wanted)
        if prepare:
            if self._node and not (self._node.get("binaries") or {}).get("docker"):
                raise EngineError(images.NO_DOCKER)
            self._compare_recorded(arguments, wanted)
            return {"changed": False, "image": wanted.image, "digest": wanted.archive.image if wanted.archive else ""}
        return self._image(arguments, wanted, download)

    def _compare_recorded(self, arguments: dict[str, Any], wanted: images.Wanted) -> None:
        """What this host has under a tag must be what was pulled first."""
        record, name = Record(self.vars.get("inventory_dir")), images.recorded_name(wanted)
        if name and record.of(IMAGES, name):
            self._compare(name, self._module({**arguments, "stage": "pulled"}), record)

    def _compare(self, name: str, outcome: dict[str, Any], record: Record) -> None:
        if outcome.get("failed"):
            raise AnsibleActionFail(f"host {self.host}: {outcome.get('msg', outcome)}")
        found, known = outcome.get("pulled"), record.of(IMAGES, name)
        # an inventory on the command line has no record
        if found and known and known not in found:
            raise AnsibleActionFail(str(images.moved(self.host, name, found[0], record)))

    def _first(self, name: str, outcome: dict[str, Any], record: Record) -> None:
        """Record what a tag means, and compare this host's image with it."""
        first = images.first(self.host, name, outcome["pulled"], record)
        if first.problem:
            raise AnsibleActionFail(first.problem)
        if first.warning:
            outcome.setdefault("warnings", []).append(first.warning)
        self._compare(name, outcome, record)

    def _environment(
        self, arguments: dict[str, Any], engine: _wheels.Engine, wheel_dir: str, download: bool
    ) -> dict[str, Any]:
        target = self._target(arguments)
        folder = _wheels.wheel_folder(wheel_dir, target)
        if self._task.check_mode and (missing := _wheels.missing_wheels(engine, folder, target)):
            return self._would_fetch(engine, folder, target, missing, download)
        wheels = _wheels.prepare_wheels(engine, folder, target, download)
        arguments["target"] = _wheels.target_argument(engine, target, wheels, self._node)
        deliver = str(arguments.pop("deliver", "direct"))
        outcome = self._module(arguments)
        if not outcome.get("need") or outcome.get("failed"):
            return outcome
        # once more with the size of what is to be built: a disk that is too small is known before a byte moves
        arguments["target"]["unpacked"] = wheels.unpacked()
        outcome = self._module(arguments)
        if not outcome.get("need") or outcome.get("failed"):
            return outcome
        if deliver == "fabric":
            root = os.path.join(os.path.dirname(str(arguments.get("path", VENV))), "wheels")
            files = (entry.path for entry in wheels.manifest)
            outcome["need"] = fanout.asked(outcome["need"], wheels.manifest)
            outcome.update(push.hand_over(root, wheels.digest, wheels.folder, files))
            outcome.pop("diff", None)
            return outcome
        need = fanout.asked(outcome["need"], wheels.manifest)
        wanted = push.contents(wheels.folder, wheels.manifest, need)
        sent = self._bring("wheels", wanted, {**arguments, "target": {}})
        return self._arrived("wheels", outcome, self._module(arguments), sent)

    def _have_wheels(self, engine: _wheels.Engine, wheel_dir: str, download: bool) -> dict[str, Any]:
        """The wheels for this host on the controller; a download there is no change of the host."""
        target = _wheels.target_of(self._node)
        if target is None:
            raise AnsibleActionFail(
                f"host {self.host}: the fact sparkthor_node with its Python, machine and C library is needed: "
                "run sparkthor.cluster.node_info first"
            )
        folder = _wheels.wheel_folder(wheel_dir, target)
        missing = _wheels.missing_wheels(engine, folder, target)
        check_mode = self._task.check_mode
        if not missing or not check_mode:
            # those that are here may be others than the lock names
            _wheels.prepare_wheels(engine, folder, target, download)
        fetched = download and not check_mode
        names = [str(pin) for pin in missing]
        return {
            "changed": False,
            "target": target.label,
            "folder": folder,
            "fetched": names if fetched else [],
            "missing": [] if fetched else names,
            "versions": engine.versions,
        }

    def _target(self, arguments: dict[str, Any]) -> Target:
        """Facts know the system's Python; any other interpreter is asked."""
        target = None
        if arguments.get("python", _wheels.DEFAULT_PYTHON) == _wheels.DEFAULT_PYTHON:
            target = _wheels.target_of(self._node)
        if target is None:
            probe = self._module({**arguments, "stage": "probe"})
            if probe.get("failed") or "target" not in probe:
                raise EngineError(str(probe.get("msg", probe)))
            target = _wheels.target_of(self._node, probe["target"])
        return target

    def _would_fetch(
        self, engine: _wheels.Engine, folder: str, target: Target, missing: list[Pin], download: bool
    ) -> dict[str, Any]:
        """Check mode fetches nothing: what cannot be known without the wheels is said to be so."""
        if not download:
            raise EngineError(_wheels.lacking(missing, folder, target, engine.source))
        pins = {pin.name: pin.version for pin in engine.pins}
        return {
            "changed": True,
            "msg": f"{len(missing)} of {len(engine.pins)} wheels would be fetched into {folder} on the controller",
            "problems": [],
            "diff": {"before": "", "after": "".join(f"{name}=={pins[name]}\n" for name in sorted(pins))},
            "ansible_facts": {
                "sparkthor_engine": {
                    "path": str(self._task.args.get("path", VENV)),
                    "digest": "",
                    "python": target.python,
                    "machine": target.machine,
                    "versions": interesting(pins),
                }
            },
        }

    def _results(self, variable: str) -> dict[str, dict[str, Any]]:
        """What the hosts that serve together with this one registered."""
        together = (self.vars.get("sparkthor_cluster") or {}).get("hosts")
        hosts = [host for host in self.vars.get("ansible_play_hosts") or [] if together is None or host in together]
        return {host: self.vars["hostvars"][host].get(variable) or {} for host in hosts}

    def _pull(self, arguments: dict[str, Any], wanted: images.Wanted) -> dict[str, Any]:
        """One host pulls the image, and writes it down for the others if they lack it."""
        head = str((self.vars.get("sparkthor_cluster") or {}).get("head") or "")
        host, share = images.giver(self._results(RESULTS), head)
        if self.host != host:
            return {"changed": False}
        record, name = Record(self.vars.get("inventory_dir")), images.recorded_name(wanted)
        arguments["target"] = wanted.target()
        arguments["digest"] = images.first(host, name, [], record).digest if name else arguments.get("digest", "")
        begun = self._module({**arguments, "stage": "pull"})
        if begun.get("failed"):
            return begun
        if begun["pulling"]:
            self._follow(wanted.image)
        if share:
            self.tell(f"sparkthor: {self.host}: {wanted.image}: is being written down for the other hosts")
        outcome = self._module({**arguments, "stage": "save", "share": share})
        if outcome.get("failed"):
            return outcome
        if name and outcome["pulled"]:
            self._first(name, outcome, record)
        if share:
            saved = images.saved(outcome.get("saved"))
            outcome["saved"] = {**saved, "of": wanted.image}
        return {**outcome, "changed": begun["changed"]}

    def _follow(self, image: str) -> None:
        """Show how far the pull is until its unit has ended; ``save`` knows how."""
        begun = told = time.monotonic()
        unanswered = 0
        while True:
            shown = self._low_level_execute_command(
                f"cat {image_share.LOG}; echo; systemctl is-active {image_share.UNIT}"
            )
            log, _newline, state = shown["stdout"].strip().rpartition("\n")
            unanswered = 0 if state else unanswered + 1
            if state.strip() != "active" and (state or unanswered > UNANSWERED):
                return
            now = time.monotonic()
            if state and now - told >= TELL_EVERY:
                told = now
                self.tell(f"sparkthor: {self.host}: {image}: {image_share.progress(log)} after {now - begun:.0f} s")
            time.sleep(ASK_EVERY)

    @staticmethod
    def _handed(arguments: dict[str, Any], saved: dict[str, Any], folder: str, manifest: list[Entry]) -> dict[str, Any]:
        """For the fan-out: the archive of the controller, or the one that a host wrote."""
        root = os.path.join(str(arguments.get("work_dir") or WORK_DIR), "images")
        if saved:
            return push.hand_over(root, image_host.ARCHIVE, root, manifest=[saved["entry"]])
        return push.hand_over(root, image_host.ARCHIVE, folder, [manifest[0].path])

    def _saved(self, wanted: images.Wanted) -> tuple[str, dict[str, Any]]:
        """The host that has this image in its store for the others, and what it is."""
        for host, result in self._results(PULLED).items():
            saved = result.get("saved") or {}
            if saved.get("of") == wanted.image and not wanted.archive:
                return host, saved
        return "", {}

    def _image(self, arguments: dict[str, Any], wanted: images.Wanted, download: bool) -> dict[str, Any]:
        deliver = str(arguments.pop("deliver", "direct"))
        record, name = Record(self.vars.get("inventory_dir")), images.recorded_name(wanted)
        if name:
            # every host gets the image that was pulled first, wherever its tag leads by now
            arguments["digest"] = record.of(IMAGES, name)
        sent = 0
        giver, saved = self._saved(wanted)
        fabric = deliver == "fabric"
        arguments["target"] = {**wanted.target(), "kind": str(self._node.get("kind") or "")}
        if saved:
            arguments["target"] |= {"archive": {**saved, "shared": True}, "tidy": not fabric}
            arguments["digest"] = arguments.get("digest") or saved["digest"]
        else:
            arguments["target"]["wait"] = fabric
        archive = os.path.dirname(wanted.archive_path), [Entry(*wanted.entry)]
        wheels: tuple[str, list[Entry]] = "", []
        for _round in range(ROUNDS):
            outcome = self._module(arguments)
            if outcome.get("failed"):
                if name and arguments["digest"] and arguments["digest"] in str(outcome.get("msg")):
                    outcome["msg"] += f" (this digest of {name} is recorded in {record.path} since its first pull)"
                break
            if outcome.get("wanted"):
                wheels = images.wheels_for(outcome, arguments, download)[:2]
                arguments["target"]["wheels"] = [list(entry) for entry in wheels[1]]
            elif outcome.get("lacks"):
                return {"changed": False, "lacks": outcome["lacks"]}
            elif outcome.get("need"):
                whole = outcome["what"] == "archive"
                folder, manifest = archive if whole else wheels
                known = [Entry(*saved["entry"])] if whole and saved else manifest
                outcome["need"] = fanout.asked(outcome["need"], known)
                if fabric and whole:
                    return {**self._handed(arguments, saved, folder, manifest), "need": outcome["need"]}
                if whole and saved:
                    # no way led here over the fabric: this host pulls it too
                    del arguments["target"]["archive"]
                    continue
                contents = push.contents(folder, manifest, outcome["need"])
                sent += self._bring("image" if whole else "Ray's wheels", contents, {**arguments, "target": {}})
            else:
                break
        else:
            raise AnsibleActionFail(f"host {self.host}: what was sent did not arrive whole: run again")
        if fabric and self.host == giver and not outcome.get("failed"):
            outcome |= {**self._handed(arguments, saved, "", []), "need": [], "changed": outcome["changed"]}
        if name and outcome.get("pulled") and not self._task.check_mode:
            self._first(name, outcome, record)
        if sent and not outcome.get("failed"):
            # the rounds before this one did the work: the last one alone would look as if little had changed
            outcome.update(changed=True, sent_bytes=sent)
        if outcome.get("changed") and outcome.get("nccl"):
            outcome.setdefault("warnings", []).append(
                f"host {self.host}: the image sets NCCL options of its own ({'; '.join(outcome['nccl'])}). Its "
                "nccl.conf is hidden from the engine by the host's; /etc/sparkthor/fabric.env outranks its environment."
            )
        return outcome
