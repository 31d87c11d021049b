"""C2PA manifests in files: signed into a recording, and read from one.

A manifest names the mark as a soft binding: the name of the algorithm, and the public identifier
that the recording spells. c2pa-python signs and validates. Nothing is fetched but, to sign, a time
stamp where a signer has an authority for it. Knows files: no audio, no networks, no registry.
"""

import importlib
import io
import json
import mmap
import re
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import keybound
from keybound.audio.metadata import c2pa as places
from keybound.errors import AudioError, KeyBoundError, KeyFileError, missing
from keybound.identity.identifier import ISSUER_BITS, written
from keybound.provenance.certificates import EXTRA, Signer
from keybound.provenance.declared import NOTHING, Declared
from keybound.provenance.manifest import DATA_MAX, Manifest

ALGORITHM = "org.keybound.identifier.1"
FORMATS = {
    "WAV": "audio/wav",
    "WAVEX": "audio/wav",
    "FLAC": "audio/flac",
    "MP3": "audio/mpeg",
    "M4A": "audio/mp4",
}
IPTC = "http://cv.iptc.org/newscodes/digitalsourcetype/"
SOURCE_TYPES = (
    *("trainedAlgorithmicMedia", "compositeWithTrainedAlgorithmicMedia", "algorithmicMedia"),
    *("compositeSynthetic", "composite", "humanEdits", "digitalCapture", "digitalCreation"),
)
STATES = {"Trusted": "trusted", "Valid": "valid"}
# What fails where the file is not the one that was signed, though the manifest is as it was.
CHANGED = {f"assertion.{kind}Hash.mismatch" for kind in ("data", "bmff", "boxes", "collection")}
EXPIRED = {"signingCredential.expired", "claimSignature.outsideValidity"}  # without a time stamp
UNTRUSTED = "signingCredential.untrusted"
# Extended key usages of a signer's certificate: signing of claims, of mail, of documents.
USAGES = ("1.3.6.1.4.1.62558.2.1", "1.3.6.1.5.5.7.3.4", "1.3.6.1.5.5.7.3.36")
SIGNED_HINT = "wav under 4 GB, flac, mp3 and m4a can be"
CERTIFICATE_HINT = (
    "it needs digital signature as key usage, an extended key usage of C2PA, and an issuer"
)
TEXT_MAX = 200
Named = tuple[int, int]  # the issuer and the serial of a public identifier


def binding(serial: int, issuer: int) -> str:
    """Return a public identifier as the value of a soft binding: 7.0123456789."""
    return f"{issuer}.{written(serial)}"


def parse_binding(value: str) -> Named | None:
    """Return issuer and serial from the value of a soft binding; None where it is another's."""
    found = re.fullmatch(r"(0|[1-9]\d{0,4})\.([0-9a-f]{10})", value)
    if found is None or int(found[1]) >> ISSUER_BITS:
        return None
    return int(found[1]), int(found[2], 16)


def media_type(kind: str) -> str:
    """Return the media type of a format as it is signed; raise an error where none can be."""
    if kind not in FORMATS:
        raise AudioError(f"{kind.lower()} cannot be signed with C2PA", hint=SIGNED_HINT)
    return FORMATS[kind]


# Signing


