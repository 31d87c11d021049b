"""The command `proxy` refuses what it cannot do before it listens."""

from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--upstream", "nowhere"), "not the address of an upstream"),
        (("--key", "-", "--payload", "1"), "--key needs a file"),
        (("--key", "absent.key", "--payload", "1"), "absent.key"),
        (("--public", "--key", "a.key", "--payload", "1"), "needs --party"),
        (("--system", "Voice", "--key", "a.key", "--payload", "1"), "only with --party"),
        (("--party", "nobody"), "nobody"),
        ((), "--party"),
    ],
)
def test_what_the_command_refuses(words: tuple[str, ...], why: str, refused: Any) -> None:
    usual = () if "--upstream" in words else ("--upstream", "http://127.0.0.1:1/v1")
    assert why in refused("proxy", *usual, *words).err
