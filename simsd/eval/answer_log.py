"""Answers on disk, a JSON line each, so that a run that was stopped goes on where it was."""

import json
from pathlib import Path
from typing import Any

from simsd.errors import RequestError


class AnswerLog:
    """The first line has the run's settings, the others a question's `key`, `text` and `stats`.

    `done` has the lines by their key. A last line without its end, from a run that was killed, is written anew.
    `RequestError` if the file is of other settings, naming the first that differs.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        self.done: dict[str, dict[str, Any]] = {}
        settings = json.loads(json.dumps(settings))
        whole = path.read_bytes().rpartition(b"\n")[0].decode() if path.is_file() else ""
        try:
            lines = [json.loads(line) for line in whole.split("\n") if line]
        except ValueError as error:
            raise RequestError(f"{path}: not a file of answers: {error}", "out") from error
        if lines:
            self._check(lines[0], settings)
            self.done = {line["key"]: line for line in lines[1:]}
            with path.open("r+b") as file:
                file.truncate(len(whole.encode()) + 1)
        else:
            path.write_text(json.dumps({"settings": settings}) + "\n", encoding="utf-8")

    def add(self, key: str, text: str, stats: dict[str, Any]) -> None:
        """Keep an answer, at once."""
        record = {"key": key, "text": text, "stats": stats}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.done[key] = record

    def _check(self, first: Any, settings: dict[str, Any]) -> None:
        found = first.get("settings") if isinstance(first, dict) else None
        if not isinstance(found, dict):
            raise RequestError(f"{self.path}: not a file of answers: its first line has no settings", "out")
        for name in settings.keys() | found.keys():
            if found.get(name) != settings.get(name):
                raise RequestError(
                    f"{self.path} has answers with {name} {found.get(name)!r}, this run has {settings.get(name)!r}; "
                    "name another file",
                    "out",
                )