@dataclass(frozen=True)
class Signing:
    """How a file is signed: by whom, as what media type, and what the manifest says.

    `host` is the recording that was marked: a manifest in it becomes the parent of the new one.
    """

    signer: Signer
    kind: str
    source_type: str
    declared: Declared
    named: Named | None  # the identifier that the mark spells; None: too short for one
    host: Path | None = None

    def __call__(self, path: Path) -> Manifest:
        """Sign a file in place and return its manifest."""
        signed = path.with_name(f"signed{path.suffix}")
        with path.open("rb") as source, signed.open("w+b") as made:
            data = self._sign(source, made)
        signed.replace(path)
        found = read(path)
        if found is None or found.state != "valid" or found.id is None:
            raise AudioError(f"the manifest of {path} cannot be read back")
        if len(data) > DATA_MAX:
            what = f"with that of the host the C2PA manifest has more than {DATA_MAX} bytes"
            raise AudioError(what, hint="remove the metadata of the host first")
        return Manifest(found.id, data)

    def _sign(self, source: Any, made: Any) -> bytes:
        c2pa = _library()
        earlier = None if self.host is None else places.media_type(self.host)
        said = json.dumps(self.definition(parent=earlier is not None))
        one = self.signer
        info = c2pa.C2paSignerInfo(one.algorithm, one.certificates, one.key, one.stamped_by)
        try:
            with (
                _context(None) as own,
                c2pa.Signer.from_info(info) as signer,
                c2pa.Builder(said, own) as builder,
            ):
                if earlier is not None:
                    self._add_parent(builder, earlier)
                signed: bytes = builder.sign(signer, self.kind, source, made)
        except c2pa.C2paError as error:
            reason = " ".join(str(error).split())
            stamps, hint = "", CERTIFICATE_HINT
            if one.stamped_by is not None:
                stamps, hint = f" and time stamps of {one.stamped_by}", "does it without them?"
            what = f"c2pa does not sign with this certificate{stamps}: {reason}"
            raise KeyFileError(what, hint=hint) from error
        return signed

    def _add_parent(self, builder: Any, kind: str) -> None:
        """Make the manifest of the host the parent of the new one."""
        assert self.host is not None  # it has a manifest
        about = {"relationship": "parentOf", "label": "parent"}
        try:
            with self.host.open("rb") as before:
                builder.add_ingredient(about, kind, before)
        except _library().C2paError as error:
            what = f"the C2PA manifest of {self.host} cannot be read"
            raise AudioError(what, hint="remove its metadata first") from error

    def definition(self, *, parent: bool) -> dict[str, Any]:
        """Return what the manifest says, in the words of c2pa."""
        began: dict[str, Any] = {"action": "c2pa.created"}
        began["digitalSourceType"] = f"{IPTC}{self.source_type}"
        if parent:
            began = {"action": "c2pa.opened", "parameters": {"ingredientIds": ["parent"]}}
        elif self.declared.system is not None:
            system = {"name": self.declared.system, "version": self.declared.system_version}
            began["softwareAgent"] = {name: text for name, text in system.items() if text}
        marked = "c2pa.watermarked.unbound" if self.named is None else "c2pa.watermarked.bound"
        actions = {"actions": [began, {"action": marked}]}
        assertions: list[dict[str, Any]] = [{"label": "c2pa.actions.v2", "data": actions}]
        if self.named is not None:
            issuer, serial = self.named
            block = {"scope": {}, "value": binding(serial, issuer)}
            data = {"alg": ALGORITHM, "blocks": [block]}
            assertions.append({"label": "c2pa.soft-binding", "data": data})
        generator = {"name": "keybound", "version": keybound.__version__}
        return {"claim_generator_info": [generator], "assertions": assertions}


def check(signer: Signer) -> None:
    """Raise an error where c2pa does not sign with a certificate: known before the work."""
    silence = io.BytesIO()
    with wave.open(silence, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(2))
    silence.seek(0)
    tried = Signing(signer, FORMATS["WAV"], SOURCE_TYPES[0], NOTHING, None)
    tried._sign(silence, io.BytesIO())


# Reading


@dataclass(frozen=True)
class Found:
    """A manifest that a file carries, as far as the file itself tells.

    `state` is trusted (its signer is under a certificate that the caller trusts), valid (signature
    and hashes hold, the signer is whoever it says), expired (the same, but for the date of the
    certificate), changed (the file is not the one that was signed), broken (the manifest itself is
    not as it was signed), unreadable, or unread where c2pa-python is not installed.
    `named` are the public identifiers of its soft bindings. The texts are the signer's own words.
    """

    state: str
    id: str | None = None
    signer: str | None = None
    source_type: str | None = None
    named: tuple[Named, ...] = ()


