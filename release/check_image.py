"""Try an OCI image layout: python -m release.check_image TAR

skopeo reads it. Then its digests are compared, its layers unpacked, and what it says is run there as a user without a
name, on files that are read-only but for one volume. It does what the checkout does (`acceptance`). Needs root.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from release import acceptance, tarball
from release.bare_host import USER, BareHost, give_away, read_only

VOLUME = "/volume"


def blob(layout: Path, descriptor: Mapping[str, Any]) -> bytes:
    """Return a blob. Raises NotAcceptedError if it is not what its descriptor says."""
    algorithm, digest = str(descriptor["digest"]).split(":")
    content = (layout / "blobs" / algorithm / digest).read_bytes()
    if (len(content), hashlib.sha256(content).hexdigest()) != (descriptor["size"], digest):
        raise acceptance.NotAcceptedError(f"{digest} is not what its descriptor says")
    return content


def unpack(layout: Path, root: Path) -> dict[str, Any]:
    """Unpack the only image of a layout. Return its configuration. Raises NotAcceptedError."""
    (descriptor,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    manifest = json.loads(blob(layout, descriptor))
    config: dict[str, Any] = json.loads(blob(layout, manifest["config"]))
    for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        content = gzip.decompress(blob(layout, layer))
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != diff_id:
            raise acceptance.NotAcceptedError(f"{layer['digest']} has not the content {diff_id}")
        with tempfile.TemporaryFile() as file:
            file.write(content)
            file.seek(0)
            with tarfile.open(fileobj=file) as tar:
                tarball.unpack(tar, root)
    return config


def main() -> None:
    """Try it, and say what was measured."""
    parser = argparse.ArgumentParser(description="try an OCI image layout")
    parser.add_argument("image", type=Path, help="the tar of a layout")
    image = parser.parse_args().image
    if os.geteuid() != 0:
        sys.exit("run it as root: it changes the root directory of the commands that it runs")
    with tempfile.TemporaryDirectory() as scratch:
        layout, root, expected = (Path(scratch) / name for name in ("layout", "root", "checkout"))
        expected.mkdir()
        copy = ["skopeo", "copy", "--quiet", "--insecure-policy", "--preserve-digests"]
        subprocess.run([*copy, f"oci-archive:{image}", f"oci:{layout}"], check=True)
        try:
            config = unpack(layout, root)["config"]
            if config["User"] != f"{USER}:{USER}":
                raise acceptance.NotAcceptedError(f"runs as {config['User']}")
            host = BareHost(root=root, env=dict(each.split("=", 1) for each in config["Env"]))
            volume = root / VOLUME.lstrip("/")
            volume.mkdir()
            give_away(volume)
            (program,) = config["Entrypoint"]
            with read_only(root, except_for=volume):
                acceptance.check(host, program, VOLUME, expected)
                cpu_s = acceptance.start_cpu_s(host, program)
        except acceptance.NotAcceptedError as problem:
            sys.exit(f"{image}: {problem}")
    size = image.stat().st_size
    print(f"{image}: {size / 1e6:.1f} MB, as good as the checkout on read-only files")
    print(f"--version takes {cpu_s:.2f} s of processors")


if __name__ == "__main__":
    main()
