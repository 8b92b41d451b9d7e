# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one host compiled, packed and laid into the cache of another, and what a tar of somebody else may not do."""

from __future__ import annotations

import io
import os
import tarfile
import time
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import compiled
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry

from tests.unit.stores import read

KERNELS = {
    "triton/ab12/kernel.cubin": b"cubin",
    "inductor/xy/cxy.so": b"\x7fELF",
    ".cache/flashinfer/0.6/121a/cached_ops/decode/decode.so": b"\x7fELF of FlashInfer",
    "vllm/torch_compile_cache/3f6f/rank_0_0/backbone/graph.py": b"graph = 1",
}
#: on the same host, and of nobody else's business
PRIVATE = {
    "huggingface/token": b"hf_secret",
    "vllm/gpu_p2p_access_cache_for_0.json": b"{}",
    "pycache/x.pyc": b"x",
    "triton/ab12/kernel.lock": b"",
}


def lay_down(folder: Path, files: dict[str, bytes], age: float = 3600.0) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (time.time() - age,) * 2)
    return folder


@pytest.fixture
def giver(tmp_path: Path) -> Path:
    return lay_down(tmp_path / "giver", {**KERNELS, **PRIVATE})


@pytest.fixture
def taker(tmp_path: Path) -> Path:
    (tmp_path / "taker").mkdir()
    return tmp_path / "taker"


def packed(cache: Path) -> io.BytesIO:
    out = io.BytesIO()
    compiled.pack(str(cache), out, time.time())
    return io.BytesIO(out.getvalue())


def tar_of(*members: tuple[str, bytes], **more: object) -> io.BytesIO:
    """A tar that ends as ours do."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w|") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in more.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))
        archive.addfile(tarfile.TarInfo(compiled.END))
    return io.BytesIO(out.getvalue())


def test_what_is_compiled_goes_over_and_nothing_else(giver: Path, taker: Path) -> None:
    (giver / "inductor/xy/cxy.so").chmod(0o755)
    lay_down(giver, {"triton/cd34/half.cubin": b"is being written"}, age=1.0)
    (giver / "triton/link").symlink_to(giver / "huggingface/token")
    assert compiled.present(str(giver))
    assert not compiled.present(str(taker))
    laid = compiled.lay(str(taker), packed(giver))
    assert laid == {"files": len(KERNELS), "bytes": sum(map(len, KERNELS.values()))}
    assert read(taker) == KERNELS
    assert os.listdir(taker / "triton") == ["ab12"]
    first, second = ((folder / "inductor/xy/cxy.so").stat() for folder in (giver, taker))
    # a build by ninja compares times
    assert (int(first.st_mtime), 0o755) == (int(second.st_mtime), second.st_mode & 0o777)
    assert compiled.present(str(taker))
    # a second time nothing is left to do
    assert compiled.lay(str(taker), packed(giver)) == {"files": 0, "bytes": 0}


def test_what_is_there_is_never_replaced(giver: Path, taker: Path) -> None:
    own = {"triton/ab12/kernel.cubin": b"my own", "inductor": b"in the way"}
    lay_down(taker, own)
    (taker / "elsewhere").mkdir()
    (taker / ".cache").symlink_to(taker / "elsewhere")
    compiled.lay(str(taker), packed(giver))
    assert (taker / "triton/ab12/kernel.cubin").read_bytes() == b"my own"
    assert (taker / "inductor").read_bytes() == b"in the way"
    assert os.listdir(taker / "elsewhere") == []
    graph = "vllm/torch_compile_cache/3f6f/rank_0_0/backbone/graph.py"
    assert (taker / graph).read_bytes() == KERNELS[graph]


def test_a_link_is_not_followed_for_what_is_given(giver: Path, tmp_path: Path, taker: Path) -> None:
    lay_down(tmp_path / "outside", {"flashinfer/secret": b"of somebody else"})
    (giver / ".cache").rename(tmp_path / "moved")
    (giver / ".cache").symlink_to(tmp_path / "outside")
    compiled.lay(str(taker), packed(giver))
    assert sorted(os.listdir(taker)) == ["inductor", "triton", "vllm"]


@pytest.mark.parametrize(
    "source",
    [
        tar_of(("../../etc/cron.d/x", b"x")),
        tar_of(("/etc/cron.d/x", b"x")),
        tar_of(("triton/../../x", b"x")),
        tar_of(("triton//x", b"x")),
        tar_of(("huggingface/token", b"x")),
        tar_of(("triton", b"x")),
        tar_of(("triton/x", b""), type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        tar_of(("triton/x", b""), type=tarfile.LNKTYPE, linkname="triton/y"),
        tar_of(("triton/x", b""), type=tarfile.FIFOTYPE),
        tar_of(("triton/x", b""), type=tarfile.CHRTYPE),
        tar_of(("triton/x", b""), type=tarfile.DIRTYPE),
        tar_of(("triton/good", b"x"), ("pycache/x.pyc", b"x")),
        tar_of(("triton/x", b"x"), ("triton/x", b"y")),
        tar_of(),
    ],
    ids=lambda _source: "",
)
def test_a_tar_that_leads_elsewhere_leaves_nothing(taker: Path, source: io.BytesIO) -> None:
    with pytest.raises((compiled.CompiledError, FileExistsError)):
        compiled.lay(str(taker), source)
    assert os.listdir(taker) == []


def test_one_that_breaks_off_leaves_nothing(giver: Path, taker: Path) -> None:
    whole = packed(giver).getvalue()
    end = whole.index(compiled.END.encode())
    for length in (0, 300, 512, 700, 1024, 2048, end):
        with pytest.raises((compiled.CompiledError, tarfile.TarError, OSError, EOFError)):
            compiled.lay(str(taker), io.BytesIO(whole[:length]))
        assert os.listdir(taker) == []


def test_what_a_killed_one_left_goes(giver: Path, taker: Path) -> None:
    lay_down(taker, {".compiled-abc/triton/x": b"half"})
    compiled.lay(str(taker), packed(giver))
    assert read(taker) == KERNELS


def test_there_is_a_bound_on_both_sides(giver: Path, taker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = packed(giver)
    monkeypatch.setattr(compiled, "MOST", 10)
    with pytest.raises(compiled.CompiledError, match="not passed on"):
        packed(giver)
    with pytest.raises(compiled.CompiledError, match="not passed on"):
        compiled.lay(str(taker), whole)
    assert os.listdir(taker) == []


def test_root_does_none_of_it(giver: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert compiled.main(["pack", str(giver)]) == 1
    assert "for the serving user alone" in capsys.readouterr().err


def test_the_folders_are_below_those_of_the_engines_variables() -> None:
    for engine in registry.ENGINES.values():
        below = tuple(f"{folder}/" for folder in engine.caches.values())
        assert all(f"{folder}/".startswith(below) for folder in engine.compiled)
