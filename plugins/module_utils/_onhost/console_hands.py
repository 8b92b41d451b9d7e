# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, behind the page:
# pylint: disable=ansible-bad-function
"""What the page needs root for, and nothing else.

The page's process reads what browsers, engines and other hosts say, so it is nobody.  Its parent is root, reads none of
that, and does for it what is on a short list: read the journal of the serving units and what doctor.yml and drift.yml
found; drain, start, stop, restart or
wake a group that serving.json names; block a key that the front proxy knows.  Each wish is written down with the name
of the key that asked for it, before and after.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._lib import files, foreign, mask, peer
from .._lib.printable import printable
from . import control, front_config, last_checks, on_demand_service, places, serving, watchdog_hands

#: what may be asked for, and what it is for ``control``
VERBS = {
    "drain": "drained",
    "resume": "started",
    "restart": "restarted",
    "start": "started",
    "stop": "stopped",
    "wake": "awake",
}
#: what may be asked for of a key, by its name
KEY_VERBS = ("block", "unblock")
#: what says why it is done, because others see it
REASONED = ("restart", "stop", "drain", "block")
#: takes nothing from a group that moves, and is for that time as well
ALWAYS = ("resume", "start", *KEY_VERBS)
#: of the inventory, beside those of vllm_serve_api_keys; rotate_api_key.yml ends it
CLUSTER_KEY = "default"
#: the one before it, while both are valid: its name goes to another key with the next rotation, and a block would too
FORMER_KEY = "previous"
AUDIT = "/var/lib/sparkthor-console/audit.jsonl"
#: the newest of it are kept
AUDIT_LINES = 200
#: one controller at a time changes the cluster; its file is this old at most while it lives
CONTROLLER, CONTROLLER_LIVES = "/run/sparkthor-controller.json", 90.0
#: seconds that the requests of a group have before a restart or a stop breaks them off, and for a drain
PATIENCE = {"restart": 300.0, "stop": 600.0, "drain": 600.0}
FRONT = "sparkthor-front.service"
_ID = re.compile(r"[0-9a-f-]{8,64}")
_KEY = re.compile(r"[a-z0-9_-]{1,32}")
_ADDRESS = re.compile(r"[0-9a-fA-F.:%]{1,64}")


class ConsoleRefused(Exception):
    """Why a wish is not done, with the status that the browser gets."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Wish(dict[str, Any]):
    """``do``, ``group``, ``key``, ``reason``, ``id``, ``who``, ``address`` and ``since``, checked."""

    @classmethod
    def of(cls, given: Mapping[str, Any], groups: Sequence[str], keys: Callable[[], Sequence[str]]) -> Wish:
        """Raises Refused."""
        verb, group, reason = str(given.get("do")), str(given.get("group") or ""), str(given.get("reason") or "")
        who, address, number = str(given.get("who")), str(given.get("address")), str(given.get("id"))
        key = str(given.get("key") or "")
        if verb not in (*VERBS, *KEY_VERBS):
            raise ConsoleRefused(400, f"there is no such action; there are {', '.join((*VERBS, *KEY_VERBS))}")
        if verb in KEY_VERBS:
            _check_key(verb, key, who, keys())
        elif group not in groups:
            raise ConsoleRefused(404, "this head has no such serving group; ask the page of the group's own head")
        if not _ID.fullmatch(number) or not _KEY.fullmatch(who) or not _ADDRESS.fullmatch(address):
            raise ConsoleRefused(400, "the wish has no id, or nobody says whose it is")
        reason = printable(reason).strip()
        if verb in REASONED and not reason:
            raise ConsoleRefused(400, "say why; everybody who looks at the page or runs status.yml sees it")
        if len(reason) > 200:
            raise ConsoleRefused(400, "the reason is longer than 200 characters")
        since = given.get("since")
        try:
            since = None if since is None else foreign.number(since)
        except ValueError:
            raise ConsoleRefused(400, "since is no time") from None
        found = {"do": verb, "group": group, "reason": reason, "id": number, "who": who, "address": address}
        return cls(found, since=since, **({"key": key} if verb in KEY_VERBS else {}))


