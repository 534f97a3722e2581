"""What every test shares: one thread per worker, the checkout's paths, and the command line in a real subprocess."""

import os

# One thread per worker, and idle threads that sleep: OpenMP reads these once, when torch is first imported.
SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
}
os.environ.update(SINGLE_THREADED)

import importlib.util  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Iterator, Mapping  # noqa: E402
from pathlib import Path  # noqa: E402
from types import ModuleType  # noqa: E402

import hypothesis  # noqa: E402
import pytest  # noqa: E402

# The same examples on every machine, and no verdict that depends on how fast the machine is.
hypothesis.settings.register_profile("dpssl", derandomize=True, deadline=None)
hypothesis.settings.load_profile("dpssl")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_tests:
        return
    import torch

    if not torch.cuda.is_available():
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session", autouse=True)
def decoded_image_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the cache of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSSL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def repo_root() -> Path:
    return Path(__file__).resolve().parents[1]


@pytest.fixture
def benchmark_script(repo_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """`benchmark_script("harness")`: a script of benchmarks/ as a module."""
    folder = repo_root / "benchmarks"
    monkeypatch.syspath_prepend(folder)

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"{name}_benchmark", folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(script)
        return script

    yield load
    sys.modules.pop("results_file", None)


@pytest.fixture(scope="session")
def shared_data(repo_root: Path) -> Path:
    """The folder of real datasets beside the checkout; the test is skipped where there is none."""
    folder = repo_root.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no ../shared/data beside the checkout")
    return folder


@pytest.fixture
def run_cli(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run_cli("run", "--seed", 1)`: `python -m dpssl run --seed 1` in a subprocess, in an empty folder."""

    def run(
        *args: object, cwd: Path = tmp_path, env: Mapping[str, str] | None = None, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "dpssl", *map(str, args)],
            cwd=cwd,
            env={**os.environ, **SINGLE_THREADED, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
