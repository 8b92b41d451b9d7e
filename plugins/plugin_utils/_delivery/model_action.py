# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of all modules of the model store: what is declared, what a host lacks of it, and its way there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import human
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.models import ARGUMENTS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.progress_line import ProgressLine, terminal
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import fanout, hub, hub_fetch, models, push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import Record
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fanout_routes

_COPY = ("root", "models", "verify", "hub_caches", "deliver")
#: calls in a row without a byte after which a host's download has failed
FETCH_TRIES = 3
#: seconds after a question that the hub did not answer
FETCH_PAUSE = 20.0


class Arrived:
    """How far downloads of a host are, all of them together; as text with the rate and the seconds that are left."""

    def __init__(self, total: int, already: int) -> None:
        self.bytes = self._before = already
        self._total, self._began = total, time.monotonic()

    def __str__(self) -> str:
        rate = (self.bytes - self._before) / max(time.monotonic() - self._began, 0.001)
        left = f", {(self._total - self.bytes) / rate:.0f} s left" if rate and self.bytes < self._total else ""
        return f"{human(self.bytes)} of {human(self._total)}, {human(rate)}/s{left}"


class ModelAction(push.StoreAction):
    """Subclasses implement :meth:`step`, which finds what was given in ``self._args``."""

    # whom the next steps speak to, by which key, and what the plan is combined with
    OWN = frozenset(("nodes", "revisions", "run", "seed", "sent_bytes", "wheels"))
    ERRORS = (fanout_routes.RouteError, fanout.RunError, StoreError)
    #: what the host's side has no use for
    CONTROLLER_ONLY: tuple[str, ...] = ("results", "fetch")
    #: the variable with the results of the hosts, unless the task names another
    RESULTS = "__model_store_check"

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._args = {key: value for key, value in arguments.items() if key not in self.CONTROLLER_ONLY}
        self._given: list[Any] = self._args.get("models") or []
        self._results = str(arguments.get("results") or self.RESULTS)
        return self.step()

    def step(self) -> dict[str, Any]:
        """The result, once the arguments are known."""
        raise NotImplementedError

    def _copy(self, **more: Any) -> dict[str, Any]:
        """Compare the host's store with what is declared."""
        return self.execute("model_copy", {key: self._args[key] for key in _COPY if key in self._args} | more)

    def _declare(self) -> tuple[dict[str, Any], list[str]]:
        """Complete the models by what their sources hold; those that check mode must not fetch are named."""
        given, record = self._given, Record(self.vars.get("inventory_dir"))
        # hosts may have the large files: what none has is fetched when it is sent
        declared = self._read(models.with_recorded(given, record), outlines=True)
        if not self._task.check_mode:
            models.keep_commits(given, declared, record)
        self._args["models"] = declared.models
        self._revisions = models.revisions(declared)
        return declared.folders, declared.pending

    def _fetch(self, folders: dict[str, Any], need: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Download what is to be sent and is not on the controller yet."""
        if not fanout.absent(folders.values(), need):
            return folders
        # the very commit that the hosts were compared with
        given = [
            {**item, "revision": model["commit"]} if model["commit"] else item
            for item, model in zip(self._given, self._args["models"], strict=True)
        ]
        return self._read(given, outlines=False).folders

    def _read(self, given: Sequence[Any], outlines: bool) -> models.DeclaredModels:
        line = ProgressLine(terminal(), self._display.display, self._display.columns)
        try:
            return models.declare(given, not self._task.check_mode, line.tell, outlines=outlines)
        finally:
            line.end()

    def _inspect(self, pending: list[str], folders: dict[str, Any]) -> dict[str, Any]:
        if pending and not self._args["models"]:
            return {"changed": False, "models": {}, "unlisted": []}
        outcome = self._copy()
        if outcome.get("need"):
            outcome["need"] = fanout.asked(
                outcome["need"], [entry for _folder, entries in folders.values() for entry in entries]
            )
        if taken := outcome.get("from_caches"):
            self.tell(
                f"sparkthor: {self.host}: models: {human(taken['bytes'])} from {', '.join(taken['caches'])} there"
            )
        return outcome

    @staticmethod
    def _with_pending(outcome: dict[str, Any], pending: list[str]) -> dict[str, Any]:
        if pending and not outcome.get("failed"):
            outcome["changed"] = True
            outcome["msg"] = "would be fetched by the controller first: " + ", ".join(pending)
        return outcome

    def _send(self, folders: dict[str, Any], outcome: dict[str, Any], deliver: str) -> dict[str, Any]:
        """Bring what the host needs, and the result of the comparison after that."""
        fetched = self._fetch_there(folders, outcome["need"])
        need = [item for item in outcome["need"] if item["sha256"] not in fetched]
        entries_of: dict[str, Any] = {}
        for folder, entries in self._fetch(folders, need).values():
            for entry in entries:
                entries_of.setdefault(entry.sha256, (folder, entry))
        wanted = []
        for item in need:
            folder, entry = entries_of[item["sha256"]]
            if not folder:
                # of files that hosts alone have nothing lies on the controller, whatever path they name
                raise AnsibleActionFail(
                    f"host {self.host}: no host has {entry.path} any more that said it had it: run again"
                )
            wanted += push.contents(folder, [entry], [item])
        sent = self._bring("models", wanted, self._root) if wanted else 0
        last = self._copy(deliver=deliver, verify="fast")
        return self._arrived("files", outcome, last, sent)

    @property
    def _root(self) -> str:
        return str(self._args.get("root") or ARGUMENTS["root"]["default"])

    def _fetch_there(self, folders: dict[str, Any], need: Sequence[Mapping[str, Any]]) -> set[str]:
        """Have the host fetch what the controller has no room for; the SHA-256 of all that it fetched."""
        how = str(self._task.args.get("fetch") or hub_fetch.AUTO)
        files = hub_fetch.files_for_host(how, self._args["models"], folders, need)
        have = {item["sha256"]: int(item["have"]) for item in need}
        arrived = Arrived(sum(file.size for file in files), sum(have[file.sha256] for file in files))
        line = ProgressLine(terminal(), self._display.display, self._display.columns)
        try:
            for file in files:
                here, silent = have[file.sha256], 0
                while True:
                    answer = self._fetch_more(file, here)
                    arrived.bytes += int(answer["have"]) - here
                    silent = 0 if answer["have"] > here else silent + 1
                    here = int(answer["have"])
                    line.tell(f"{self.host}: {file.repo} from the hub: {arrived}")
                    if here == file.size:
                        break
                    if silent == FETCH_TRIES:
                        raise AnsibleActionFail(
                            f"host {self.host}: {file.path} of {file.repo} could not be fetched there: "
                            f"{answer['problem'] or 'nothing arrives'}. Give the host a way to the hub, or set "
                            "model_store_fetch: controller. What arrived is kept: run again"
                        )
        finally:
            line.end()
        return {file.sha256 for file in files}

    def _fetch_more(self, file: hub_fetch.HubFile, here: int) -> dict[str, Any]:
        try:
            url = hub_fetch.address(file)
        except hub.Unreachable as error:
            # a long download asks a thousand times
            time.sleep(FETCH_PAUSE)
            return {"have": here, "problem": str(error)}
        except hub.HubError as error:
            raise AnsibleActionFail(f"model_store_models: {error}") from error
        asked = {"root": self._root, "sha256": file.sha256, "size": file.size, "url": url}
        answer = self.execute("store_fetch", asked)
        if answer.get("failed"):
            raise AnsibleActionFail(f"host {self.host}: {answer.get('msg', answer)}")
        return answer

    def _in_use(self) -> list[str]:
        """Revisions that any host serves with or served with last: a worker of Ray loads what the head names."""
        hosts = self.vars.get("ansible_play_hosts") or []
        outcomes = [self.vars["hostvars"][host].get(self._results) or {} for host in hosts]
        return sorted({folder for outcome in outcomes for folder in outcome.get("named") or ()})

    def _all_here(self, otherwise: str) -> None:
        """Of a host that is away nobody knows what it has, nor which revision it serves with."""
        hosts = self.vars.get("ansible_play_hosts") or []
        if away := [host for host in self.vars.get("ansible_play_hosts_all") or hosts if host not in hosts]:
            raise AnsibleActionFail(
                f"hosts {', '.join(away)} failed or are away, so {otherwise}: run again when they are back"
            )
