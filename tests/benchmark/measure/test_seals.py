"""The suite of sealed evidence: real seals on a few recordings, and tables of made rows."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from keybound.benchmark.measure import run, seals
from keybound.benchmark.measure.methods import Method, keybound
from keybound.benchmark.measure.plan import OWN_KEYS, Case, Plan
from keybound.benchmark.measure.plans import of_seals
from keybound.benchmark.measure.protocol import Secret
from keybound.benchmark.measure.rows import read_rows
from keybound.benchmark.measure.run import Hosts
from keybound.benchmark.measure.seals import P_LEVELS
from keybound.benchmark.peers import chosen
from keybound.benchmark.report.layout import Table
from keybound.benchmark.report.summaries import gather
from keybound.benchmark.report.tables import make_table
from keybound.crypto.keys import Key
from keybound.errors import AudioError
from keybound.identity.identifier import keyed
from keybound.watermark.options import Marked
from keybound.watermark.watermarker import Watermarker

DATA = Path(__file__).parents[2] / "data"
PLAN = Plan(keybound, (DATA,), ("seal",), ("clean", "gain"), most=2, wrong_keys=20)


@pytest.fixture(scope="module")
def method() -> Method:
    return keybound()


@pytest.fixture(scope="module")
def pieces() -> list[np.ndarray]:
    files = [sf.read(path, dtype="float32")[0] for path in sorted(DATA.glob("*.flac"))]
    long = [np.concatenate([one, *files]) for one in files]
    length = min(map(len, long))
    return [one[:length] for one in long]


def case_of(method: Method, pieces: list[np.ndarray]) -> Case:
    return Case(PLAN, method, pieces, 10.0, first=10_000)


def line(table: Table, label: str) -> list[str]:
    (found,) = (row for row in table.rows if not isinstance(row, str) and row[0].text == label)
    return [cell.text for cell in found]


def test_a_seal_holds_and_says_how_clearly(method, pieces):
    case = case_of(method, pieces)
    row = seals.attacked(case, {"attack": "clean"})
    assert row["holds"]
    assert row["holds_256"]
    assert row["verified"]
    assert row["log10_p"] < row["log10_p_256"] < -6  # a search is paid for
    assert row["layer"] == "pattern"
    ruined = seals.attacked(case, {"attack": "noise@-10"})
    assert not ruined["holds"]
    assert ruined["z"] < row["z"]


def test_recordings_of_all_lengths_have_keys_of_their_own(method, pieces):
    seen = []
    spied = replace(method, embed=lambda _, secret: seen.append(secret.key) or pieces[0][:48000])
    hosts = {(OWN_KEYS, s): Hosts(pieces) for s in (3.0, 10.0, 30.0)}
    jobs = run.jobs_of(spied, replace(PLAN, attacks=("clean",)), hosts)
    assert len([run.measure(spied, PLAN, hosts, job) for job in jobs]) == 6
    assert len(set(seen)) == len(seen) == 6


@pytest.mark.parametrize("source", seals.SOURCES)
def test_wrong_keys_do_no_better_than_p_says(method, pieces, source):
    row = seals.wrong_keys(case_of(method, pieces), {"source": source, "attack": "gain"})
    assert row["keys"] == 20
    assert len(row["below"]) == len(P_LEVELS)
    assert row["below"] == sorted(row["below"], reverse=True)
    assert row["below"][2:] == [0, 0, 0, 0]
    assert row["least_log10_p"] > -3


@pytest.mark.parametrize("kind", ["known-payload", "replay"])
def test_a_forger_is_attributed_and_not_sealed(method, pieces, kind):
    row = seals.forged(case_of(method, pieces), {"attack": kind})
    assert row["verified"]  # the weakness of a mask that is used twice
    assert not row["holds"]
    assert not row["holds_256"]


def test_a_forger_writes_an_identifier_second_by_second(method, pieces):
    read = []
    spied = replace(method, read=lambda clip: read.append(len(clip)) or method.read(clip))
    case = case_of(replace(spied, issued=True), [one[:40000] for one in pieces])
    row = seals.forged(case, {"attack": "replay"})
    assert read == [16000, 16000, 8000]
    assert (row["verified"], row["holds"]) == (False, False)


def test_a_copied_mark_is_named_by_the_record(method, pieces):
    case = case_of(method, [pieces[0], np.ascontiguousarray(pieces[0][::-1])])
    rows = {kind: seals.copied(case, {"attack": kind}) for kind in seals.COPYINGS}
    assert {row["decision"] for row in rows.values()} == {"other"}
    assert rows["gain-field"]["holds"]  # without a record it would be taken for sealed
    stay = replace(case, hosts=[case.host])  # to itself: nothing is moved
    assert seals.copied(stay, {"attack": "gain-field"})["decision"] == "same"


def test_colluders_find_something_in_common_only_where_a_position_is_reused(method, pieces):
    case = case_of(method, pieces)
    rows = {kind: seals.averaged(case, {"attack": kind, "copies": 2}) for kind in seals.COLLUSIONS}
    assert all(len(row["z"]) == 2 for row in rows.values())
    alone = seals.attacked(case, {"attack": "clean"})["z"]
    assert rows["estimate"]["holds"] == [True, True]
    assert rows["copies"]["z"][0] < rows["estimate"]["z"][0]
    assert rows["reused"]["z"][0] < rows["estimate"]["z"][0] < 1.2 * alone


def test_a_seal_costs_a_little(method, pieces):
    pytest.importorskip("pesq")
    row = seals.cost(case_of(method, [pieces[0][:48000]]), {})
    assert row["snr_db"] < row["snr_db_unsealed"]
    assert abs(row["pesq"] - row["pesq_unsealed"]) < 0.5


def test_a_remover_is_found_by_its_name(method, pieces, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from keybound.attacks import removers

    monkeypatch.setattr(removers, "WIDTH", 8)
    network = replace(removers.build("gains"), steps=7)
    file = removers.save(network, tmp_path)
    plan = replace(PLAN, suites=("seal-remover",), removers=(file,), most=1)
    hosts = {(OWN_KEYS, 10.0): Hosts(pieces)}
    (job,) = run.jobs_of(method, plan, hosts)
    (row,) = run.measure(method, plan, hosts, job)
    assert (row["network"], row["budget"]) == ("gains", 7)
    assert {"holds", "holds_256", "verified", "pesq"} <= row.keys()


def test_tiles_are_moved_against_what_the_finder_says(method, pieces):
    """The seal gets weaker, the more the farther tiles may move, and so does the sound."""
    pytest.importorskip("pesq")
    case = case_of(method, [pieces[0]])
    left = seals.attacked(case, {"attack": "clean"})
    moved = [seals.moved_against(case, {"attack": "once", "budget": db}) for db in (1, 3)]
    assert left["z"] > moved[0]["z"] > moved[1]["z"]
    assert moved[0]["pesq"] > moved[1]["pesq"]
    assert moved[1]["errors"] == 0


def test_rows_are_measured_once(tmp_path):
    path = tmp_path / "rows.jsonl"
    plan = replace(PLAN, suites=("seal", "seal-null"), lengths={3.0: 1}, wrong_keys=2)
    said: list[tuple[int, int]] = []

    def progress(*numbers: int) -> None:
        said.append(numbers)

    assert run.run(plan, path, progress=progress, workers=1) == 2 + 1
    assert said[-1] == (1, 1)
    assert run.run(plan, path, progress=progress, workers=1) == 0
    more = replace(plan, attacks=("clean", "gain", "polarity"), lengths={3.0: 2})
    assert run.run(more, path, progress=progress, workers=2) == 1 + 3 + 1
    assert said[-1] == (2, 2)
    rows = read_rows(path)
    assert json.loads(json.dumps(rows)) == rows
    assert {row["attack"] for row in rows if row["suite"] == "seal"} == {*more.attacks}
    assert len({row["version"] for row in rows}) == 1


def test_every_part_has_rows_of_the_lengths_it_is_measured_at(method, pieces):
    plan = of_seals(keybound, (DATA,))
    plan = replace(plan, removers=(Path("unet-10.safetensors"),))
    many = {(OWN_KEYS, s): Hosts([pieces[0]] * 400) for s in (3.0, 10.0, 30.0)}
    jobs = run.jobs_of(method, plan, many)
    assert [job.kind[1] for job in jobs] == sorted((job.kind[1] for job in jobs), reverse=True)
    rows = [row for job in jobs for row in job.rows]
    assert Counter(row["suite"] for row in rows) == {
        "seal": 12 * (60 + 80 + 10),
        "seal-remover": 80,
        "seal-counter": 8 * 80,
        "seal-average": 4 * 16,
        "seal-forgery": 2 * (300 + 80),
        "seal-copy": 3 * (300 + 80),
        "seal-quality": 40 + 40,
        "seal-null": 300,
    }
    wrong = [row for row in rows if row["suite"] == "seal-null"]
    assert {row["source"] for row in wrong} == {*seals.SOURCES}
    hits = {row["attack"] for row in wrong if row["source"] == "attacked"}
    assert hits == {*plan.attacks} - {"clean"}


def test_speech_without_recordings_is_refused(tmp_path):
    with pytest.raises(AudioError, match="no recordings"):
        run.hosts_of(keybound(), replace(PLAN, speech=(tmp_path,)))


def test_identifiers_are_a_method_of_their_own(monkeypatch):
    asked = []

    def embed(self, samples, rate, options, *, check):  # noqa: ARG001
        asked.append(options)
        return Marked(samples, options.position)

    monkeypatch.setattr(Watermarker, "_embed", embed)
    clip, secret = np.zeros(16000, np.float32), Secret(Key(bytes(32)), 1, 9)
    for issued in (False, True):
        made = chosen("keybound", None, issued=issued)()
        assert made.issued is issued
        made.embed(clip, secret)
        assert made.name == ("keybound-identifier" if issued else "keybound")
        assert made.version.endswith("+seal-3+identifier" if issued else "+seal-3")
    assert [one.identifier for one in asked] == [None, keyed(9, secret.key)]
    assert [one.position for one in asked] == [9, 9]


def test_tables_of_a_few_rows():
    base = {"method": "keybound", "version": "1", "seed": 0}
    rows = [
        base | {"suite": "seal", "attack": attack, "clip": clip, "seconds": seconds, "layer": layer}
        | {"holds": clip < held, "holds_256": clip < held - 1, "z": 5.0 + clip}
        for attack, held, layer in (("lyra-6", 1, "code"), ("clean", 4, "pattern"))
        for seconds in (3.0, 10.0)
        for clip in range(4)
    ]  # fmt: skip
    null = base | {"suite": "seal-null", "seconds": 3.0, "keys": 350, "attack": "clean"}
    for clip, source in enumerate(seals.SOURCES):
        rows.append(null | {"clip": clip, "source": source, "below": [30, 3, clip, 0, 0, 0]})
    forged = base | {"suite": "seal-forgery", "attack": "replay", "seconds": 3.0}
    forged |= {"holds": False, "holds_256": False}
    rows += [forged | {"clip": clip, "z": 3.5, "verified": True} for clip in range(2)]
    for clip, holds in enumerate(([True, False], [False, False])):
        row = {"suite": "seal-average", "attack": "copies", "copies": 2, "clip": clip}
        row |= {"seconds": 10.0, "holds": holds, "z": [7.0, 3.0], "verified": [False, False]}
        rows.append(base | row)
    quality = {"suite": "seal-quality", "clip": 0, "seconds": 3.0, "pesq": 4.4, "visqol": None}
    rows.append(base | quality | {"pesq_unsealed": 4.44, "visqol_unsealed": None})
    found = gather(rows)

    table = make_table(found, "sealed")
    assert table is not None
    assert [row[0].text for row in table.rows] == ["Clean", "Lyra (6 kbps)"]
    assert line(table, "Clean")[1:5] == ["1.000", "0.750", "6.5", "5.0"]
    assert line(table, "Lyra (6 kbps)")[5:7] == ["0.250", "0.000"]
    assert table.notes[-1] == (
        "recordings: 4 of 3 s, 4 of 10 s; seals that hold: 2 by the codes of its seconds, on "
        "the audio of its record, 8 by the pattern."
    )
    table = make_table(found, "false-acceptance")
    assert table is not None
    assert line(table, "all of them")[1:6] == ["3", "1,050", "90", "9", "3"]
    assert line(table, "allowed by p")[3:6] == ["105", "10.5", "1.05"]
    table = make_table(found, "seal-forgery")
    assert table is not None
    replayed = line(table, "the code as anyone reads it, on another host under another seal")
    assert replayed[2:5] == ["2", "0.000", "0.000"]
    copies = line(table, "2 copies of one host with other payloads and positions, averaged")
    assert copies[1:9] == ["10", "4", "0.250", "–", "0.500", "5.0", "3.0", "0.000"]
    table = make_table(found, "seal-quality")
    assert table is not None
    assert line(table, "3 s")[2:8] == ["4.440", "4.400", "−0.040", "4.400", "–", "–"]
