"""`dpssl export`: a run's labels for other tools, and its end model for other programs."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpssl.commands.command import Command
from dpssl.errors import InputError

if TYPE_CHECKING:
    from dpssl.export.images import Pixels, RunImages
    from dpssl.run_folder import RunFolder

# What --to takes, and where in the run folder the result goes without --out
RESULTS = {
    "csv": "labels.csv",
    "parquet": "labels.parquet",
    "label-studio": "label-studio",
    "cleanlab": "cleanlab.npz",
    "huggingface": "huggingface",
    "image-folder": "image-folder",
    "onnx": "end_model.onnx",
    "torch": "end_model.pt2",
}
WITH_IMAGE_FILES = ("huggingface", "image-folder")
MODELS = ("onnx", "torch")


def run_export(chosen: dict[str, Any]) -> int:
    from dpssl.run_folder import RunFolder

    kind = chosen["to"]
    _refuse_flags_without_effect(kind, chosen)
    folder = RunFolder.open(chosen["source"])
    out = Path(chosen["out"]) if chosen["out"] else folder.path("export") / RESULTS[kind]
    if kind in MODELS:
        _export_model(kind, folder, out, chosen["redo"])
        print(f"end model ({kind}): {out}")
        return 0
    n_total, n_written = _export_labels(kind, folder, out, chosen)
    left_out = f", {n_total - n_written:,} left out" if n_written < n_total else ""
    print(f"{kind}: {n_written:,} images{left_out}: {out}")
    return 0


def _export_labels(kind: str, folder: "RunFolder", out: Path, chosen: dict[str, Any]) -> tuple[int, int]:
    """How many images there were, and how many were written."""
    from dpssl.export.cleanlab_arrays import write_cleanlab
    from dpssl.export.image_tree import write_class_folders, write_huggingface
    from dpssl.export.label_studio import write_label_studio
    from dpssl.export.labels import read_labels
    from dpssl.export.place import new_file, new_folder, require_free
    from dpssl.export.tables import write_csv, write_parquet

    redo = chosen["redo"]
    makes_folder = kind in ("label-studio", *WITH_IMAGE_FILES)
    require_free(out, redo, makes_folder)
    everything = read_labels(folder)
    rows, n_total = everything.at_least(chosen["min_confidence"]), len(everything)
    if not makes_folder:
        with new_file(out, redo) as draft:
            if kind == "cleanlab":
                return n_total, write_cleanlab(rows, folder, draft)
            {"csv": write_csv, "parquet": write_parquet}[kind](rows, draft)
        return n_total, len(rows)
    images = _images(folder, chosen)
    run_name = folder.folder.absolute().name
    with new_folder(out, redo, {"to": kind, "run": str(folder.folder.absolute())}) as draft:
        if kind == "label-studio":
            return n_total, write_label_studio(rows, images, draft, chosen["image_url"], f"dpssl {run_name}")
        write = {"huggingface": write_huggingface, "image-folder": write_class_folders}[kind]
        return n_total, write(rows, images, draft, chosen["files"] or "link")


def _images(folder: "RunFolder", chosen: dict[str, Any]) -> "RunImages":
    from dpssl.export.images import RunImages

    def load_pixels() -> "Pixels":
        from dpssl.runs import open_run

        dataset = open_run(folder.folder, writes=False).dataset
        return dataset.ids, dataset.images

    images = RunImages.of(folder, load_pixels)
    if chosen["files"] and images.root is None:
        raise InputError(
            f"--{chosen['files']}: {folder.folder} was made from arrays or an archive, which have no image files; "
            "leave the flag out, and PNG files are written"
        )
    return images


def _export_model(kind: str, folder: "RunFolder", out: Path, redo: bool) -> None:
    from dpssl.export.model import write_onnx, write_torch
    from dpssl.export.place import new_file

    with new_file(out, redo) as draft:
        {"onnx": write_onnx, "torch": write_torch}[kind](folder, draft)


def _refuse_flags_without_effect(kind: str, chosen: dict[str, Any]) -> None:
    if chosen["files"] and kind not in WITH_IMAGE_FILES:
        raise InputError(f"--{chosen['files']}: only with --to {' or '.join(WITH_IMAGE_FILES)}, not {kind}")
    if chosen["image_url"] and kind != "label-studio":
        raise InputError(f"--image-url {chosen['image_url']}: only with --to label-studio, not {kind}")
    if chosen["min_confidence"] and kind in MODELS:
        raise InputError(f"--min-confidence {chosen['min_confidence']}: only for labels, not with --to {kind}")


def _add_export(command: argparse.ArgumentParser) -> None:
    command.add_argument("source", metavar="RUN", help="a run folder")
    command.add_argument(
        "--to", required=True, choices=tuple(RESULTS), help="format of the labels, or of the end model"
    )
    command.add_argument("--out", help="file or folder to write; default: a name after the format in RUN/export/")
    command.add_argument(
        "--min-confidence", type=float, default=0.0, metavar="P", help="leave out images whose label is less sure"
    )
    files = command.add_mutually_exclusive_group()
    files.add_argument(
        "--link", dest="files", action="store_const", const="link", help="link the image files (the default)"
    )
    files.add_argument("--copy", dest="files", action="store_const", const="copy", help="copy the image files")
    command.add_argument(
        "--image-url", default="", metavar="URL", help="for label-studio: the address to which each id is added"
    )
    command.add_argument("--redo", action="store_true", help="replace an earlier export")


COMMANDS = (Command("export", "labels for other tools, or the end model for other programs", _add_export, run_export),)
