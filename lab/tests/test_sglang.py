# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab's SGLang is made of: wheels of one version each, and names in place of compiled kernels."""

from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ENGINE = Path(__file__).parents[1] / "engine"


@pytest.fixture(scope="module")
def sglang() -> ModuleType:
    # a folder of programs, not a package
    sys.path.insert(0, str(ENGINE))
    try:
        return importlib.import_module("sglang")
    finally:
        sys.path.remove(str(ENGINE))


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}"]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def installed(sglang: ModuleType, tmp_path: Path) -> Path:
    made = sglang.packages.write_wheel(str(tmp_path), *sglang.KERNELS, sglang.stub_files())
    with zipfile.ZipFile(made) as archive:
        archive.extractall(tmp_path / "site")
    return tmp_path / "site"


def test_everything_of_the_kernels_can_be_imported(installed: Path) -> None:
    done = run(
        "import sgl_kernel, torchvision.transforms as T\n"
        "from sgl_kernel.deep.below import some_op\n"
        "from torchvision.transforms import InterpolationMode\n"
        "class Own(T.Resize): pass\n"
        "from importlib.metadata import version\n"
        "print(sgl_kernel.__version__, version('sglang-kernel'), some_op.__name__, Own.__mro__[1:],\n"
        "      InterpolationMode.BICUBIC.__name__, hasattr(sgl_kernel, '__wrapped__'))",
        installed,
    )
    assert done.returncode == 0, done.stderr
    names = "sgl_kernel.deep.below.some_op (<class 'object'>,) torchvision.transforms.InterpolationMode.BICUBIC"
    assert done.stdout == f"0.4.10 0.4.10 {names} False\n"


def test_nothing_of_the_kernels_can_be_called(installed: Path) -> None:
    done = run("import sgl_kernel\nsgl_kernel.rmsnorm(1, eps=2)", installed)
    assert done.returncode == 1
    assert "RuntimeError: sgl_kernel.rmsnorm is a name without a function" in done.stderr


def test_other_modules_are_as_absent_as_before(installed: Path) -> None:
    done = run("import sgl_kernel\nimport sgl_kernels", installed)
    assert "No module named 'sgl_kernels'" in done.stderr


def test_a_wheel_comes_from_one_lock_alone(sglang: ModuleType) -> None:
    """Those of the lab's vLLM that go into the image, and those beside them."""
    pins = sglang.engine_pins.read_lock
    whole = {pin.name for pin in pins(sglang.prepare.LOCK, "lock")}
    beside = {pin.name for pin in pins(sglang.LOCK, "lock")}
    assert beside.isdisjoint(whole)
    assert whole >= sglang.OTHERS
    assert {"torch", "transformers", "xgrammar"} <= whole - sglang.OTHERS - sglang.image.RAYS_ALONE
    assert f"sglang=={sglang.NAME.rpartition(':')[2]}" in map(str, pins(sglang.LOCK, "lock"))


def test_its_image_is_named_by_what_it_is_made_of(
    sglang: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sglang.digest()
    other = tmp_path / "stub.py"
    other.write_bytes(Path(sglang.STUB).read_bytes() + b"\n")
    monkeypatch.setattr(sglang, "STUB", str(other))
    assert sglang.digest() != before


def test_an_archive_takes_the_place_of_others_of_its_kind(sglang: ModuleType, tmp_path: Path) -> None:
    for name in ("sglang-old.tar", "vllm-other.tar"):
        (tmp_path / name).touch()
    target = tmp_path / "sglang-new.tar"
    sglang.image.only(str(target), target.touch)
    sglang.image.only(str(target), lambda: pytest.fail("it is there"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sglang-new.tar", "vllm-other.tar"]
