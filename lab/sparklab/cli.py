# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line. Exit status 2 and one line on stderr for everything a user can fix."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from . import lab as labs
from .checks import require
from .lab import Lab
from .system import LabError, say


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="sparklab", description="Simulated DGX Spark and Jetson Thor hosts.")
    top.add_argument("--home", help="where labs live (default: .lab in the checkout, or $SPARKLAB_HOME)")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--home", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    common.add_argument("--name", help="which lab (default: the only one, or $SPARKLAB_NAME)")

    def verb(name: str, text: str, *, aliases: Sequence[str] = ()) -> argparse.ArgumentParser:
        return verbs.add_parser(name, help=text, description=text, parents=[common], aliases=list(aliases))

    def hosts(one: argparse.ArgumentParser, least: str = "*") -> argparse.ArgumentParser:
        text = "all hosts if none is given" if least == "*" else None
        one.add_argument("hosts", nargs=least, metavar="HOST", help=text)
        return one

    create = verb("create", "make what is lacking of a lab, boot it, wait for ssh")
    create.add_argument("-i", "--inventory", action="append", required=True, metavar="INVENTORY")
    create.add_argument("--subnet", help=f"management network (default: lab_subnet, else {labs.DEFAULT_SUBNET})")
    create.add_argument("--suite", help=f"bookworm, trixie or machine (default: lab_suite, else {labs.DEFAULT_SUITE})")
    create.add_argument("--disk", help=f"size of each host's disk (default: lab_disk, else {labs.DEFAULT_DISK})")
    create.add_argument(
        "--layer", action="append", default=[], help="an extra layer over the base: docker, or a folder"
    )
    create.add_argument("--wire", metavar="FILE", help="YAML: cables, switches, swap, unplug, cage")
    create.add_argument("--no-boot", action="store_true", help="make it, but leave it switched off")

    base = verbs.add_parser("base", help="make base images ahead of time", description="make base images ahead of time")
    base.add_argument("suites", nargs="+", metavar="SUITE")
    base.add_argument("--layer", action="append", default=[])

    verb("list", "the labs of this home")
    hosts(verb("status", "power, addresses and ssh of the hosts")).add_argument("--json", action="store_true")
    hosts(verb("boot", "power on", aliases=["up"]))
    hosts(verb("off", "power loss: cables first, then everything at once"), "+")
    hosts(verb("shutdown", "orderly power-off"), "+")
    hosts(verb("cycle", "power loss and power-on"), "+")
    hosts(verb("reboot", "orderly reboot"), "+")
    wait = hosts(verb("wait", "wait for ssh"))
    wait.add_argument("-t", "--timeout", type=float, default=90)

    def fault(name: str, text: str) -> argparse.ArgumentParser:
        one = verb(name, text)
        one.add_argument("host", metavar="HOST")
        return one

    nics: dict[str, Any] = {"nargs": "*", "metavar": "NIC", "help": "all but the management NIC if none is given"}
    cut = fault("cut", "take the carrier away, at the far end of the cable")
    cut.add_argument("nics", **nics)
    cut.add_argument("--silent", action="store_true", help="leave the carrier, but let nothing pass")
    fault("fix", "undo cut, loss, oneway and blackhole").add_argument("nics", nargs="*", metavar="NIC")
    loss = fault("loss", "lose a share of the packets (0 ends it)")
    loss.add_argument("percent", type=float)
    loss.add_argument("nics", **nics)
    oneway = fault("oneway", "nothing from HOST reaches TARGET; the other way is whole")
    oneway.add_argument("target", metavar="TARGET")
    oneway.add_argument("--end", action="store_true")
    rate = fault("rate", "limit a NIC in both directions")
    rate.add_argument("nic", metavar="NIC", help="a NIC, or all")
    rate.add_argument("mbit", metavar="MBIT|none")
    blackhole = fault("blackhole", "frames above 1500 bytes vanish")
    blackhole.add_argument("nics", **nics)
    blackhole.add_argument("--end", action="store_true")
    memory = fault("memory", "what /proc/meminfo says is available, until the next boot")
    memory.add_argument("available_mb", type=int, metavar="MB")

    run = fault("exec", "a command inside a host, without ssh")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD")
    ssh = fault("ssh", "a shell or a command over ssh")
    ssh.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD")
    verb("cp", "copy; HOST:PATH is a path on a host").add_argument("paths", nargs="+", metavar="PATH")
    destroy = verb("destroy", "remove every trace of a lab")
    destroy.add_argument("--all", action="store_true", help="all labs of this home")
    return top


