"""The prompts of measurements: held-out questions of the families, or the prompts of files."""

from collections.abc import Sequence
from pathlib import Path

from simsd.errors import RequestError
from simsd.eval.datasets import Item, Row, family_item, items, read_rows, recognise
from simsd.eval.families import FAMILIES


def family_items(families: Sequence[str], per_family: int, seed: int = 11) -> list[Item]:
    """Return held-out questions. The families take turns, so that the first n are a fair sample too."""
    columns = [FAMILIES[name].questions("heldout", per_family, seed) for name in families]
    return [family_item(q, index) for index, row in enumerate(zip(*columns, strict=True)) for q in row]


def file_items(paths: list[Path], per_file: int, shots: int | None = None) -> list[Item]:
    """Return the first prompts of each file: a data set of `simsd.eval.datasets` (`shots` as there), or plain prompts.

    A plain prompt is a line with `prompt` or `messages`. Its answer is not known, so it has no accuracy.
    """
    found: list[Item] = []
    for path in paths:
        rows = read_rows(path)
        data_set = recognise(rows[0]) if rows else None
        if data_set is not None:
            found += items(data_set, rows, per_file, shots)
        else:
            found += [_plain(path, index, row) for index, row in enumerate(rows[:per_file])]
    if not found:
        raise RequestError(f"no prompts in {', '.join(map(str, paths))}", "prompts")
    return found


def _plain(path: Path, index: int, row: Row) -> Item:
    messages = row.get("messages")
    if messages is None and isinstance(row.get("prompt"), str):
        messages = [{"role": "user", "content": row["prompt"]}]
    if not isinstance(messages, list):
        raise RequestError(f"{path}, row {index}: neither prompt nor messages, nor a data set that is known here")
    return Item(path.stem, f"{path.stem}/{index}", messages, None)
