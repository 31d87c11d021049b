"""`keybound bench`: rows, tables and a report from the command line, and CI's check of results."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from keybound import demo
from keybound.benchmark import peers
from keybound.benchmark.measure import run, seals
from keybound.benchmark.measure.methods import keybound as own_method
from keybound.benchmark.measure.plan import Plan
from keybound.benchmark.measure.rows import read_rows
from keybound.benchmark.report.tables import check_tables
from keybound.cli import bench
from keybound.cli.main import main
from keybound.errors import KeyBoundError
from keybound.model.networks import SHIPPED, shipped

DATA = Path(__file__).parents[1] / "data"
DEMO = Path(demo.__file__).parent
RESULTS = Path(__file__).parents[2] / "results"
WEIGHTS = DEMO.parent / "model" / "weights"


@pytest.fixture
def keybound(monkeypatch, capsys):
    """Run the command line; gives exit status, standard output, standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["keybound", *words])
        try:
            main()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        return (status, *capsys.readouterr())

    return call


def test_bench_from_rows_to_report(tmp_path, keybound):
    rows = str(tmp_path / "rows.jsonl")
    words = ("bench", "run", "clean", "gain", "encodec-6", "--speech", str(DATA), "--rows", rows)
    assert keybound(*words, "--clips", "1", "--workers", "1")[0] == 0
    found = read_rows(Path(rows))
    assert {r["attack"] for r in found if "clip" in r} == {"quality", "clean", "gain"}
    assert [r["reason"] for r in found if r.get("attack") == "encodec-6"]
    status, _, said = keybound(*words, "--clips", "1", "--workers", "1")
    assert (status, "wrote 0 rows" in said) == (0, True)
    assert keybound("bench", "tables", "--rows", rows)[0] == 0
    assert keybound("bench", "tables", "--check", "--rows", rows)[0] == 0
    (tmp_path / "tables.md").write_text("other")
    status, _, said = keybound("bench", "tables", "--check", "--rows", rows)
    assert (status, "tables.md" in said) == (2, True)
    page = tmp_path / "report.html"
    made = ("bench", "report", "--rows", rows, "--out", str(page), "--speech", str(DATA))
    assert keybound(*made)[0] == 0
    assert page.read_text().count("<audio") >= 4


def test_a_set_of_speech_has_its_own_rows_and_table(tmp_path, keybound):
    path = tmp_path / "rows.jsonl"
    words = ("bench", "run", "clean", "gain", "--speech", str(DATA), "--rows", str(path))
    words += ("--workers", "1")
    assert keybound(*words, "--clips", "1")[0] == 0
    main = read_rows(path)
    other = (*words, "--set", "other", "--every", "--clips", "4")
    assert keybound(*other)[0] == 0
    assert "wrote 0 rows" in keybound(*other)[2]
    assert "wrote 0 rows" in keybound(*words, "--clips", "1")[2]
    added = read_rows(path)[len(main) :]
    assert {(row["speech"], row["clip"], row["attack"]) for row in added} == {
        ("other", clip, attack) for clip in range(4) for attack in ("quality", "clean", "gain")
    }
    (first, *_) = (row for row in added if row["clip"] == 0 and row["attack"] == "gain")
    (same,) = (row for row in main if row.get("attack") == "gain")
    assert first["marked"] == same["marked"]  # the same clip, key and payload
    assert "si_snr_raw_db" in same  # the damage, which rows of a set leave away
    assert "si_snr_raw_db" not in first
    assert not any("dnsmos" in row for row in added)
    assert keybound("bench", "tables", "--rows", str(path))[0] == 0
    text = (tmp_path / "tables.md").read_text()
    assert "| Clips | 1 |  |  |  | 4 |" in text
    assert "1 clips of one second" in text  # of the robustness table


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("clean", "--every"), "--set"),
        (("security", "clean", "--set", "other"), "security"),
        (("clean", "--set", "Other Speech"), "lower case"),
        (("clean", "--set", ""), "lower case"),
    ],
)
def test_sets_of_speech_that_would_mix_are_refused(tmp_path, keybound, wrong, said):
    path = tmp_path / "r.jsonl"
    status, _, why = keybound("bench", "run", "--speech", str(DATA), "--rows", str(path), *wrong)
    assert (status, said in why) == (2, True)
    assert not path.exists()


def test_unknown_suites_methods_and_missing_rows_are_refused(tmp_path, keybound):
    words = ("bench", "run", "--speech", str(DATA), "--rows", str(tmp_path / "r.jsonl"))
    for wrong in (("nonsense",), ("clean", "--method", "nobody")):
        status, _, said = keybound(*words, *wrong)
        assert status == 2
        assert said.startswith("keybound: ")
        assert said.count("\n") == 1
    status, _, said = keybound("bench", "tables", "--rows", str(tmp_path / "none.jsonl"))
    assert (status, said.count("\n")) == (2, 1)