def _check_key(verb: str, key: str, who: str, known: Sequence[str]) -> None:
    """Raises Refused."""
    if key not in known:
        raise ConsoleRefused(404, "this head knows no such key")
    if verb == "block" and key == CLUSTER_KEY:
        raise ConsoleRefused(403, "the cluster's own key is not blocked here: rotate_api_key.yml makes a new one")
    if verb == "block" and key == FORMER_KEY:
        what = "the cluster's former key ends with rotate_api_key.yml -e sparkthor_drop_old=true"
        raise ConsoleRefused(403, f"{what}, and is not blocked here")
    if verb == "block" and key == who:
        raise ConsoleRefused(403, "a key does not block itself: who would let it in again?")


def groups_of(config: Mapping[str, Any]) -> list[str]:
    """The groups whose head this host is, as ``control`` knows them: the host's own one has no name."""
    return [str(one.get("beside") or "") for one in config.get("groups") or () if one.get("here")]


def wake(group: str, path: str = f"{on_demand_service.RUN}/wake.sock") -> str:
    """Ask for a group that takes turns, as the front proxy does; what becomes of it.  Raises ControlError."""
    try:
        answer = peer.ask(peer.unix(path), "POST", f"/{group}", 5.0)
        told = foreign.parse_object(answer.body)["error"]
        return printable(str(told["message"]))[:400]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        raise control.ControlError(
            "the service that wakes groups gives no answer; see journalctl -u sparkthor-on-demand"
        ) from error


