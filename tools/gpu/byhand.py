# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM or SGLang as a person starts it by hand, on the same hosts and GPUs, with the arguments of the served one.

It runs beside ours: each has its own memory of the GPU, and only one is asked at a time. So a pair is measured within
seconds, without a start in between. With executor ray it has a Ray of its own, started by ``ray start``. All are asked
from inside the head, where no firewall stands between. Our engine is also asked past the front proxy: two engines that
are started alike may differ, and what is lost on the way to one and the same engine is our chain's alone. A second
one by hand (``boxed``) has the limits of the served one's unit, and nothing else of ours: it shows what
these cost, and how far two engines are apart that are started alike. Of SGLang both by hand have them, because they are
the unit's container under other names.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tools.faults.site import VLLM, FaultError, Site, wait
from tools.gpu import pollers
from tools.gpu.price import no_watchdog
from tools.playbooks import TOP

PORT = 8100
#: whom to ask in every round; "front" besides tells what of a loss is the watchdog's
WAYS = ("ours", "engine", "by hand")
#: of two serving groups: another group's door and its own head's, and the engine behind them
CHAIN = ("chain", "socket")
#: while ten browsers look at the page, and while none does: its process reads every two seconds for 30 s more
PAGE = ("polled", "ours")
#: prompts that the prefix cache knows, and new ones
CACHED = ("same", "ours")
#: this cluster's front proxy, and that of another cluster
AGAINST = ("ours", "other")
#: with speculation, and without it
GUESSING = ("ours", "by hand")
#: engines of their own; all other ways lead to one engine
APART = ("by hand", "boxed", "other")
#: for all others the watchdog is stopped
WATCHED = ("ours", "other", "polled", "same", *CHAIN)
FOLDER = "/tmp/by-hand"
CONFIG = "/etc/sparkthor/vllm.yaml"
#: of the one by hand in the unit's limits
BOXED_PORT, BOXED_FOLDER = 8101, "/tmp/by-hand-boxed"
#: what a unit says of them, beside what it runs
_LIMITS = re.compile(
    r"^(?:CapabilityBoundingSet|InaccessiblePaths|Limit\w+|LockPersonality|NoNewPrivileges|OOMScoreAdjust|Protect\w+"
    r"|Restrict(?:AddressFamilies|Namespaces|Realtime|SUIDSGID)|SystemCall\w+|TasksMax|UMask)=.*$",
    re.MULTILINE,
)
#: SGLang's, and the folder in which containers of those by hand find their own
SGLANG, CACHE = "/etc/sparkthor/sglang.yaml", "/var/lib/sparkthor/cache"
#: where the unit makes vLLM listen
SOCKET = "/run/sparkthor/vllm/vllm.sock"
_GIVEN = ("vllm:generation_tokens_total", "vllm:spec_decode_num_accepted_tokens_total")
#: ports of its own: for Ray, and for the ranks of executor mp
RAY_PORT, MASTER_PORT, BOXED_MASTER_PORT = 7379, 29777, 29778

_READ = (
    "/opt/sparkthor/venv/bin/python -I -c 'import json,yaml; print(json.dumps(yaml.safe_load(open(\""
    + CONFIG
    + "\"))))'"
)
_ENVIRONMENT = """
set -a; . ./env; set +a
unset RAY_ADDRESS RAY_NODE_IP_ADDRESS
export HOME=$PWD RAY_AUTH_MODE=disabled RAY_USAGE_STATS_ENABLED=0 PATH=/opt/sparkthor/venv/bin:$PATH
"""
#: some of the files only root may read
_FOLDER = f"""
umask 077
rm -rf {FOLDER}; install -d -o sparkthor -m 0755 {FOLDER}
for name in fabric engine vllm; do file=/etc/sparkthor/$name.env; [ ! -e $file ] || cat $file; done >{FOLDER}/env
chown sparkthor {FOLDER}/env
"""
#: what the unit of the served one would run, asked with a unit's rights: limits are as high as those allow
_SHOWN = """
exec systemd-run --quiet --pipe --wait python3 -IB /usr/local/lib/sparkthor/sparkthor_host container show vllm "$@"
"""
_RAY = (
    _ENVIRONMENT
    + """exec ray start "$@" --node-ip-address=$VLLM_HOST_IP --num-gpus=1 --disable-usage-stats --block \
  --dashboard-agent-listen-port=7365 --min-worker-port=21000 --max-worker-port=21999
"""
)
#: one of them may not be there, or may go while it is stopped; nothing else is passed over
_STOP = """
failed=0
if command -v docker >/dev/null; then
  for name in by-hand by-hand-boxed; do
    said=$(docker rm -f $name 2>&1) || case $said in
      *"No such container"* | *"is already in progress"* | *"Cannot connect to the Docker daemon"*) ;;
      *) echo "$said" >&2; failed=1 ;;
    esac
  done
fi
for unit in by-hand-vllm by-hand-boxed by-hand-ray; do
  # 5: it is not loaded
  systemctl stop $unit || [ $? -eq 5 ] || failed=1
done
exit $failed
"""
_VLLM = _ENVIRONMENT + '[ -z "${1:-}" ] || export RAY_ADDRESS=$1\nexec vllm serve --config $PWD/vllm.yaml\n'


