"""The documents that say which layers make up which image: docker's ``manifest.json`` and the OCI index and manifests.

Formats: moby ``image/tarexport`` (``docker save``), and opencontainers/image-spec ``image-layout.md``, ``image-index.md``,
``manifest.md``, ``config.md``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table
from compatcheck.core.json_file import parse_json
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.textfile import decode_text
from compatcheck.core.units import MIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.collectors.image.blobs import Blobs

MAX_DESCRIPTORS = 1000
"""Manifests and indexes that are looked at in one input."""
MAX_LAYERS = 1000
"""Layers of one image; docker itself allows 127."""

MAX_ALL_LAYERS = 20_000
"""Layers that the images of one input name, together."""
MAX_BYTES = 64 * MIB
"""Documents that are parsed, those that are named again counted again."""

_DIGEST = re.compile(r"(sha256|sha512):([0-9a-f]{64}|[0-9a-f]{128})")
_EXAMPLES = 5
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


class LayerName(NamedTuple):
    """One layer as a manifest names it."""

    names: tuple[str, ...]
    """Where it may lie in the input."""
    digest: str | None
    """Of the blob."""
    diff_id: str | None = None
    """Of its content when expanded."""
    media_type: str = ""

    @property
    def label(self) -> str:
        """What to call it in a message."""
        return self.digest or self.diff_id or self.names[0]


class ImageConfig(NamedTuple):
    """What the configuration of an image says (OCI image specification, config.md); empty for a root directory."""

    architecture: str | None = None
    """``amd64``, ``arm64``: GOARCH."""
    os: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    """Variables of the process the image starts, in order; credentials are the reader's to remove when it shows them."""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    working_dir: str | None = None
    user: str | None = None


class Described(NamedTuple):
    """One image as its documents describe it."""

    name: str | None
    """Tag or name, where one is stated."""
    config: ImageConfig
    layers: tuple[LayerName, ...]
    platform: str | None = None
    """``linux/amd64``, as its index or configuration has it."""
    problems: tuple[str, ...] = ()
    is_choice: bool = False
    """Whether an index names it as one platform of several, of which not all need to be here."""


