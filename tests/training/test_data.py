"""What training hears: folders read, hosts and other sounds drawn, seals and splices."""

from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
import torch

from keybound.errors import RecipeError
from keybound.training import hearing, twins
from keybound.training.data import (
    Hosts,
    Stream,
    cropped,
    read_folder,
    sealed,
    splice,
    stretched,
    turned,
    turns,
)
from keybound.training.recipe import DataSpec
from keybound.training.spectra import HOP

CPU = torch.device("cpu")


def test_splice_targets_say_where_the_audio_is_marked():
    host, marked = torch.zeros(64, 50 * HOP), torch.ones(64, 50 * HOP)
    audio, target, weight = splice(marked, host, 0.7, torch.Generator().manual_seed(0))
    frames = audio.reshape(64, 50, HOP)
    assert torch.equal(target, (frames.mean(-1) > 0.5).float())
    assert not weight[(frames.mean(-1) % 1) != 0].any()  # no frame across a splice counts
    sure = weight.bool()
    for frame, row in sure.nonzero().flip(1)[:200].tolist():  # nor one that sees the splice
        near = frames[row, max(0, frame - 2) : frame + 3]
        assert near.unique().numel() == 1
    spliced = (target.mean(-1) < 1).float().mean()
    assert 0.5 < spliced < 0.9
    assert sure.float().mean() > 0.8
    whole = splice(marked, host, 0.0, torch.Generator().manual_seed(0))
    assert torch.equal(whole[0], marked)
    assert whole[1].all()
    assert whole[2].all()


def test_some_clips_are_heard_in_part():
    kept = cropped(400, 150, 0.5, torch.Generator().manual_seed(0))
    frames = kept.sum(-1)
    assert 0.4 < (frames < 150).float().mean() < 0.6
    assert 24 <= frames.min() <= 30  # half a second to two, in one piece
    assert 90 <= frames[frames < 150].max() <= 101
    assert (kept.diff(dim=-1) != 0).sum(-1).max() == 2
    assert cropped(8, 50, 1.0, torch.Generator().manual_seed(0)).sum(-1).max() <= 50
    assert cropped(8, 150, 0.0, torch.Generator().manual_seed(0)).all()


def test_spliced_clips_go_on_with_their_own_or_another_host():
    host = torch.arange(1.0, 33)[:, None].expand(32, 50 * HOP)
    audio, _, _ = splice(-host, host, 1.0, torch.Generator().manual_seed(1))
    rest = {int(r) - int(h) for h, row in zip(host[:, 0], audio, strict=True) for r in row.unique()}
    assert 0 in rest  # its own
    assert -1 in rest  # its neighbour's


def test_folders_are_read_as_mono_at_16_khz(tmp_path):
    left, right = np.ones(16000) * 0.5, np.zeros(16000)
    sf.write(tmp_path / "b.WAV", np.stack([left, right], 1), 16000)
    sf.write(tmp_path / "a.flac", np.stack([left, right], 1), 8000)
    first, second = read_folder(tmp_path, level=False)
    assert (len(first), len(second)) == (32000, 16000)
    assert first[1000:-1000] == pytest.approx(0.25, abs=1e-3)
    assert second == pytest.approx(0.25, abs=1e-3)
    assert np.sqrt(np.mean(read_folder(tmp_path, level=True)[1] ** 2)) == pytest.approx(1, abs=1e-3)
    with pytest.raises(RecipeError, match="no recordings"):
        read_folder(Path(tmp_path / "none"), level=False)


def test_hosts_are_drawn_as_the_recipe_says(sources):
    noise = Stream(read_folder(sources.noise, level=False), CPU)
    spec = DataSpec(level_db=(-30.0, -20.0), tilt_db=6.0, noisy=0.5, speeds=(1.0, 1.1))
    hosts = Hosts(sources.speech, noise, spec, CPU)
    one, same, other = (hosts.draw(8, torch.Generator().manual_seed(s))[0] for s in (1, 1, 2))
    assert one.shape == (8, 16000)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert (20 * torch.log10(twins.rms(one)) < 0).all()


