# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# a program of the host, which prints what it says:
# pylint: disable=ansible-bad-function
"""Takes the wanted configuration of the front proxy into use only if nginx accepts it.

This runs as root, because what is wanted holds keys; nginx never does, not even to test a configuration.

The last good one stays beside it: a mistake (a torn certificate, an address of another host) never takes the front
proxy down.
"""

from __future__ import annotations

import argparse
import contextlib
import grp
import hashlib
import os
import re
import shutil
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

from .._lib import files, foreign
from .._lib.command import run_limited

FOLDER = "/etc/sparkthor"
#: names of keys that somebody blocked on the page; root's part of the page writes it
BLOCKED = "/var/lib/sparkthor-console/blocked.json"
_NAME = re.compile(r"[a-z0-9_-]{1,32}")
#: whom nginx runs as, and the group that may read the configuration in use
USER = "sparkthor-front"
#: a self-made certificate is made anew this many seconds before its end
RENEW_BEFORE = 2592000
#: seconds that a command here may take: nginx asks for names, openssl waits for randomness, cp for a disk
LIMIT = 60.0
INVALID = "the wanted configuration of the front proxy is not valid"


class FrontError(Exception):
    """Why the wanted configuration is not taken into use."""


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8").rstrip("\n") if path.exists() else ""


def fingerprint(root: str = "/", folder: str = FOLDER) -> str:
    """SHA-256 of the certificate that was made here and is in use, written as openssl does; else nothing."""
    good = Path(root) / folder.lstrip("/") / "front.good"
    try:
        if not (good / "self-signed").exists():
            return ""
        certificate = ssl.PEM_cert_to_DER_cert(_text(good / "tls.crt"))
    except (OSError, ValueError):
        return ""
    return hashlib.sha256(certificate).digest().hex(":").upper()


def _must(argv: Sequence[str]) -> None:
    """Run a command that has to succeed.  Raises OSError with its own words."""
    status, out, err = run_limited(argv, LIMIT)
    if status:
        raise OSError((err or out).strip() or f"{argv[0]} ended with {status}")


def is_due(wanted: Path) -> bool:
    """Whether a certificate has to be made for the names in the file ``self-signed``, where there is such a file."""
    if not (wanted / "self-signed").exists():
        return False
    certificate = wanted / "tls.crt"
    if not _has_content(certificate) or _text(wanted / "tls.names") != _text(wanted / "self-signed"):
        return True
    check = ["openssl", "x509", "-checkend", str(RENEW_BEFORE), "-noout", "-in", str(certificate)]
    return run_limited(check, LIMIT)[0] != 0


def make_certificate(wanted: Path) -> None:
    """A certificate for the names in the file ``self-signed``.  Raises OSError."""
    names = _text(wanted / "self-signed")
    certificate = wanted / "tls.crt"
    print(f"making a certificate for {names}", flush=True)
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-days", "825", "-sha256", "-subj", "/CN=sparkthor", "-addext", f"subjectAltName={names}"]
    argv += ["-keyout", str(wanted / ".tls.key"), "-out", str(wanted / ".tls.crt")]
    _must(argv)
    (wanted / ".tls.key").replace(wanted / "tls.key")
    (wanted / ".tls.crt").replace(certificate)
    (wanted / "tls.names").write_text(f"{names}\n", encoding="utf-8")


def hand_over_to_front(folder: Path, user: str) -> None:
    """Let nginx read what is root's.  Raises OSError or KeyError."""
    if os.geteuid() != 0:
        return
    group = grp.getgrnam(user).gr_gid
    for path in (folder, *folder.iterdir()):
        os.chown(path, 0, group, follow_symlinks=False)
        path.chmod(0o750 if path == folder else 0o640)


def as_nginx(user: str) -> list[str]:
    """What goes before a command that nginx's user is to run, with what its unit lets it do besides."""
    if os.geteuid() != 0:
        return []
    ports = [f"--{kind}-caps=+net_bind_service" for kind in ("inh", "ambient")]
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", *ports]


