"""The verbs of whole registries: `registry`, `record export --all`, `import` and `forget`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from test_transfer import fill

from keybound.crypto.keys import Key
from keybound.provenance.parties import Party
from keybound.provenance.registry import Registry

Run = Callable[..., Any]  # to the outcome of `run` in conftest


def test_the_verbs_of_a_registry(run: Run, home: Path, key: Path, refused: Run) -> None:
    run("party", "add", "alice", "--key", key, "--payload", "0x5eed")
    made = run("registry", "rotate")
    assert (home / f"registry-{made.out.strip()}.key").exists()
    Key.generate().write(home / "other.key")
    newer = run("registry", "rotate", "--key", "other.key").out.strip()
    assert run("registry", "issuer", "300").code == 0
    assert "is 300 (it is set once" in refused("registry", "issuer", "301").err
    options = ("--provider", "Example Ltd", "--link", "https://example.org", "--field", "lang=en")
    assert run("registry", "provider", *options).code == 0
    assert run("registry", "provider", "--system", "Voice").code == 0
    shown = run("registry", "show", "--json").json
    assert [one["id"] for one in shown["keys"]] == [newer, made.out.strip()]
    assert (shown["parties"], shown["records"], shown["issuer"]) == (1, 0, 300)
    assert (shown["provider"], shown["system"]) == ("Example Ltd", "Voice")
    assert shown["fields"] == {"lang": "en"}
    assert "Example Ltd" in run("registry", "show").out
    assert run("registry", "provider", "--clear", "--system", "Choir").code == 0
    shown = run("registry", "show", "--json").json
    assert (shown["provider"], shown["system"], shown["fields"]) == (None, "Choir", {})
    assert "nothing to set" in refused("registry", "provider").err
    assert "is not an https address (" in refused("registry", "provider", "--link", "x").err
    assert "'lang' is not NAME=VALUE" in refused("registry", "provider", "--field", "lang").err
    assert "standard input" in refused("registry", "rotate", "--key", "-").err
    assert "machine 'x' left nothing (" in refused("registry", "settle", "--machine", "x").err


def test_a_registry_moves_by_command(run: Run, home: Path, party: Party, refused: Run) -> None:
    with Registry(home / "registry.sqlite") as known:
        fill(known, party, home)
    assert run("record", "export", "--all", "all.jsonl").err == (
        "keybound: wrote 3 records to all.jsonl\n"
    )
    assert (home / "all.jsonl").stat().st_mode & 0o777 == 0o600
    assert "all.jsonl exists" in refused("record", "export", "--all", "all.jsonl").err
    for wrong in (
        ("--all", "1", "b"),
        ("1",),
        ("x", "b"),
        ("0", "b"),
        ("--all", "--sign", "k", "b"),
    ):
        assert "PATH" in refused("record", "export", *wrong).err
    new = ("--registry", home / "new.sqlite")
    made = run("record", "import", "all.jsonl", *new)
    assert made.err == "keybound: imported 3 records, 1 parties, 1 void serials\n"
    shown = [json.loads(line) for line in run("record", "list", "--json", *new).out.splitlines()]
    assert len(shown) == 3
    assert "line 4: record 1 is the same one (" in run("record", "import", "all.jsonl", *new).err
    assert "cannot be read: no such file" in refused("record", "import", "absent").err
    forget = ("record", "forget", "--before", "2026-04-01")
    assert run(*forget, "--dry-run").err == "keybound: would forget 3 records\n"
    assert run(*forget).err == "keybound: forgot 3 records\n"
    assert run("registry", "show", "--json").json["void"] == 3
