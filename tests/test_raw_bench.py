"""The example that runs KeyBound inside RAW-Bench, called as RAW-Bench calls it."""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import soundfile as sf

from keybound.demo import SPEECH

torch = pytest.importorskip("torch")
EXAMPLE = Path(__file__).parents[1] / "examples" / "keybound_in_raw_bench.py"


class SolverAudioSeal:
    """Call a solver as the evaluation of raw-bench 0.1.0 does, which needs more than is here."""

    sample_rate = 16000

    def __init__(self, config: SimpleNamespace) -> None:
        self.config = config
        self.build_model()
        self.load_models(config.checkpoint)

    def eval(self, write_to_disk: bool) -> None:
        assert write_to_disk
        self.model.eval()
        torch.manual_seed(0)
        samples = sf.read(SPEECH, dtype="float32")[0][:48000]
        y = torch.from_numpy(samples).reshape(1, 1, -1)  # batches of one
        with torch.inference_mode():
            message = torch.randint(0, 2, (1, self.nbits))
            rate = {"sample_rate": self.sample_rate}
            marked = y + self.model["generator"].get_watermark(y, message=message, **rate)
            for clip in (marked, 0.5 * marked, y):
                decoded = self.detect_watermark(clip)
                right = (decoded[:, 2:, :].mean(dim=-1) > 0) == message
                self.config.found.append((float(decoded[0, 1, 0]), float(right.float().mean())))

    def close_eval(self) -> None:
        self.config.found.append("closed")


def test_raw_bench_reads_what_it_had_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SimpleNamespace(checkpoint=None, found=[])
    module = SimpleNamespace(SolverAudioSeal=SolverAudioSeal)
    loads = SimpleNamespace(OmegaConf=SimpleNamespace(load=lambda path: config))  # noqa: ARG005
    for name in ("raw_bench", "raw_bench.solver"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    monkeypatch.setitem(sys.modules, "raw_bench.solver.audioseal", module)
    monkeypatch.setitem(sys.modules, "omegaconf", loads)
    monkeypatch.setattr(sys, "argv", ["keybound_in_raw_bench.py", "eval.yaml"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    marked, quieter, host, closed = config.found
    assert marked[0] > 0.9
    assert (marked[1], quieter[1]) == (1.0, 1.0)
    assert host[0] < 0.1
    assert host[1] < 1.0
    assert closed == "closed"