def config(served: dict[str, Any], head: bool, port: int = PORT) -> dict[str, Any]:
    """The served configuration, listening on a port of its own."""
    found = {key: value for key, value in served.items() if key != "uds"}
    if head:
        found.update(host="127.0.0.1", port=port)
    if "master-port" in found:
        found["master-port"] = MASTER_PORT
    return found


#: what a person's shell would have
_PLAIN = ("LimitNOFILE=65536", "LimitMEMLOCK=infinity")


def _run(
    site: Site, host: str, name: str, script: str, *words: str, folder: str = FOLDER, limits: Sequence[str] = _PLAIN
) -> None:
    """In a control group of its own, which ends as a whole."""
    unit = ["systemd-run", "--quiet", "--collect", f"--unit=by-hand-{name}", "--uid=sparkthor"]
    # Ray's own way to end takes longer than a minute
    unit += [f"--property={one}" for one in (*limits, "TimeoutStopSec=10", f"WorkingDirectory={folder}")]
    unit += [f"--property={stream}=append:{folder}/{name}.log" for stream in ("StandardOutput", "StandardError")]
    # a file, because systemd would take the script's variables for its own
    site.on(host, f"printf %s {shlex.quote(script)} >{folder}/{name}.sh")
    site.lab.exec(host, [*unit, "bash", "-eu", f"{folder}/{name}.sh", *words])


def is_sglang(site: Site) -> bool:
    return site.on(site.head, f"test ! -e {SGLANG} || echo yes").strip() == "yes"


@dataclasses.dataclass(frozen=True)
class Container:
    """One of SGLang by hand."""

    name: str
    unit: str
    folder: str
    port: int
    master_port: int

    @property
    def config(self) -> str:
        return f"{CACHE}/{self.name}.yaml"

    def moved(self, served: str) -> str:
        """SGLang's configuration with ports of its own."""
        text = re.sub(r"^(port:).*$", rf"\1 {self.port}", served, flags=re.MULTILINE)
        return re.sub(r"^(dist-init-addr:.*:)\d+(['\"]?)$", rf"\g<1>{self.master_port}\2", text, flags=re.MULTILINE)

    def words(self, shown: Sequence[str]) -> list[str]:
        """The unit's own ``docker run``, under another name and with the other configuration."""
        words = [self.config if word == SGLANG else word for word in shown]
        words[words.index("--name") + 1] = self.name
        words[words.index("--cidfile") + 1] = f"{self.folder}/cid"
        return words


HAND = Container("by-hand", "by-hand-vllm", FOLDER, PORT, MASTER_PORT)
BOXED = Container("by-hand-boxed", "by-hand-boxed", BOXED_FOLDER, BOXED_PORT, BOXED_MASTER_PORT)


def _start_sglang(site: Site, one: Container) -> None:
    laid = _FOLDER.replace(FOLDER, one.folder)
    for host in site.hosts:
        text = shlex.quote(one.moved(site.on(host, f"cat {SGLANG}")))
        site.on(host, f"{laid}\numask 022; echo {text} >{one.config}")
        model = site.on(host, f"sed -n 's/^model-path: *//p' {SGLANG}").strip().strip("'\"")
        shown = json.loads(site.on(host, _SHOWN, "serve", "--config", SGLANG, "--model-path", model))
        unit = ["systemd-run", "--quiet", "--collect", f"--unit={one.unit}"]
        unit += [f"--property={name}=append:{one.folder}/vllm.log" for name in ("StandardOutput", "StandardError")]
        site.lab.exec(host, [*unit, *one.words(shown)])


