"""Images written by hand in the forms that docker save (moby image/tarexport) and the OCI image specification describe."""

import gzip
import hashlib
import io
import json
import tarfile

from compatcheck.collectors.image.archive import open_images


def open_image(path, *, cache):
    """Open the first image at a path."""
    return open_images(path, cache=cache)[0]


class To(str):
    """Target of a symbolic link."""

    __slots__ = ()


class Same(str):
    """Target of a hard link."""

    __slots__ = ()


class Device:
    """A character device."""


def tar(files, *, form=tarfile.PAX_FORMAT, modified=1_700_000_000):
    """Write a tar archive: pairs or a mapping of name → text, bytes, `To`, `Same` or `Device`; a directory ends in a slash."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, content in files.items() if isinstance(files, dict) else files:
            archive.addfile(*member(name, content, modified))
    return buffer.getvalue()


def member(name, content=b"", modified=1_700_000_000):
    info = tarfile.TarInfo(name)
    info.mtime = modified
    if isinstance(content, To | Same):
        info.type, info.linkname = tarfile.SYMTYPE if isinstance(content, To) else tarfile.LNKTYPE, str(content)
        return info, None
    if isinstance(content, Device):
        info.type = tarfile.CHRTYPE
        return info, None
    if name.endswith("/"):
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        return info, None
    data = content.encode() if isinstance(content, str) else content
    info.size = len(data)
    return info, io.BytesIO(data)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def config(layers, run=None, **more):
    """Return the configuration of an image of uncompressed layers."""
    return json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": "2026-11-21T00:00:00Z",
            "config": run or {},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest(layer)}" for layer in layers]},
            **more,
        }
    ).encode()


def docker_files(layers, *, form="blobs", run=None, tags=("train:1",), stored=None, **more):
    """Return the members of a docker archive of one image, in the order docker writes them.

    Args:
        layers: uncompressed layers.
        form: ``blobs`` (docker 25 and later), ``legacy`` (a directory for each layer; one that is there twice is a link to
            the first) or ``podman`` (``DIFFID.tar``).
        run: ``config`` of the configuration: Env, Cmd, Entrypoint.
        tags: repository tags.
        stored: layers as they lie in the archive, where they are compressed.
        more: further keys of the configuration.
    """
    data = config(layers, run, **more)
    files, names = [], []
    for number, layer in enumerate(stored or layers):
        if form == "blobs":
            names.append(f"blobs/sha256/{digest(layer)}")
            files.append((names[-1], layer))
        elif form == "podman":
            names.append(f"{digest(layers[number])}.tar")
            files.append((names[-1], layer))
        else:
            folder = digest(f"{number}".encode())
            names.append(f"{folder}/layer.tar")
            first = layers.index(layers[number])
            content = To(f"../{names[first]}") if first < number else layer
            files += [(f"{folder}/", b""), (f"{folder}/VERSION", "1.0"), (f"{folder}/json", "{}"), (names[-1], content)]
    name = f"blobs/sha256/{digest(data)}" if form == "blobs" else f"{digest(data)}.json"
    manifest = [{"Config": name, "RepoTags": list(tags) or None, "Layers": names}]
    return [*files, (name, data), ("manifest.json", json.dumps(manifest)), ("repositories", "{}")]


def docker_archive(path, layers, **options):
    path.write_bytes(tar(docker_files([as_tar(layer) for layer in layers], **options)))
    return str(path)


def as_tar(layer):
    return layer if isinstance(layer, bytes) else tar(layer)


def oci_files(images, *, media="application/vnd.oci.image.layer.v1.tar"):
    """Return the files of an OCI layout.

    Args:
        images: for each, its layers (uncompressed), layers as stored, tag, platform ``os/architecture`` and whether its blobs
            are there.
        media: media type of the layers, with ``+gzip`` or ``+zstd``.
    """
    blobs, manifests = {}, []

    def add(data, kind, *, there=True):
        if there:
            blobs[f"blobs/sha256/{digest(data)}"] = data
        return {"mediaType": kind, "digest": f"sha256:{digest(data)}", "size": len(data)}

    for layers, stored, tag, platform, there in images:
        system, architecture = platform.split("/")
        data = config(layers, {"Env": ["A=1"]}, os=system, architecture=architecture)
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": add(data, "application/vnd.oci.image.config.v1+json", there=there),
            "layers": [add(layer, media, there=there) for layer in stored],
        }
        descriptor = add(json.dumps(manifest).encode(), manifest["mediaType"], there=there)
        descriptor["platform"] = {"os": system, "architecture": architecture}
        descriptor["annotations"] = {"org.opencontainers.image.ref.name": tag}
        manifests.append(descriptor)
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}
    return {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode(), **blobs}


def write_files(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return str(folder)


def squeeze(data):
    return gzip.compress(data, 6, mtime=0)


def zstd_frame(data):
    """Return a zstd frame of uncompressed blocks (RFC 8878), which takes no compressor to write."""
    blocks = [data[start : start + 2**16] for start in range(0, len(data), 2**16)] or [b""]
    frame = b"\x28\xb5\x2f\xfd" + b"\xa0" + len(data).to_bytes(4, "little")
    for number, block in enumerate(blocks):
        frame += (len(block) << 3 | (number == len(blocks) - 1)).to_bytes(3, "little") + block
    return frame


def dist(site, name, version):
    """Return the metadata of a distribution."""
    return {
        f"{site}/{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nText\n",
        f"{site}/{name}-{version}.dist-info/INSTALLER": "pip\n",
    }


def listing(tree, path="/"):
    """Return every path of an image with what is there: None for a directory, the target of a link, content or size."""
    found = {}
    for name in tree.list_names(path):
        below = f"{path.rstrip('/')}/{name}"
        target = tree.read_link(below)
        if target is not None:
            found[below] = f"-> {target}"
        elif tree.is_directory(below):
            found[below] = None
            found.update(listing(tree, below))
        else:
            found[below] = _content(tree, below)
    return found


UNKNOWN = "neither content nor size"


def _content(tree, path):
    for read in (tree.read_bytes, tree.size_bytes):
        try:
            return read(path)
        except OSError:
            continue
    return UNKNOWN