def test_pauses_of_hosts_are_known(tmp_path, sources):
    tone = np.sin(np.arange(16000) / 10).astype(np.float32)
    sf.write(tmp_path / "half.wav", np.concatenate([tone, 1e-4 * tone]), 16000)
    noise = Stream(read_folder(sources.noise, level=False), CPU)
    hosts = Hosts(tmp_path, noise, DataSpec(segment_frames=50, level_db=(-20.0, -20.0)), CPU)
    x, voiced = hosts.draw(64, torch.Generator().manual_seed(0))
    assert voiced.shape == (64, 50)
    level = 10 * torch.log10(x.reshape(64, 50, HOP).square().mean(-1) + 1e-12)
    assert voiced[level > -30].all()  # what sounds counts
    assert 0.1 < voiced.float().mean() < 0.9
    assert not voiced[level.amax(-1) < -60].any()


def test_negatives_that_are_not_speech_are_finite_sounds_of_many_kinds(sources):
    noise = Stream(read_folder(sources.noise, level=False), CPU)
    hosts = Hosts(sources.speech, noise, DataSpec(), CPU)
    one, same = (hosts.non_speech(256, torch.Generator().manual_seed(0)) for _ in range(2))
    assert one.shape == (256, 16000)
    assert torch.equal(one, same)
    assert one.isfinite().all()
    level = twins.rms(one)[:, 0]
    assert (level < 10 ** (-6 / 20)).all()
    assert 0 < (one == 0).all(-1).sum() < 32  # digital silence among them
    offset = one.mean(-1).abs() > 0.5 * level  # and sounds on a constant offset
    assert 20 < offset.sum() < 128


def test_too_little_audio_is_said():
    stream = Stream([np.zeros(100, np.float32)], CPU)
    with pytest.raises(RecipeError, match="too little audio"):
        stream.draw(1, 16000, torch.Generator())


def test_speed_changes_length():
    (faster,) = stretched([np.zeros(16000, np.float32)], 1.25)
    assert len(faster) == 12800


def test_openings_are_where_recordings_begin():
    recordings = [np.full(1000 + 100 * i, i, np.float32) for i in range(9)]
    stream = Stream(recordings, CPU)
    cut = stream.draw(64, 500, torch.Generator().manual_seed(0), openings=1.0)
    assert (cut == cut[:, :1]).all()  # none runs into the next recording
    assert len(cut[:, 0].unique()) == 9
    some = stream.draw(512, 500, torch.Generator().manual_seed(0), openings=0.5)
    across = (some != some[:, :1]).any(-1).float().mean()  # 36 % of those cut anywhere
    assert 0.1 < across < 0.3


def test_seals_move_tiles_by_a_part_of_a_decibel_and_spare_some(speech):
    clips = speech.repeat(16, 1)
    heard = sealed(clips, 0.5, torch.Generator().manual_seed(0))
    same = sealed(clips, 0.5, torch.Generator().manual_seed(0))
    assert torch.equal(heard, same)
    spared = (heard - clips).abs().amax(-1) < 1e-6
    assert 0.2 < spared.float().mean() < 0.8
    level = hearing.snr_db(clips, heard - clips)[~spared]
    assert ((level > 18) & (level < 32)).all()
    assert torch.allclose(sealed(speech, 0.0, torch.Generator()), speech, atol=1e-6)


def test_turns_change_the_code_every_second_in_a_share_of_the_clips():
    turn = turns(400, 150, 0.4, torch.Generator().manual_seed(2))
    assert set(turn.unique().tolist()) == {-1.0, 1.0}
    changing = (turn != turn[:, :1]).any(-1)
    assert 0.3 < changing.float().mean() < 0.5
    for row in turn[changing]:
        at = row.diff().nonzero().flatten()
        assert len(at) in (2, 3)
        assert set(at.diff().tolist()) == {50}
    assert (turns(50, 150, 0.0, torch.Generator().manual_seed(3)) == 1).all()


def test_a_turned_carrier_is_the_other_one_away_from_the_change():
    one, other = torch.full((1, 320 * 60), 2.0), torch.full((1, 320 * 60), -3.0)
    turn = torch.ones(1, 60)
    turn[:, 20:] = -1
    made = turned(one, other, turn)
    assert (made[:, : 19 * 320] == 2).all()
    assert (made[:, 21 * 320 :] == -3).all()
    assert made.diff().abs().max() < 0.02  # no click