def check_with_nginx(copy: Path, wanted: Path, user: str) -> None:
    """Raises FrontError with what nginx says against the copy, in words about what it is a copy of."""
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    status, out, err = run_limited([*as_nginx(user), nginx, "-t", "-q", "-c", str(copy / "nginx.conf")], LIMIT)
    if status != 0:
        raise FrontError(f"{INVALID}: {(out + err).strip().replace(str(copy), str(wanted))}")


def blocked_keys(path: str = BLOCKED) -> list[str]:
    """Names of the keys that are refused whatever the inventory has.  Raises FrontError for a file that is none."""
    try:
        told = foreign.parse_object(files.read_own(path), most=65536)["blocked"]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError) as error:
        raise FrontError(f"{path} cannot be read ({error}); remove it, which lets the keys in again") from error
    if not isinstance(told, list) or not all(isinstance(name, str) and _NAME.fullmatch(name) for name in told):
        raise FrontError(f"{path} is no list of names of keys; remove it, which lets the keys in again")
    return sorted(told)


def blocked_map(names: Sequence[str]) -> str:
    """Lines of nginx's map from a key's name to the one that counts: none."""
    return "".join(f'"~^{name}$" "";\n' for name in names)


def take(wanted: Path, good: Path, user: str = USER, blocked: Sequence[str] = ()) -> None:
    """Make a copy of ``wanted`` the good configuration.  Raises FrontError with the reason why it cannot be."""
    if is_due(wanted):
        try:
            make_certificate(wanted)
        except OSError as error:
            raise FrontError(f"the self-made certificate could not be made (is openssl installed?): {error}") from error
    new, old = good.with_name(f"{good.name}.new"), good.with_name(f"{good.name}.old")
    shutil.rmtree(new, ignore_errors=True)
    try:
        # cp keeps owners and modes: nobody else reads it before it is whole
        _must(["cp", "-a", str(wanted), str(new)])
        if blocked:
            (new / "blocked.conf").write_text(blocked_map(blocked), encoding="utf-8")
        hand_over_to_front(new, user)
        check_with_nginx(new, wanted, user)
        shutil.rmtree(old, ignore_errors=True)
        if good.exists():
            good.rename(old)
        new.rename(good)
    except (OSError, KeyError) as error:
        raise FrontError(f"{good} cannot be replaced: {error}") from error
    finally:
        # what nginx refused, or half a copy on a full disk, must not stay: there are keys in it
        shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sparkthor_host front-config", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "action",
        choices=("start", "reload", "due"),
        help="start falls back to the last good configuration and says so; reload fails, so that whoever asked knows; "
        "due ends with 0 where a certificate that was made here has to be renewed",
    )
    parser.add_argument("--folder", default=FOLDER, help="default: %(default)s")
    parser.add_argument("--user", default=USER, help="whom nginx runs as; default: %(default)s")
    parser.add_argument("--blocked", default=BLOCKED, help="names of blocked keys; default: %(default)s")
    options = parser.parse_args(argv)
    os.umask(0o077)
    wanted, good = Path(options.folder) / "front", Path(options.folder) / "front.good"
    if options.action == "due":
        return 0 if is_due(wanted) else 1
    old = good.with_name(f"{good.name}.old")
    if not good.exists() and old.exists():  # an exchange that was interrupted between its two renames
        old.rename(good)
    try:
        take(wanted, good, options.user, blocked_keys(options.blocked))
    except FrontError as error:
        print(error, file=sys.stderr, flush=True)
        if options.action == "start" and _has_content(good / "nginx.conf"):
            print("the front proxy goes on with its last good configuration", file=sys.stderr, flush=True)
            with contextlib.suppress(OSError, KeyError):  # a former version's is root's alone
                hand_over_to_front(good, options.user)
            return 0
        return 1
    return 0
