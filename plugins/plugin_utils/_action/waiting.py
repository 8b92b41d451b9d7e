# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""When to speak and when to give up while a model loads, for ``state: serving`` of C(vllm_service)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SPEAK_EVERY = 10.0
SPEAK_ANYWAY_EVERY = 60.0
UNANSWERED = 120.0


def elapsed(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class Waiting:
    """What a series of answers adds up to."""

    def __init__(
        self, host: str, timeout: float, attempts: int, now: float, unit: str = "sparkthor-vllm.service"
    ) -> None:
        self.host = host
        self.unit = unit.removesuffix(".service")
        self.timeout = timeout
        self.attempts = attempts
        self.started = now
        self.failures: list[str] = []
        self.fix = ""
        self.failed_invocation = ""
        self.said = ""
        self.said_at = float("-inf")
        self.silent_since: float | None = None

    def say(self, found: Mapping[str, Any], now: float, every: float = SPEAK_EVERY) -> str:
        """A line for the person who waits, not more often than every ten seconds, or whatever is asked for."""
        line = str(found.get("line", ""))
        quiet = now - self.said_at
        if quiet < every or (line == self.said and quiet < (SPEAK_ANYWAY_EVERY if every else 0)):
            return ""
        self.said, self.said_at = line, now
        return f"{self.host}: {elapsed(now - self.started)}: {line}"

    def verdict(self, found: Mapping[str, Any], now: float) -> str:
        """Why waiting ends without success; empty while it is worth going on."""
        failure = found.get("failure")
        if failure:
            reason = str(failure.get("reason") or "the engine ended without a word in its log")
            fix = str(failure.get("fix") or "")
            # one failed start is seen in several answers: the pause before the next one lasts seconds
            marker = str(failure.get("invocation", ""))
            if marker != self.failed_invocation:
                self.failed_invocation = marker
                self.failures.append(reason)
                self.fix = fix
            if failure.get("final"):
                return self._sentence("the engine cannot start", reason, fix)
            if len(self.failures) >= self.attempts:
                return self._sentence(f"the engine failed to start {len(self.failures)} times", reason, fix)
        if now - self.started >= self.timeout:
            reason = self.failures[-1] if self.failures else str(found.get("line", "no state"))
            return self._sentence(
                f"no completion within vllm_serve_ready_timeout ({elapsed(self.timeout)})", reason, self.fix
            )
        return ""

    def _sentence(self, what: str, reason: str, fix: str) -> str:
        advice = f" Fix: {fix}." if fix else ""
        return f"{what} on {self.host}: {reason}.{advice} The whole log: journalctl -b -u {self.unit}"

    def unanswered(self, message: str, now: float) -> str:
        """A head that does not answer once may only be busy; for two minutes is a failure."""
        if self.silent_since is None:
            self.silent_since = now
        if now - self.silent_since < UNANSWERED:
            return ""
        return (
            f"{self.host} gave no answer for {elapsed(now - self.silent_since)} while the engine was loading: {message}"
        )

    def answered(self) -> None:
        self.silent_since = None
