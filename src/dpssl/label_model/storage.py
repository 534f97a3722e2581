"""Step 2: a fitted model as one safetensors file: arrays as tensors, everything else as JSON in the metadata."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from dpssl.errors import InputError, RunFolderError

FORMAT = "dpssl-label-model/1"
METADATA_KEY = "dpssl"


def save_parts(path: str | Path, header: dict[str, Any], parts: dict[str, Any]) -> None:
    """Write named dataclasses of arrays and plain values, and a header. The file appears whole or not at all."""
    path = Path(path)
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    plain: dict[str, dict[str, Any]] = {}
    for name, part in parts.items():
        fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
        arrays = {key: value for key, value in fields.items() if isinstance(value, np.ndarray)}
        tensors |= {f"{name}.{key}": np.ascontiguousarray(value) for key, value in arrays.items()}
        plain[name] = {key: value for key, value in fields.items() if key not in arrays}
    # One entry: the format writes several in random order, and equal models should give equal bytes.
    text = json.dumps({"format": FORMAT, "header": header, "plain": plain}, sort_keys=True)
    content = save(tensors, {METADATA_KEY: text})
    unfinished = path.with_name(path.name + ".part")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise RunFolderError(f"{path}: cannot write the label model ({error})") from error


def load_header(path: str | Path) -> dict[str, Any]:
    """The header of a saved model."""
    return _read(Path(path))[0]


def load_part(path: str | Path, name: str, kind: type[Any]) -> Any:
    """One named dataclass of a saved model."""
    _, plain, tensors = _read(Path(path))
    prefix = f"{name}."
    arrays = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
    try:
        return kind(**plain[name], **arrays)
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{path}: part {name!r} does not fit this version of dpssl ({error}); fit and save it again"
        ) from error


def _read(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]], dict[str, np.ndarray[Any, Any]]]:
    if not path.is_file():
        raise InputError(f"{path}: no such file of a label model")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = json.loads((file.metadata() or {}).get(METADATA_KEY, "{}"))
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  (not a dict)
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path}: damaged, or not a label model ({error}); fit and save it again") from error
    if metadata.get("format") != FORMAT:
        raise InputError(f"{path}: not a label model of this version (format {metadata.get('format')!r})")
    return metadata["header"], metadata["plain"], tensors
