"""`dpssl predict`: labels for new images by a run's end model."""

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

from dpssl.commands.command import Command

MOST_NOTES = 10  # damaged files named one by one


def run_predict(chosen: dict[str, Any]) -> int:
    from dpssl.export.place import new_file, require_free
    from dpssl.export.tables import csv_lines, writer_for
    from dpssl.new_images import label_new_images
    from dpssl.run_folder import RunFolder
    from dpssl.training.precision import pick_device

    folder, out = RunFolder.open(chosen["source"]), Path(chosen["out"]) if chosen["out"] else None
    if out is not None:
        writer_for(out)  # an unknown ending, or a file in the way, fails before the work
        require_free(out, chosen["redo"])
    device, follow_links = pick_device(chosen["device"]), chosen["follow_links"] == "true"
    rows, damaged = label_new_images(folder, Path(chosen["images"]), device, follow_links)
    for name, reason in list(damaged.items())[:MOST_NOTES]:
        print(f"note: {name!r} has no label: it {reason}", file=sys.stderr)
    if len(damaged) > MOST_NOTES:
        print(f"note: and {len(damaged) - MOST_NOTES:,} more files have none", file=sys.stderr)
    if out is None:
        csv.writer(sys.stdout, lineterminator="\n").writerows(csv_lines(rows))
        return 0
    with new_file(out, chosen["redo"]) as draft:
        writer_for(out)(rows, draft)
    print(f"{len(rows):,} images labelled: {out}")
    return 0


def _add_predict(command: argparse.ArgumentParser) -> None:
    command.add_argument("source", metavar="RUN", help="a run folder with an end model")
    command.add_argument("images", metavar="PATH", help="an image, a folder or TAR of images, or an .npz or .npy file")
    command.add_argument("--out", help="file to write, .csv, .parquet or .json; default: CSV to standard output")
    command.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="where the model runs")
    command.add_argument(
        "--follow-links",
        default="false",
        choices=("true", "false"),
        help="read image files by links that lead out of the folder (default: false)",
    )
    command.add_argument("--redo", action="store_true", help="replace the file that --out names")


COMMANDS = (Command("predict", "label new images with a run's end model", _add_predict, run_predict),)
