"""The named lists: every entry is an attack, and the lists hold what they say."""

import pytest

from keybound.attacks import SUITES, attack, available


@pytest.mark.parametrize("suite", SUITES)
def test_every_entry_is_an_attack(suite):
    assert len(set(SUITES[suite])) == len(SUITES[suite])
    for name in SUITES[suite]:
        assert attack(name).dial is None or "@" not in name
        assert available(name) is None or len(available(name)) < 40


def test_the_papers_rows_are_its_fourteen_and_lyra():
    assert len(SUITES["paper"]) == 14 + 1
    assert SUITES["paper"][0] == "clean"
    assert {"encodec-6", "lyra-6"} <= set(SUITES["paper"])


def test_the_papers_chains_stand_with_lyra_too():
    assert SUITES["compound"][:4] == (
        "encodec-6+noise-20",
        "denoiser+resample",
        "encodec-6+denoiser",
        "mp3+griffin-lim",
    )
    with_lyra = {name.replace("encodec", "lyra") for name in SUITES["compound"][:4]}
    assert with_lyra <= set(SUITES["compound"])


def test_pairs_are_all_ordered_pairs_of_the_paper():
    rows = SUITES["paper"][1:]
    assert len(SUITES["pairs"]) == len(rows) * (len(rows) - 1)
    assert {"mp3+griffin-lim", "griffin-lim+mp3"} <= set(SUITES["pairs"])
    assert not any("clean" in pair for pair in SUITES["pairs"])