class Documents(NamedTuple):
    """What the documents of an input say."""

    images: tuple[Described, ...]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What is there or named beside them and is rightly not read."""


def read_documents(blobs: Blobs) -> Documents:
    """Find the images of an input.

    ``manifest.json`` comes first; an archive that has an OCI index too (docker since 25) lists the same images there, and
    those that only the index has are added.
    """
    found = _Found(blobs)
    found.read_docker()
    found.read_oci()
    return found.finish()


class _Found:
    """Images found so far."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.images: list[Described] = []
        self.problems: list[str] = []
        self._absent: list[str] = []
        """Platforms that an index names and whose manifest is not here."""
        self._others = 0
        """Manifests of what is no image: signatures, provenance, charts."""
        self._known: set[tuple[ImageConfig, tuple[str, ...]]] = set()
        self._bytes_left = MAX_BYTES
        self._layers_left = MAX_ALL_LAYERS

    def finish(self) -> Documents:
        """Return what was found.

        Of an image for several platforms docker saves the index as it is and the blobs of those platforms that were
        pulled (containerd ``archive.WithSkipMissing``), and signatures lie beside images: neither is damage, unless nothing
        else is there.
        """
        left = []
        if self._absent:
            shown = ", ".join(self._absent[:_EXAMPLES])
            more = f" and {len(self._absent) - _EXAMPLES} more" if len(self._absent) > _EXAMPLES else ""
            verb = "is" if len(self._absent) == 1 else "are"
            left.append(f"{shown}{more} {verb} in the index, but not in the archive")
        if self._others:
            left.append("holds something else than an image (a signature, a chart or a model), which was passed over")
        if self.images:
            return Documents(tuple(self.images), tuple(self.problems), tuple(left))
        return Documents((), (*self.problems, *left))

    def read_docker(self) -> None:
        """Read ``manifest.json``: a list of images in an archive of docker, or the one manifest of ``skopeo … dir:``."""
        document = self._load("manifest.json")
        if isinstance(document, dict):
            self._add_manifest(document, None, None)
            return
        for item in _list(document)[:MAX_DESCRIPTORS]:
            if not isinstance(item, dict) or not isinstance(item.get("Layers"), list):
                self.problems.append("manifest.json has an entry that describes no image")
                continue
            problems = []
            raw = self._load(item["Config"]) if isinstance(item.get("Config"), str) else None
            if not isinstance(raw, dict):
                problems.append("its configuration is missing or malformed: environment and entry point are not known")
                raw = {}
            diff_ids = _diff_ids(raw)
            names = _strings(item["Layers"])[:MAX_LAYERS]
            if nameless := len(item["Layers"]) - len(_strings(item["Layers"])):
                one = "has no name and was" if nameless == 1 else "have no name and were"
                problems.append(f"{nameless} of its layers in manifest.json {one} not read")
            layers = tuple(
                LayerName((name,), _blob_digest(name), diff_ids[index] if index < len(diff_ids) else None)
                for index, name in enumerate(names)
            )
            tags = _strings(item.get("RepoTags"))
            self._add(Described(tags[0] if tags else None, _config(raw), layers, _platform(raw), tuple(problems)))

    def read_oci(self) -> None:
        """Read ``index.json`` and what it leads to."""
        index = self._load("index.json")
        waiting: list[tuple[object, str | None]] = [(descriptor, None) for descriptor in _manifests(index)]
        waiting.reverse()
        seen: set[str] = set()
        while waiting:
            descriptor, name = waiting.pop()
            if not isinstance(descriptor, dict) or not isinstance(descriptor.get("digest"), str):
                self.problems.append("an index has an entry without a digest")
                continue
            digest = descriptor["digest"]
            annotations = as_table(descriptor.get("annotations"))
            name = next((text for key in _NAMES if (text := _text(annotations.get(key)))), name)
            platform = _platform(as_table(descriptor.get("platform")))
            # Provenance and SBOMs that buildkit attaches have the platform unknown/unknown; the annotation alone hides no image.
            attached = annotations.get("vnd.docker.reference.type") == "attestation-manifest" and platform is None
            if digest in seen or attached or platform == "unknown/unknown":
                continue
            if len(seen) >= MAX_DESCRIPTORS:
                self.problems.append(f"names more than {MAX_DESCRIPTORS:,} manifests; the rest was not looked at")
                return
            seen.add(digest)
            document = self._load(*blob_names(digest))
            if document is None and platform is not None:
                self._absent.append(platform)
            elif document is None:
                self.problems.append(f"an image ({digest[:80]}) is in the index, but not in the archive")
            elif isinstance(document, dict) and isinstance(document.get("manifests"), list):
                below = _manifests(document)[: max(0, MAX_DESCRIPTORS - len(waiting))]
                waiting += [(one, name) for one in reversed(below)]
            elif isinstance(document, dict):
                self._add_manifest(document, name, platform)
            else:
                self.problems.append(f"the manifest {digest[:80]} is malformed")

    def _add_manifest(self, manifest: Mapping[str, object], name: str | None, platform: str | None) -> None:
        descriptors = manifest.get("layers")
        if not isinstance(descriptors, list):
            self.problems.append("a manifest names no layers: it is of no image, or of one from before 2016 (schema 1)")
            return
        problems = []
        config_digest = as_table(manifest.get("config")).get("digest")
        raw = self._load(*blob_names(config_digest)) if isinstance(config_digest, str) else None
        if not isinstance(raw, dict):
            problems.append("its configuration is missing or malformed: environment and entry point are not known")
            raw = {}
        elif _is_no_image(raw, descriptors):
            self._others += 1
            return
        diff_ids = _diff_ids(raw)
        layers = []
        for index, descriptor in enumerate(descriptors[:MAX_LAYERS]):
            digest = as_table(descriptor).get("digest")
            media_type = as_table(descriptor).get("mediaType")
            if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
                problems.append(f"layer {index + 1} has no digest that can be looked up")
                continue
            layers.append(
                LayerName(
                    blob_names(digest),
                    digest,
                    diff_ids[index] if index < len(diff_ids) else None,
                    media_type if isinstance(media_type, str) else "",
                )
            )
        is_choice = platform is not None
        words = _platform(raw) or platform
        self._add(Described(name, _config(raw), tuple(layers), words, tuple(problems), is_choice))

    def _add(self, image: Described) -> None:
        if len(image.layers) == MAX_LAYERS:
            image = image._replace(
                problems=(*image.problems, f"has more than {MAX_LAYERS:,} layers; the rest was left out")
            )
        # Both manifests of an archive describe one image where they lead to the same bytes; a diff id is only stated.
        key = (image.config, tuple(layer.names[0] for layer in image.layers))
        if key in self._known and image.layers:
            return
        self._layers_left -= len(image.layers)
        if self._layers_left < 0:
            self._say(f"names more than {MAX_ALL_LAYERS:,} layers; the rest was not looked at")
            return
        self._known.add(key)
        self.images.append(image)

    def _say(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _load(self, *names: str) -> object:
        for name in names:
            data = self._blobs.read_document(name)
            if data is None:
                continue
            self._bytes_left -= len(data)
            if self._bytes_left < 0:
                self._say(f"has documents of more than {format_bytes(MAX_BYTES)}; the rest was not looked at")
                return None
            if not _has_digest(data, name):
                self._say(f"{name[:80]} does not have the digest that it is stored under: damaged or forged")
                return None
            try:
                return parse_json(decode_text(data, name), name)
            except InputError as error:
                self.problems.append(f"{name[:80]} {error.message}")
                return None
        return None


def _is_no_image(raw: Mapping[str, object], descriptors: list[object]) -> bool:
    """Tell whether a manifest is of a signature, provenance, a chart or a model: no layer of it is said to be an archive.

    Signatures of cosign and provenance of buildkit have the configuration of an image.
    """
    types = [as_table(one).get("mediaType") for one in descriptors]
    if any(isinstance(text, str) and re.search(r"\.tar\b|\blayer\b|rootfs", text) for text in types):
        return False
    return "rootfs" not in raw or (bool(types) and all(isinstance(text, str) for text in types))


def blob_names(digest: str) -> tuple[str, ...]:
    """Return where the blob of a digest may lie: in an OCI layout, or in what ``skopeo copy … dir:`` writes."""
    match = _DIGEST.fullmatch(digest)
    return (f"blobs/{match[1]}/{match[2]}", match[2]) if match else ()


def _has_digest(data: bytes, name: str) -> bool:
    """Tell whether a document is what its name says, where that is a digest: then something else named it by it."""
    import hashlib  # noqa: PLC0415 (not where the documents of an archive of docker have other names)

    match = re.fullmatch(r"(?:blobs/(sha256|sha512)/)?([0-9a-f]{64}(?:[0-9a-f]{64})?)", name)
    if match is None:
        return True
    algorithm = match[1] or ("sha256" if len(match[2]) == 64 else "sha512")
    return hashlib.new(algorithm, data, usedforsecurity=False).hexdigest() == match[2]


def _blob_digest(name: str) -> str | None:
    parts = name.split("/")
    digest = ":".join(parts[-2:])
    return digest if len(parts) > 2 and parts[-3] == "blobs" and _DIGEST.fullmatch(digest) else None


def _config(raw: Mapping[str, object]) -> ImageConfig:
    run = as_table(raw.get("config"))
    variables = (variable.partition("=") for variable in _strings(run.get("Env")))
    return ImageConfig(
        _text(raw.get("architecture")),
        _text(raw.get("os")),
        tuple((name, value) for name, equals, value in variables if equals and name),
        _strings(run.get("Entrypoint")),
        _strings(run.get("Cmd")),
        _text(run.get("WorkingDir")),
        _text(run.get("User")),
    )


def _platform(raw: Mapping[str, object]) -> str | None:
    parts = [part for part in map(_text, (raw.get("os"), raw.get("architecture"), raw.get("variant"))) if part]
    return "/".join(parts) if len(parts) > 1 else None


def _diff_ids(raw: Mapping[str, object]) -> tuple[str, ...]:
    return _strings(as_table(raw.get("rootfs")).get("diff_ids"))


def _manifests(index: object) -> list[object]:
    return _list(as_table(index).get("manifests"))[:MAX_DESCRIPTORS]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _strings(value: object) -> tuple[str, ...]:
    items: Iterable[object] = [value] if isinstance(value, str) else _list(value)
    return tuple(item for item in items if isinstance(item, str))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