class ConsoleHands:
    """Does it; a test replaces its doors."""

    def __init__(
        self,
        config: Mapping[str, Any],
        of_group: Callable[[str, bool], control.Control] = control.of_group,
        runner: serving.Runner = serving.run,
        audit: str = AUDIT,
        controller: str = CONTROLLER,
        wall: Callable[[], float] = time.time,
        front: str = front_config.FOLDER,
        blocked: str = front_config.BLOCKED,
        wake_group: Callable[[str], str] = wake,
        checks: Callable[[], dict[str, Any]] = last_checks.read,
    ) -> None:
        self._config = config
        self._of_group, self._runner, self._audit, self._controller = of_group, runner, audit, controller
        self._front, self._blocked, self._wake = front, blocked, wake_group
        self.checks = checks
        self.wall = wall
        self._lock = threading.Lock()
        #: two wishes at once must not write two lists of blocked keys out of one
        self._blocking = threading.Lock()
        #: by id; what was done is not done again, however often it is sent
        self._jobs: dict[str, dict[str, Any]] = {}

    @property
    def groups(self) -> list[str]:
        return groups_of(self._config)

    def playbook(self) -> dict[str, str] | None:
        """Who changes the cluster right now."""
        try:
            if self.wall() - os.lstat(self._controller).st_mtime > CONTROLLER_LIVES:
                return None
            told = foreign.parse_object(files.read_own(self._controller), most=65536)
        except (OSError, ValueError):
            return None
        return {name: printable(str(told.get(name, "")))[:120] for name in ("owner", "play", "since")}

    def act(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Begin what is wished; the job that it is.  Raises Refused."""
        try:
            wish = Wish.of(given, self.groups, lambda: [*self.keys(), *self.blocked()])
            with self._lock:
                if wish["id"] in self._jobs:
                    return self._jobs[wish["id"]]
                self._check(wish)
                job = {**wish, "at": self.wall(), "state": "running", "text": ""}
                self._jobs = {**dict(list(self._jobs.items())[-49:]), wish["id"]: job}
        except ConsoleRefused as refused:
            self._write_down({**_shown(given), "state": "refused", "text": str(refused)})
            raise
        self._write_down({**job, "state": "asked"})
        threading.Thread(target=self._do, args=(job,), name="wish", daemon=True).start()
        return job

    def _check(self, wish: Wish) -> None:
        running = next((one for one in self._jobs.values() if one["state"] == "running"), None)
        # taking requests again ends a drain, and is for the time in which one runs
        if running and wish["do"] not in ALWAYS:
            raise ConsoleRefused(409, f"{running['who']} is at it: {running['do']} {running['group']}".strip())
        playbook = self.playbook()
        if playbook:
            raise ConsoleRefused(423, f"{playbook['play']} runs, by {playbook['owner']}; wait until it has ended")
        if wish["since"] is not None and wish["do"] in VERBS:
            told = files.read_json(places.Places(wish["group"]).state).get("since")
            if isinstance(told, (int, float)) and abs(told - wish["since"]) > 1.0:
                raise ConsoleRefused(409, "the group has changed since you saw it; look again")

    def _do(self, job: dict[str, Any]) -> None:
        began = time.monotonic()
        try:
            steps = self._steps(job)
        except Exception as error:
            # whatever it was, it has ended: a job that runs for ever would keep all others
            told = str(error) if isinstance(error, (control.ControlError, OSError)) else repr(error)
            ended, text = "failed", printable(told)[:400]
        else:
            ended, text = "done", "; ".join(steps) or "it was so already"
        with self._lock:
            job.update(state=ended, text=text, seconds=round(time.monotonic() - began, 1))
        self._write_down(job)

    def _steps(self, job: Mapping[str, Any]) -> list[str]:
        """Do it; what was done.  Raises ControlError, OSError."""
        verb = str(job["do"])
        if verb in KEY_VERBS:
            with self._blocking:
                return self._block(str(job["key"]), verb == "block")
        if verb == "wake" and job["group"]:
            return [self._wake(str(job["group"]))]
        reason = f"{VERBS[verb]} by {job['who']}: {job['reason']}"
        group = self._of_group(job["group"], False)
        try:
            return group.apply(VERBS[verb], reason, PATIENCE.get(verb, 0.0)).steps
        except control.StillRunning:
            if verb == "drain":
                raise
            return [*group.apply(VERBS[verb], reason, 0.0).steps, "break off what still ran"]

    def keys(self) -> list[str]:
        """Names of the keys that the front proxy knows."""
        try:
            text = files.read_own(f"{self._front}/front.good/keys.conf").decode("utf-8", "replace")
        except OSError:
            return []
        return sorted({line.rpartition('" ')[2].rstrip(";") for line in text.splitlines() if line.startswith('"')})

    def blocked(self) -> list[str]:
        """Names of the keys that are blocked here."""
        try:
            return front_config.blocked_keys(self._blocked)
        except front_config.FrontError:
            return []

    def _block(self, key: str, wanted: bool) -> list[str]:
        """The front proxy refuses the key from now on, or knows it again; what runs may end."""
        try:
            before = front_config.blocked_keys(self._blocked)
        except front_config.FrontError as error:
            # a list that cannot be read is no empty one: a new one would let in whom it names
            raise control.ControlError(str(error)) from error
        after = sorted({*before, key} if wanted else {*before} - {key})
        if after == before:
            return []
        files.write_atomic(self._blocked, json.dumps({"blocked": after}) + "\n", mode=0o600)
        status, _out, err = self._runner(["systemctl", "reload", FRONT], 60)
        if status != 0:
            files.write_atomic(self._blocked, json.dumps({"blocked": before}) + "\n", mode=0o600)
            raise control.ControlError(f"systemctl reload {FRONT}: {err.strip() or f'status {status}'}")
        return [f"the front proxy of this head {'refuses' if wanted else 'knows'} it"]

    def jobs(self) -> list[dict[str, Any]]:
        """The newest wishes, the last one first."""
        with self._lock:
            return [dict(job) for job in reversed(self._jobs.values())][:10]

    def _write_down(self, job: Mapping[str, Any]) -> None:
        """A line of the journal, and one of the file that the page shows after a restart as well."""
        line = {**job, "at": round(self.wall(), 3)}
        told = " ".join(f"{key}={json.dumps(line[key])}" for key in line if key != "id")
        print(f"wish {told}", flush=True)
        with self._lock:
            kept = [*self.audit(), line][-AUDIT_LINES:]
            try:
                files.write_atomic(self._audit, "".join(json.dumps(one) + "\n" for one in kept), mode=0o640)
            except OSError as error:
                print(f"{self._audit} cannot be written: {error.strerror}", flush=True)

    def audit(self) -> list[dict[str, Any]]:
        """The newest wishes that were written down, the last one last."""
        try:
            text = files.read_own(self._audit).decode("utf-8", "replace")
        except OSError:
            return []
        found = []
        for line in text.splitlines()[-AUDIT_LINES:]:
            try:
                found.append(foreign.parse_object(line))
            except ValueError:
                continue
        return found

    def journal(self, group: str, of: str, lines: int) -> list[tuple[float, str]]:
        """Newest lines of a group's watchdog or engine: seconds since 1970, and text.  Raises Refused."""
        if group not in self.groups or of not in ("watchdog", "engine") or not 0 < lines <= 400:
            raise ConsoleRefused(404, "this head has no such serving group")
        own = places.Places(group)
        unit = own.watchdog if of == "watchdog" else own.unit
        argv = ["journalctl", "--no-pager", "--quiet", "--all", "--output=json", f"--lines={lines}"]
        argv += ["--output-fields=MESSAGE,__REALTIME_TIMESTAMP", f"_SYSTEMD_UNIT={unit}"]
        status, out, _err = self._runner(argv, 10)
        return parsed(out) if status == 0 else []


def parsed(out: str) -> list[tuple[float, str]]:
    """Time and message of each line of the journal's JSON; secrets are masked, what is no text is left out."""
    found = []
    for line in out.splitlines():
        try:
            told = foreign.parse_object(line, most=200_000)
            at = int(str(told.get("__REALTIME_TIMESTAMP"))) / 1e6
        except ValueError:
            continue
        message = told.get("MESSAGE")
        if isinstance(message, str):
            found.append((at, printable(mask.mask(message[:4000]))[:1000]))
    return found


def _shown(given: Mapping[str, Any]) -> dict[str, str]:
    names = ("do", "group", "key", "reason", "who", "address", "id")
    return {name: printable(str(given.get(name) or ""))[:200] for name in names}


class ConsoleGuard(watchdog_hands.Guard):
    """The parent: answers what is on the list, and refuses the rest."""

    def __init__(self, hands: ConsoleHands, tell: watchdog_hands.Hands) -> None:
        super().__init__(tell, "", ())
        self.own = hands

    def answer(self, request: Mapping[str, Any]) -> Any:
        """What the request comes to.  Raises OSError."""
        what = request.get("do")
        try:
            if what == "act":
                wish = request.get("wish")
                return {"job": self.own.act(wish if isinstance(wish, dict) else {})}
            if what == "look":
                found = {"jobs": self.own.jobs(), "playbook": self.own.playbook(), "audit": self.own.audit()}
                return {**found, "keys": self.own.keys(), "blocked": self.own.blocked()}
            if what == "checks":
                return self.own.checks()
            if what == "journal":
                lines = request.get("lines")
                given = lines if isinstance(lines, int) else 0
                return self.own.journal(str(request.get("group") or ""), str(request.get("of")), given)
        except ConsoleRefused as refused:
            return {"refused": str(refused), "status": refused.status}
        if what == "notify":
            return super().answer(request)
        raise self._refuse(what)


class ConsoleRemote(watchdog_hands.Remote):
    """The child's side."""

    def __init__(self, door: socket.socket) -> None:
        super().__init__(door)

    def ask(self, what: str, **more: Any) -> Any:
        """The answer to one question.  Raises Refused or OSError."""
        found = self._ask(what, **more)
        if isinstance(found, dict) and "refused" in found:
            raise ConsoleRefused(int(found["status"]), str(found["refused"]))
        return found