def test_security_rows_come_once(tmp_path, keybound):
    path = tmp_path / "rows.jsonl"
    words = ("bench", "run", "security", "--speech", str(DATA), "--rows", str(path), "--clips", "2")
    for workers, wanted in (("2", False), ("1", True)):
        status, _, said = keybound(*words, "--workers", workers)
        assert (status, "wrote 0 rows" in said) == (0, wanted)
    kinds = {row["suite"] for row in read_rows(path)}
    assert {"keys", "transplant", "re-embed", "average", "known-payload", "carrier"} <= kinds


def test_other_weights_are_another_method_and_studies_bear_no_seal():
    of_study, of_folder = (peers.chosen(m, str(SHIPPED))() for m in ("bits/8", "keybound"))
    assert (of_study.name, of_study.version) == (
        "bits/8",
        of_folder.version.removesuffix("+seal-3"),
    )
    assert of_folder.name == f"keybound/{SHIPPED.name}"
    assert of_folder.version.endswith("+seal-3")
    for name, model in (("perth", str(SHIPPED)), ("bits/8", None)):
        with pytest.raises(KeyBoundError):
            peers.chosen(name, model)


def test_negatives_of_made_sounds():
    rows = list(run.collect(Plan(own_method, (), ("null",), made_minutes=0.1), workers=1))
    assert {"silence", "tones", "music"} <= {row["source"] for row in rows}
    assert all(0 <= score <= 1 for row in rows for score in row["scores"])


def test_the_parts_of_seals_are_its_suites():
    assert tuple(suite.removeprefix("seal-") for suite in seals.SUITES) == bench.PARTS


def test_bench_seals_measures_the_parts_asked_for(tmp_path, keybound):
    path = tmp_path / "rows.jsonl"
    words = ("bench", "seals", "--speech", str(DATA), "--rows", str(path), "--workers", "1")
    parts = ("--part", "forgery", "--part", "average", "--most", "1")
    assert keybound(*words, *parts)[0] == 0
    found = read_rows(path)
    measured = [row for row in found if "clip" in row]
    assert {row["suite"] for row in measured} == {"seal-forgery"}  # nothing here lasts ten seconds
    assert [row["suite"] for row in found if row.get("suite") == "method"] == ["method"]
    assert "wrote 0 rows" in keybound(*words, *parts)[2]
    assert keybound("bench", "tables", "--rows", str(path))[0] == 0
    assert "Forgery and removal of seals" in (tmp_path / "tables.md").read_text()
    status, _, said = keybound(*words, "--removers", str(tmp_path))
    assert (status, "no removers" in said) == (2, True)


@pytest.mark.skipif(not (RESULTS / "rows.jsonl").exists(), reason="no results here")
def test_the_tables_in_results_are_what_the_rows_give(tmp_path):
    rows = read_rows(RESULTS / "rows.jsonl")
    assert check_tables(rows, RESULTS) == []
    shutil.copytree(RESULTS, tmp_path, dirs_exist_ok=True)
    assert check_tables(rows[:-50], tmp_path)  # the check can fail
    size = sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file())
    assert size < 10 * 2**20


def test_bench_remove_trains_and_measures_removers(tmp_path, keybound, monkeypatch):
    removers = pytest.importorskip("keybound.attacks.removers")
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setattr(removers, "KINDS", {"gains": removers.KINDS["gains"]})
    monkeypatch.setattr(removers, "WIDTH", 8)
    rows, networks = tmp_path / "rows.jsonl", tmp_path / "networks"
    words = ("bench", "remove", str(networks), "--speech", str(DATA), "--rows", str(rows))
    words += ("--workers", "1")
    assert keybound(*words)[0] == 2  # nothing there yet
    assert keybound(*words, "--train", str(DEMO), "--device", "nowhere")[0] == 2
    networks.mkdir()
    (networks / "gains-1.safetensors").write_bytes(b"no remover")
    assert keybound(*words)[0] == 2
    (networks / "gains-1.safetensors").unlink()
    assert keybound(*words, "--train", str(DATA))[0] == 2  # all too short
    assert keybound(*words, "--train", str(DEMO), "--minutes", "0.001")[0] == 0
    facts, *found = read_rows(rows)
    assert facts["suite"] == "method"
    assert {(r["suite"], r["network"]) for r in found} == {("remover", "gains")}
    assert all(r["errors"] == 0 for r in found)  # a remover that has learnt nothing removes nothing
    assert {r["method"] for r in found} == {"keybound"}
    assert keybound(*words, "--method", "study", "--model", str(WEIGHTS))[0] == 0
    assert {r["method"] for r in read_rows(rows)} == {"keybound", "study"}