def start(site: Site, without: Sequence[str] = ()) -> float:
    """The seconds until it answers; ``without`` these of the served options."""
    begun = time.monotonic()
    probe = ["curl", "-sf", "-m", "2", f"http://127.0.0.1:{PORT}/health"]
    if is_sglang(site):
        _start_sglang(site, HAND)
        _until(site, probe, 400, "SGLang by hand")
        return time.monotonic() - begun
    ray = by_ray(site)
    # without Ray each host has its own rank in its own file
    served = {host: json.loads(site.on(host, _READ)) for host in ([site.head] if ray else site.hosts)}
    site.everywhere(_FOLDER)
    for host, own in served.items():
        kept = {key: value for key, value in config(own, host == site.head).items() if key not in without}
        text = shlex.quote(json.dumps(kept))
        site.on(host, f"echo {text} >{FOLDER}/vllm.yaml; chmod 644 {FOLDER}/vllm.yaml")
    address = _start_ray(site) if ray else ""
    for host in served:
        _run(site, host, "vllm", _VLLM, address)
    _until(site, probe, 400, "vLLM by hand")
    return time.monotonic() - begun


def start_boxed(site: Site) -> None:
    """A second one, in the limits of the served one's unit. One host, without Ray."""
    probe = ["curl", "-sf", "-m", "2", f"http://127.0.0.1:{BOXED_PORT}/health"]
    if is_sglang(site):
        _start_sglang(site, BOXED)
        _until(site, probe, 400, "a second SGLang by hand", BOXED_FOLDER)
        return
    limits = _LIMITS.findall(site.on(site.head, f"systemctl cat {VLLM}"))
    served = config(json.loads(site.on(site.head, _READ)), True, BOXED_PORT)
    site.on(site.head, _FOLDER.replace(FOLDER, BOXED_FOLDER))
    text = shlex.quote(json.dumps(served))
    site.on(site.head, f"echo {text} >{BOXED_FOLDER}/vllm.yaml; chmod 644 {BOXED_FOLDER}/vllm.yaml")
    _run(site, site.head, "boxed", _VLLM, folder=BOXED_FOLDER, limits=limits)
    _until(site, probe, 400, "vLLM by hand in the unit's limits", BOXED_FOLDER)


def _start_ray(site: Site) -> str:
    ray = site.on(site.head, ". /etc/sparkthor/fabric.env; echo $VLLM_HOST_IP").strip()
    head = ("--head", f"--port={RAY_PORT}", f"--temp-dir={FOLDER}/ray", "--include-dashboard=false")
    _run(site, site.head, "ray", _RAY, *head, "--ray-client-server-port=7001")
    _until(site, ["bash", "-c", f": </dev/tcp/{ray}/{RAY_PORT}"], 60, "Ray by hand")
    for host in site.hosts[1:]:
        _run(site, host, "ray", _RAY, f"--address={ray}:{RAY_PORT}")
    return f"{ray}:{RAY_PORT}"


def _until(site: Site, probe: list[str], seconds: float, what: str, folder: str = FOLDER) -> None:
    try:
        wait(lambda: site.lab.exec(site.head, probe, check=False).returncode == 0, seconds, what, 1.0)
    except FaultError as error:
        tail = site.on(site.head, f"tail -n 12 {folder}/*.log", check=False)
        raise FaultError(f"{error}: {tail}") from error


def stop(site: Site) -> None:
    site.everywhere(_STOP)


def by_ray(site: Site) -> bool:
    return "distributed-executor-backend: ray" in site.on(site.head, f"cat {CONFIG}")


def ways(site: Site) -> dict[str, list[str]]:
    """Whom to ask, from the head."""
    point = site.endpoint
    front = ["--url", f"http://{point.address}:{point.port}"]

    def engine(host: str) -> list[str]:
        if is_sglang(site):
            return ["--url", "http://127.0.0.1:30000"]
        # the host's own root, as this machine sees it
        return ["--socket", f"/proc/{site.lab.machine(host).leader()}/root{SOCKET}"]

    return {
        "ours": front,
        "front": front,
        "polled": front,
        "same": [*front, "--same"],
        "engine": engine(site.head),
        "by hand": ["--url", f"http://127.0.0.1:{PORT}"],
        "boxed": ["--url", f"http://127.0.0.1:{BOXED_PORT}"],
        "chain": front,
        "socket": engine(site.worker),
    }