def read(path: Path, anchors: str | None = None) -> Found | None:
    """Return the manifest in a file, validated; None where there is none.

    `anchors` are trusted certificates as PEM: without them no signer is trusted.
    """
    kind = places.media_type(path)
    if kind is None:
        return None
    try:
        c2pa = _library()
    except KeyBoundError:
        return Found("unread")
    try:
        with (
            _context(anchors) as own,
            path.open("rb") as file,
            c2pa.Reader(kind, file, context=own) as reader,
        ):
            return _found(json.loads(reader.json()))
    except c2pa.C2paError as error:
        return None if "ManifestNotFound" in str(error) else Found("unreadable")


def holds(path: Path, kept: Manifest) -> bool:
    """Return whether a file carries this very manifest."""
    with path.open("rb") as raw, mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(kept.data) >= 0


def _found(store: dict[str, Any]) -> Found:
    active = store.get("active_manifest")
    manifests: dict[str, Any] = store.get("manifests", {})
    own = manifests.get(active or "", {})
    failed = {one["code"] for one in store.get("validation_status", [])} - {UNTRUSTED}
    state = STATES.get(store.get("validation_state", ""), "broken")
    if state == "broken" and failed and failed <= CHANGED | EXPIRED:
        state = "changed" if failed & CHANGED else "expired"
    named = _named(own)
    if not named:  # of an earlier manifest, whose recording was edited
        named = tuple(one for manifest in manifests.values() for one in _named(manifest))
    who = own.get("signature_info") or {}
    names = [_text(who.get(name)) for name in ("common_name", "issuer")]
    signer = ", ".join(name for name in names if name) or None
    return Found(state, _text(active), signer, _source_type(own), named)


def _named(manifest: dict[str, Any]) -> tuple[Named, ...]:
    """Return the identifiers in the soft bindings of a manifest."""
    found = []
    for data in _assertions(manifest, "c2pa.soft-binding"):
        for block in _objects(data.get("blocks")) if data.get("alg") == ALGORITHM else []:
            one = parse_binding(str(block.get("value")))
            if one is not None and one not in found:
                found.append(one)
    return tuple(found)


def _source_type(manifest: dict[str, Any]) -> str | None:
    for data in _assertions(manifest, "c2pa.actions"):
        for action in _objects(data.get("actions")):
            if "digitalSourceType" in action:
                return _text(str(action["digitalSourceType"]).removeprefix(IPTC))
    return None


def _assertions(manifest: dict[str, Any], label: str) -> Iterator[dict[str, Any]]:
    for one in _objects(manifest.get("assertions")):
        if str(one.get("label", "")).startswith(label) and isinstance(one.get("data"), dict):
            yield one["data"]


def _objects(said: object) -> list[dict[str, Any]]:
    """Return the objects in a list of a manifest, which may hold anything."""
    return [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []


def _text(said: object) -> str | None:
    """Return a text of a manifest as far as it can be shown."""
    if not isinstance(said, str):
        return None
    return "".join(c for c in said[:TEXT_MAX] if c.isprintable()) or None


@contextmanager
def _context(anchors: str | None) -> Iterator[Any]:
    """Yield what c2pa signs and reads with: nothing is fetched, and only these are trusted."""
    c2pa = _library()
    verify = {"verify_trust": anchors is not None, "remote_manifest_fetch": False}
    trust = {"trust_config": "\n".join(USAGES)}
    if anchors is not None:
        trust["trust_anchors"] = anchors
    settings = {"verify": verify | {"ocsp_fetch": False}, "trust": trust}
    with c2pa.Settings.from_dict(settings) as chosen, c2pa.Context(chosen) as own:
        yield own


def _library() -> ModuleType:
    try:
        return importlib.import_module("c2pa")
    except ModuleNotFoundError as error:
        raise missing(error.name, EXTRA) from error
