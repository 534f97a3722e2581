"""The wheel as a user gets it: built, installed into a fresh environment, and started there."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import dpssl

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    # A PYTHONPATH that names the checkout would hide what the wheel lacks.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def wheel(repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel")
    run(*pip, "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, repo_root, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def fresh_bin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the wheel; the other packages come from this one, through a path file."""
    folder = tmp_path_factory.mktemp("fresh")
    builder = venv.EnvBuilder(symlinks=True)
    builder.create(folder)
    bin_folder = Path(builder.ensure_directories(folder).bin_path)
    # Python reads path files only in its own site-packages, so this environment's editable install stays out of sight.
    site_packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    (Path(site_packages) / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", bin_folder / "python")
    # The outer dpssl is on the path as well: without --ignore-installed pip would try to remove it.
    run(*pip, "install", "--no-deps", "--no-index", "--ignore-installed", wheel, cwd=folder)
    return bin_folder


def test_wheel_holds_every_file_of_the_package(wheel: Path, repo_root: Path) -> None:
    source = repo_root / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / "dpssl").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == expected
    assert "dpssl/py.typed" in packed
    assert any(name.startswith("dpssl/presets/") and name.endswith(".toml") for name in packed)


def test_wheel_carries_the_licence_and_the_version(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    info = f"dpssl-{dpssl.__version__}.dist-info"
    assert "Apache License" in archive.read(f"{info}/licenses/LICENSE").decode()
    assert f"\nVersion: {dpssl.__version__}\n" in archive.read(f"{info}/METADATA").decode()


def test_fresh_environment_imports_the_wheel_not_the_checkout(fresh_bin: Path, tmp_path: Path) -> None:
    imported_from = run(fresh_bin / "python", "-c", "import dpssl; print(dpssl.__file__)", cwd=tmp_path)
    assert Path(imported_from).is_relative_to(fresh_bin.parent)


def test_both_ways_to_start_print_the_version(fresh_bin: Path, tmp_path: Path) -> None:
    for command in ([fresh_bin / "dpssl"], [fresh_bin / "python", "-m", "dpssl"]):
        assert dpssl.__version__ in run(*command, "--version", cwd=tmp_path)


def test_presets_are_readable_from_the_wheel(fresh_bin: Path, tmp_path: Path, repo_root: Path) -> None:
    names = (
        "from importlib.resources import files; "
        "print(*sorted(p.name for p in (files('dpssl') / 'presets').iterdir() if p.name.endswith('.toml')))"
    )
    expected = sorted(path.name for path in (repo_root / "src/dpssl/presets").glob("*.toml"))
    assert run(fresh_bin / "python", "-c", names, cwd=tmp_path).split() == expected
