# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the attacks share: a shell as the serving user, questions to the API, playbooks, and a client that never stops.

Every test leaves the cluster serving, so that the files can run in any order.
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.integration.conftest import Cluster
from tools.playbooks import Outcome, run_playbook

MODEL = "tiny-qwen3"
UNITS = ("sparkthor-ray", "sparkthor-vllm", "sparkthor-front", "sparkthor-watchdog")


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: str

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Asking:
    """One completion after the other in the background: what it cost, and what failed."""

    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        if len(self.seconds) < 2:
            return self.seconds[0] if self.seconds else float("nan")
        return statistics.quantiles(self.seconds, n=100, method="inclusive")[round(share * 100) - 1]

    def summary(self) -> str:
        if not self.seconds:
            return f"no completion, {len(self.failures)} failed"
        return (
            f"{len(self.seconds)} completions, median {statistics.median(self.seconds):.2f} s, "
            f"p99 {self.percentile(0.99):.2f} s, {len(self.failures)} failed"
        )


@dataclass
class Target:
    """The cluster under attack."""

    cluster: Cluster

    @property
    def head(self) -> str:
        return self.cluster.head

    @property
    def hosts(self) -> list[str]:
        return self.cluster.hosts

    def run(self, host: str, command: str, **options: Any) -> str:
        """Standard output of a shell line as root, without ssh."""
        return self.cluster.run(host, command, **options)

    def run_as(self, host: str, command: str, user: str = "sparkthor") -> subprocess.CompletedProcess[str]:
        """A shell line as the serving user, who owns what Ray jobs and models run as; it may fail."""
        words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env"]
        return subprocess.run(
            self.cluster.lab.enter_command(host, [*words, "bash", "-c", command]),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def play(self, playbook: str = "site.yml", *arguments: str, ok: bool = True, **variables: Any) -> Outcome:
        """A playbook with the scenario's own inventories."""
        outcome = run_playbook(
            playbook,
            self.cluster.inventories,
            extra_vars={"lab_name": self.cluster.lab.name, **variables},
            arguments=list(arguments),
            name="security",
            say=lambda line: None,
        )
        print(f"{playbook} {variables}: {outcome.seconds:.0f} s, rc {outcome.rc}", flush=True)
        if ok:
            assert outcome.rc == 0, outcome.failures
        return outcome

    def ask(
        self,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = 120,
    ) -> Reply:
        """One request to the endpoint, with or without a key."""
        url = urlsplit(self.cluster.endpoint)
        connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=timeout)
        try:
            sent = {"Content-Type": "application/json", **(headers or {})}
            if key is not None:
                sent["Authorization"] = f"Bearer {key}"
            connection.request(
                "GET" if body is None else "POST", path, None if body is None else json.dumps(body), sent
            )
            answer = connection.getresponse()
            return Reply(answer.status, dict(answer.getheaders()), answer.read().decode("utf-8", "replace"))
        finally:
            connection.close()

    def complete(self, tokens: int = 1, timeout: float = 120) -> Reply:
        body = {"model": MODEL, "prompt": "hello", "max_tokens": tokens, "temperature": 0}
        return self.ask("/v1/completions", body, key=self.cluster.api_key, timeout=timeout)

    def serving(self, seconds: float = 600) -> None:
        """Wait until the endpoint completes again."""

        def answered() -> bool:
            try:
                return self.complete(timeout=30).status == 200
            except OSError:
                return False

        self.until(answered, seconds)

    @staticmethod
    def until(holds: Callable[[], Any], seconds: float, every: float = 0.5) -> float:
        """Wait until something holds; the seconds it took."""
        begun = time.monotonic()
        while not holds():
            assert time.monotonic() - begun < seconds, f"not within {seconds:.0f} s"
            time.sleep(every)
        return time.monotonic() - begun

    def invocations(self, *units: str) -> dict[str, str]:
        """By host, an id of each unit's current run: equal before and after means that nothing was restarted."""
        names = " ".join(f"{unit}.service" for unit in units or UNITS)
        look = f"systemctl show -p Id -p ActiveState -p InvocationID {names}"
        return {host: self.run(host, look) for host in self.hosts}

    def exists(self, host: str, path: str) -> bool:
        return bool(self.run(host, f"test -e {path} && echo yes", check=False).strip())


@pytest.fixture(scope="session")
def target(cluster: Cluster) -> Target:
    return Target(cluster)


@pytest.fixture
def asking(target: Target) -> Iterator[Asking]:
    """A client that asks for completions from before the attack until after it."""
    found, stop = Asking(), threading.Event()

    def ask() -> None:
        while not stop.is_set():
            begun = time.monotonic()
            try:
                reply = target.complete(timeout=60)
                if reply.status == 200:
                    found.seconds.append(time.monotonic() - begun)
                else:
                    found.failures.append(f"{reply.status}: {reply.body[:200]}")
            except (OSError, http.client.HTTPException) as error:
                found.failures.append(f"{type(error).__name__}: {error}")
            stop.wait(0.05)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    target.until(lambda: found.seconds, 60, 0.1)
    yield found
    stop.set()
    thread.join(90)
    print(f"\n{found.summary()}", flush=True)


@pytest.fixture(scope="session")
def monitored(target: Target) -> Target:
    """The exporters as well, which site.yml does not set up."""
    target.play("playbooks/monitoring.yml", monitoring_enabled=True)
    return target
