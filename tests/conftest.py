"""What several tests share: marked speech, the command line as a user runs it, a registry."""

import io
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import soundfile as sf
from numpy.typing import NDArray

import made_film
from keybound.audio import recordings
from keybound.cli import main
from keybound.crypto.keys import Key
from keybound.demo import SPEECH
from keybound.provenance import packing
from keybound.provenance.parties import Party
from keybound.provenance.registry import Registry
from keybound.watermark.watermarker import Watermarker

Run = Callable[..., Any]  # to the outcome of `run`
Samples = NDArray[Any]

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).resolve().parents[2] / "shared"  # beside the repository in CI
for variable, folder in {"KEYBOUND_NOISE": "noise", "KEYBOUND_LYRA": "channels/lyra"}.items():
    if (SHARED / folder).is_dir():
        os.environ.setdefault(variable, str(SHARED / folder))
KEY = Key(bytes(range(32)))
PAYLOAD = 0x5EED
RATE = 16_000


@pytest.fixture(scope="session")
def marker() -> Watermarker:
    return Watermarker()


# Speech


@pytest.fixture(scope="session")
def clips() -> dict[str, Samples]:
    """Synthetic speech of three voices at 16 kHz."""
    read = {path.stem: recordings.read(path) for path in (SPEECH, *sorted(DATA.glob("*.flac")))}
    return {n: recordings.resample(r.samples[:, 0], r.sample_rate, RATE) for n, r in read.items()}


@pytest.fixture(scope="session")
def clip(clips: dict[str, Samples]) -> Samples:
    return clips["flite-rms"]


@pytest.fixture(scope="session")
def marked(marker: Watermarker, clip: Samples) -> Samples:
    """The clip with a mark of the key and payload that most tests have."""
    return marker.embed(clip, RATE, key=KEY, payload=PAYLOAD, position=0)


@pytest.fixture(scope="session")
def film(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make a video with a track for each codec that is named: see `made_film`."""
    if not shutil.which("ffmpeg"):
        pytest.skip("ffmpeg is not installed")
    folder = tmp_path_factory.mktemp("films")
    made_film.prepare(folder)
    return partial(made_film.make, folder)


# The command line


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
            main.main()
        except SystemExit as end:
            code = end.code or 0
        streams = capsys.readouterr()
        return Outcome(code, streams.out, streams.err)

    return call


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with a registry of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEYBOUND_REGISTRY", str(tmp_path / "registry.sqlite"))
    return tmp_path


@pytest.fixture
def refused(run: Run, home: Path) -> Run:
    """Run the entry point, which must refuse in one line and leave the folder as it was."""

    def call(*args: object, stdin: bytes = b"") -> Any:
        before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
        outcome = run(*args, stdin=stdin)
        assert outcome.code == 2, outcome
        assert outcome.out == ""
        assert re.fullmatch(r"keybound: [^A-Z\n][^\n]*[^.\n]\n", outcome.err), outcome.err
        assert "Traceback" not in outcome.err
        assert ".keybound-" not in outcome.err  # names of temporary files are none of the user's
        after = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
        registry = home / "registry.sqlite"  # opening one makes one
        assert before | {registry: b""} == after | {registry: b""}
        return outcome

    return call


@pytest.fixture
def key(home: Path) -> Path:
    KEY.write(home / "alice.key")
    return home / "alice.key"


@pytest.fixture
def host(home: Path) -> Path:
    """Synthetic speech of a few seconds as WAV."""
    samples, rate = sf.read(DATA / "flite-rms.flac", dtype="float32")
    sf.write(home / "host.wav", samples, rate)
    return home / "host.wav"


@pytest.fixture
def hidden() -> Callable[[Path], list[Path]]:
    """Look for what begins with a dot in a folder."""
    return lambda folder: [path for path in folder.iterdir() if path.name.startswith(".")]


# A registry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a registry can be made."""
    return tmp_path / "keybound" / "registry.sqlite"


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL server of the tests' own, as the folder of its socket."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    if not found:
        pytest.skip("PostgreSQL is not installed (apt install postgresql)")
    user = None
    if os.geteuid() == 0:  # initdb refuses root
        try:
            user = pytest.importorskip("pwd").getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL refuses to run as root, and there is no user postgres")
    owner = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def call(program: str, *arguments: str) -> None:
        command = [found[-1].with_name(program), *arguments]
        done = subprocess.run(command, cwd="/", stdout=subprocess.DEVNULL, **owner)
        assert done.returncode == 0, program

    with tempfile.TemporaryDirectory(prefix="kb-pg-") as folder:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        data = f"{folder}/data"
        call("initdb", "-D", data, "-U", "tests", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        # Without TCP and without fsync: the machine does not lose power here, programs are killed.
        how = f"-c listen_addresses= -k {folder} -c fsync=off -c max_connections=50"
        call("pg_ctl", "-D", data, "-w", "-l", f"{folder}/log", "-o", how, "start")
        try:
            yield folder
        finally:
            call("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")


@pytest.fixture
def address(postgres: str) -> str:
    """The address of an empty schema on a server: made sooner than a database."""
    psycopg = pytest.importorskip("psycopg")
    name = f"t{secrets.token_hex(8)}"
    with psycopg.connect(host=postgres, user="tests", dbname="postgres", autocommit=True) as server:
        server.execute(f"CREATE SCHEMA {name}")
    return f"postgresql://tests@/postgres?host={postgres}&options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Path | str:
    """Where a registry can be made: a file, and a database on a server."""
    found: Path | str
    found = request.getfixturevalue("path" if request.param == "sqlite" else "address")
    return found


@pytest.fixture
def party(tmp_path: Path) -> Party:
    created = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
    key_file = tmp_path / "alice.key"
    KEY.write(key_file)
    return Party("alice", PAYLOAD, 16, 2, key_file, KEY.id, created)


@pytest.fixture
def change_records(home: Path) -> Callable[[bytes, bytes], None]:
    """Change bytes in all records of the registry."""

    def change(old: bytes, new: bytes) -> None:
        with Registry(home / "registry.sqlite") as known:
            for number, data in known._database.rows("SELECT number, data FROM record"):
                changed = packing.unpacked(data).to_bytes().replace(old, new)
                update = "UPDATE record SET data = ? WHERE number = ?"
                known._database.execute(update, (packing.packed(changed), number))

    return change


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Let torch use one core: its threads wait for each other on a busy machine."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
