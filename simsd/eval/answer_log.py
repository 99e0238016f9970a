"""Answers in a file, with a JSON line for each, so that a run that was stopped can be continued."""

import json
from pathlib import Path
from typing import Any

from simsd.errors import RequestError


class AnswerLog:
    """A file of answers. Its first line has the run's settings, and each other line has an answer.

    done: the answers that the file has, as objects with `key`, `text` and `stats`, by the question's key. An incomplete
    last line, left by a run that was killed, is removed. `RequestError` if the file was written with other settings; it
    names one that differs.
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
        """Write an answer to the file at once."""
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
