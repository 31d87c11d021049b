"""The command line as tests run it."""

import io
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from keybound import cli


class Outcome(NamedTuple):
    """What a call of the entry point left: exit status, standard output and errors."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Give what was printed, as JSON."""
        return json.loads(self.out)


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Run the entry point with these arguments."""

    def call(*args: object, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["keybound", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code: Any = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        streams = capsys.readouterr()
        return Outcome(code, streams.out, streams.err)

    return call
