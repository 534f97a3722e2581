"""Rules that hold for the repository as a whole, whichever file is touched next."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "dpssl"
MODULES = sorted(SOURCE.rglob("*.py"))
PRESETS = sorted((SOURCE / "presets").glob("*.toml"))

MAX_LINES = 400
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home/\w+)/")
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}
UNSAFE_CALLS = {"eval", "exec", "torch.load", "torch.save", "joblib.load", "joblib.dump"}
# Present on a bare GPU machine; everything else has to be imported where it is used.
BARE_MACHINE_LACKS = (
    "scipy", "sklearn", "tqdm", "pandas", "pyarrow", "matplotlib", "jinja2", "fastapi", "uvicorn"
)  # fmt: skip


def relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def unsafe_uses(tree: ast.AST) -> list[str]:
    """Everything in a module that could run code from a file: pickle in any dress, eval, exec."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in UNSAFE_MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in UNSAFE_MODULES:
            found.append(node.module)
        elif isinstance(node, ast.Call):
            only_tensors = any(ast.unparse(keyword) == "weights_only=True" for keyword in node.keywords)
            if ast.unparse(node.func) in UNSAFE_CALLS and not only_tensors:
                found.append(ast.unparse(node.func))
            for keyword in node.keywords:
                allowed = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                if keyword.arg == "allow_pickle" and not allowed:
                    found.append(ast.unparse(keyword))
    return found


def run_python(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, check=False)


def test_the_search_for_unsafe_calls_finds_them() -> None:
    code = "import pickle\nfrom dill import load\neval('1')\ntorch.load(f)\nnp.load(f, allow_pickle=True)\n"
    assert len(unsafe_uses(ast.parse(code))) == 5
    safe = "model.eval()\nnp.load(f, allow_pickle=False)\ntorch.load(f, weights_only=True)\n"
    assert unsafe_uses(ast.parse(safe)) == []


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_module_is_safe_short_and_finished(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    assert unsafe_uses(ast.parse(text)) == []
    assert len(text.splitlines()) <= MAX_LINES, "split it by subject"
    assert not re.search(r"\b(?:TODO|FIXME|XXX)\b", text)
    assert module.stem not in {"utils", "helpers", "common", "misc"}, "name it after what it holds"


def test_no_file_names_a_path_of_one_machine(repo_root: Path) -> None:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=repo_root, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    offenders = []
    for name in filter(None, listing.stdout.split("\0")):
        path = repo_root / name
        if path.is_file() and MACHINE_PATH.search(path.read_bytes().decode("utf-8", errors="ignore")):
            offenders.append(name)
    assert offenders == []


def heading_anchor(heading: str) -> str:
    """What a page calls the heading in its address: small letters, no punctuation, hyphens for spaces."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def test_links_between_documents_lead_somewhere(repo_root: Path) -> None:
    texts = {
        path.resolve(): path.read_text(encoding="utf-8")
        for path in [*repo_root.glob("*.md"), *(repo_root / "docs").glob("*.md")]
    }
    anchors = {path: set(map(heading_anchor, re.findall(r"^#+ (.*)$", text, re.M))) for path, text in texts.items()}
    broken = []
    for document, text in texts.items():
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in link or link.startswith("mailto:"):
                continue
            file, _, anchor = link.partition("#")
            target = (document.parent / file).resolve() if file else document
            if not target.exists() or (anchor and anchor not in anchors.get(target, {anchor})):
                broken.append(f"{document.name}: {link}")
    assert broken == []


def test_presets_exist() -> None:
    assert PRESETS


@pytest.mark.parametrize("preset", PRESETS, ids=relative)
def test_preset_is_valid_toml_and_explains_itself(preset: Path) -> None:
    text = preset.read_text(encoding="utf-8")
    assert tomllib.loads(text)
    assert text.startswith("#"), "the first line says what the preset is for"


@pytest.mark.parametrize("args", [("-c", "import dpssl"), ("-m", "dpssl", "--help"), ("-m", "dpssl", "--version")])
def test_torch_is_not_imported_before_it_is_needed(args: tuple[str, ...]) -> None:
    done = run_python("-X", "importtime", *args)
    assert done.returncode == 0, done.stderr[-2000:]
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "dpssl" in imported
    assert not imported & {"torch", "scipy", "sklearn"}


def test_training_path_imports_on_a_machine_with_torch_numpy_pillow_and_safetensors_only() -> None:
    names = [
        ".".join(("dpssl", *module.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for module in MODULES
        if module.name != "__main__.py"
        and relative(module).split("/")[0] not in ("label_model", "estimator.py")
        and not module.name.startswith("triton_")  # imported where there is Triton
    ]
    code = (
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({BARE_MACHINE_LACKS!r}))\n"  # None there makes the import fail
        f"for name in {names!r}: importlib.import_module(name)\n"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr[-2000:]