def create(args: argparse.Namespace) -> None:
    wiring = None
    if args.wire:
        wiring = yaml.safe_load(Path(args.wire).read_text())
        if not isinstance(wiring, dict):
            raise LabError(f"{args.wire}: a mapping is needed")
    Lab.create(
        args.inventory,
        home=args.home,
        name=args.name,
        subnet=args.subnet,
        suite=args.suite,
        disk=args.disk,
        layers=args.layer,
        wiring=wiring,
        boot=not args.no_boot,
    )


def without_dashes(command: list[str]) -> list[str]:
    return command[1:] if command[:1] == ["--"] else command


def act(args: argparse.Namespace) -> int:
    if args.verb == "create":
        create(args)
        return 0
    if args.verb == "base":
        from .base import base, layer

        require()
        for suite in args.suites:
            print(base(suite))
            for name in args.layer:
                print(layer(name, suite))
        return 0
    if args.verb == "list":
        for name in labs.labs(args.home):
            one = Lab(name, args.home)
            power = [row["power"] for row in one.status()]
            print(f"{name:<14}{one.plan.subnet:<20}{one.plan.suite:<10}{power.count('on')} of {len(power)} hosts on")
        return 0
    if args.verb == "destroy":
        if args.all:
            names = labs.labs(args.home)
        elif args.name:
            names = [args.name] if args.name in labs.labs(args.home) else []
        else:
            names = [labs.only_lab(args.home).name] if labs.labs(args.home) else []
        for name in names:
            Lab(name, args.home).destroy()
            say(f"lab {name} is gone")
        if not names:
            say("there is no such lab")
        return 0
    lab = Lab(args.name, args.home) if args.name else labs.only_lab(args.home)
    return act_on(lab, args)


def act_on(lab: Lab, args: argparse.Namespace) -> int:
    match args.verb:
        case "status":
            rows = lab.status(*args.hosts)
            if args.json:
                print(json.dumps(rows, indent=1))
            else:
                for row in rows:
                    ssh = "ssh" if row["ssh"] else "-"
                    where = f"{row['host']:<16}{row['kind']:<7}{row['address']:<16}"
                    print(f"{where}{row['power']:<4} {ssh:<4} pid {row['pid1'] or '-'}")
        case "boot" | "up":
            lab.boot(*args.hosts)
        case "off":
            lab.off(*args.hosts)
        case "shutdown":
            lab.shutdown(*args.hosts)
        case "cycle":
            lab.cycle(*args.hosts)
        case "reboot":
            lab.reboot(*args.hosts)
        case "wait":
            lab.wait(*args.hosts, seconds=args.timeout)
        case "cut":
            lab.cut(args.host, *args.nics, silent=args.silent)
        case "fix":
            lab.fix(args.host, *args.nics)
        case "loss":
            lab.loss(args.host, args.percent, *args.nics)
        case "oneway":
            lab.oneway(args.host, args.target, on=not args.end)
        case "rate":
            try:
                mbit = None if args.mbit == "none" else float(args.mbit)
            except ValueError as exc:
                raise LabError(f"rate {args.mbit!r}: a number of Mbit/s, or none") from exc
            lab.rate(args.host, [] if args.nic == "all" else [args.nic], mbit)
        case "blackhole":
            lab.blackhole(args.host, *args.nics, on=not args.end)
        case "memory":
            lab.memory(args.host, args.available_mb)
        case "exec":
            command = without_dashes(args.command)
            if not command:
                raise LabError("exec: which command?")
            return labs.call(lab.enter_command(args.host, command))
        case "ssh":
            return labs.call(lab.ssh_command(args.host, without_dashes(args.command)))
        case "cp":
            return labs.call(lab.cp_command(args.paths))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        if args.verb not in ("list", "create", "base") and os.geteuid() != 0:
            raise LabError("root is needed")
        return act(args)
    except LabError as exc:
        print(f"sparklab: {exc}", file=sys.stderr)
        return 2
    except OSError as exc:
        print(f"sparklab: {exc}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sparklab: stopped; run the same again to go on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