def test_false_alarms_are_printed_alike_by_one_process_or_two(keybound):
    words = ("--speech", str(DATA), "--attack", "clean", "--attack", "gain", "--seconds", "1")
    alone, both = (keybound("bench", "false-alarms", *words, "--workers", n) for n in "12")
    assert alone[0] == both[0] == 0
    assert sorted(alone[1].splitlines()) == sorted(both[1].splitlines())
    assert "gain" in alone[1]


def test_marks_for_longer_excerpts_are_weaker_and_detected_by_evidence(tmp_path, keybound):
    path = tmp_path / "rows.jsonl"
    words = ("bench", "run", "quality", "clean", "--speech", str(DATA), "--rows", str(path))
    words += ("--joined", "--seconds", "3", "--clips", "2", "--workers", "1", "--method")
    assert keybound(*words, "keybound")[0] == keybound(*words, "excerpt/3")[0] == 0
    found = read_rows(path)
    levels = {r["method"]: r["snr_db"] for r in found if r.get("attack") == "quality"}
    assert levels["excerpt/3"] > levels["keybound"] + 1
    facts = {r["method"]: r["threshold"] for r in found if r.get("suite") == "method"}
    assert facts["excerpt/3"] == pytest.approx(shipped().card.tail.threshold(3, 1e-3), abs=1e-4)
    clean = [r for r in found if r["method"] == "excerpt/3" and r.get("attack") == "clean"]
    assert clean
    assert all(r["marked"] > facts["excerpt/3"] > r["unmarked"] for r in clean)


def test_speed_is_printed_and_appended_where_asked(tmp_path, keybound):
    words = ("bench", "speed", "--seconds", "1", "--turns", "1", "--method", "keybound")
    status, text, _ = keybound(*words)
    assert (status, "| trained |" in text) == (0, True)
    path = tmp_path / "rows.jsonl"
    status, text, _ = keybound(*words, "--json", "--rows", str(path))
    assert [json.loads(line) for line in text.splitlines()] == read_rows(path)
    assert [row["verb"] for row in read_rows(path)] == ["embed", "detect"]


def test_a_card_is_calibrated_again(tmp_path, keybound):
    shutil.copytree(SHIPPED, tmp_path, dirs_exist_ok=True)
    facts = json.loads((tmp_path / "card.json").read_text())
    del facts["evidence"]
    (tmp_path / "card.json").write_text(json.dumps(facts))
    words = ("bench", "calibrate", str(tmp_path), "--valid", str(DATA), "--evidence")
    status, text, _ = keybound(*words, "--attack", "clean", "--attack", "gain")
    assert status == 0
    assert json.loads((tmp_path / "card.json").read_text())["evidence"] == json.loads(text)


def test_speech_of_others_raises_the_thresholds_that_a_card_gets(tmp_path, keybound):
    shutil.copytree(SHIPPED, tmp_path / "model")
    (tmp_path / "others").mkdir()
    key, host = tmp_path / "k.key", DATA / "flite-rms.flac"
    assert keybound("keygen", str(key))[0] == 0
    made = tmp_path / "others" / "marked.wav"  # as much evidence as there can be
    assert keybound("embed", str(host), str(made), "--key", str(key), "--payload", "7")[0] == 0
    words = ("bench", "calibrate", str(tmp_path / "model"), "--valid", str(DATA), "--evidence")
    words += ("--attack", "clean")
    alone = json.loads(keybound(*words)[1])
    both = json.loads(keybound(*words, "--others", str(made.parent))[1])
    assert both["above_s"] + both["scale_s"] > 3 * (alone["above_s"] + alone["scale_s"])


def test_a_landmark_is_measured_by_quality_alone_on_joined_recordings(tmp_path, keybound):
    path = tmp_path / "rows.jsonl"
    words = ("bench", "run", "quality", "--speech", str(DATA), "--rows", str(path))
    words += ("--method", "landmark/mp3@32", "--joined", "--seconds", "4", "--workers", "1")
    assert keybound(*words)[0] == 0  # longer than any of the recordings
    found = [row for row in read_rows(path) if "clip" in row]
    assert {row["attack"] for row in found} == {"quality"}
    assert [row["clip"] for row in found] == list(range(len(found)))
    assert all(3 < row["zimtohrli"] < 4.99 and row["seconds"] == 4 for row in found)
    assert keybound("bench", "tables", "--rows", str(path))[0] == 0
    text = (tmp_path / "tables.md").read_text()
    assert f"| landmark: mp3@32 | {len(found)} |" in text
    assert "*Clips of 4 s*" in text