def ask(
    site: Site, whom: list[str], streams: int, seconds: float, tokens: int, seed: int = 0, prompt: int = 128,
    requests: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """The figures of a load that runs in the head's name space of networks."""
    key = site.secrets / "api_key"
    words = ["nsenter", "-t", str(site.leader()), "-n", sys.executable, "-m", "tools.gpu.load", *whom]
    words += ["--model", site.model, "--key-file", str(key), "--streams", str(streams), "--seconds", f"{seconds:g}"]
    words += ["--tokens", str(tokens), "--seed", str(seed), "--prompt", str(prompt), "--requests", str(requests)]
    done = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=False, timeout=seconds + 400)
    if done.returncode:
        raise OSError(f"the load ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def given(site: Site, way: str) -> tuple[float, float]:
    """Tokens that this way's engine has answered with, and those of them that its drafter had guessed."""
    port = {"by hand": PORT, "boxed": BOXED_PORT}.get(way)
    where = f"http://127.0.0.1:{port}" if port else f"--unix-socket {SOCKET} http://localhost"
    sums = dict.fromkeys(_GIVEN, 0.0)
    host = site.worker if way in CHAIN else site.head
    for line in site.on(host, f"curl -sf -m 5 {where}/metrics", check=False).splitlines():
        name = line.partition("{")[0]
        if name in sums:
            sums[name] += float(line.split()[-1])
    return sums[_GIVEN[0]], sums[_GIVEN[1]]


def per_step(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Tokens of one request from one step of the engine: its own, and what was guessed right."""
    tokens, guessed = (late - early for early, late in zip(before, after, strict=True))
    return round(tokens / (tokens - guessed), 4) if tokens > guessed else 0.0


@contextlib.contextmanager
def beside(site: Site, way: str) -> Iterator[None]:
    """What goes on while one way is asked."""
    if way == "polled":
        point = site.endpoint
        with pollers.looking(point.address, point.port, point.key) as looks:
            yield
        if looks.failed or not looks.answers:
            raise OSError(f"{looks.answers} looks at the page were answered, {looks.failed} were not: {looks.error}")
    elif way in WATCHED:
        yield
    else:
        with no_watchdog(site):
            yield


def seeds(asked: Sequence[str]) -> dict[str, int]:
    """What each way adds to a round's seed: no engine is asked the same twice, because its prefix cache would answer,
    and two engines are asked the same, because a drafter guesses some prompts' answers better than others'."""
    shared = [way for way in asked if way not in APART]
    return {way: 0 if way in APART else shared.index(way) for way in asked}


def pairs(
    site: Site,
    streams: Sequence[int],
    rounds: int,
    seconds: float,
    tokens: int,
    rows: list[dict[str, Any]],
    keep: Callable[[Any], None],
    say: Any,
    asked: Sequence[str] = WAYS,
    prompt: int = 128,
    other: Site | None = None,
    requests: int = 0,
) -> None:
    """More of ``rows`` (streams, round, way) with their figures; every second round in the other order."""
    known = ways(site)
    sites = {way: other if other and way == "other" else site for way in asked}
    whom = {way: ways(sites[way])["ours"] if way == "other" else known[way] for way in asked}
    for way, words in whom.items():
        # graphs and caches are warm before the first round
        ask(sites[way], words, max(streams), 2.0, tokens, prompt=prompt, requests=requests)
    later = seeds(asked)
    for number in range(rounds):
        for count in streams:
            if any((row["streams"], row["round"]) == (count, number) for row in rows):
                continue
            first = len(rows) + 1
            for way in whom if number % 2 == 0 else reversed(whom):
                with beside(site, way):
                    seed, before = first + later[way], given(sites[way], way)
                    found = ask(sites[way], whom[way], count, seconds, tokens, seed, prompt, requests)
                    found["tokens_per_step"] = per_step(before, given(sites[way], way))
                rows.append({"streams": count, "round": number, "way": way, **found})
            keep(rows)
            newest = rows[-len(whom) :]
            say(f"  {count} streams: " + "; ".join(f"{row['way']} {row['tokens_per_second']}" for row in newest))
