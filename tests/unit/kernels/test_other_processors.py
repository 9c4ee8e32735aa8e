"""The kernels on processors that this machine does not have, as QEMU imitates them."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import crc32c
import pytest

from kcompact.kernels import build
from kcompact.kernels.signatures import KERNELS
from kcompact.kernels.target import TARGETS

AARCH64 = shutil.which("qemu-aarch64-static")
X86_64 = shutil.which("qemu-x86_64-static")
BYTES = 100_003
PROGRAM = """
#include <stdint.h>
#include <stdio.h>
PROTOTYPES
int64_t kcompact_fits(void);
static uint8_t data[BYTES], message[64];
int main(void) {
    int64_t results[2];
    printf("%lld\\n", (long long)kcompact_fits());
    for (int at = 0; at < BYTES; at++) data[at] = (uint8_t)(at * 2654435761u >> 13);
    kcompact_crc32c(data, BYTES, 0, BYTES, results);
    printf("%lld\\n", (long long)results[0]);
    for (int at = 0; at < 64; at++) {
        message[at] = (uint8_t)at;
        kcompact_siphash128(message, 64, 0, at, 0x0706050403020100u, 0x0f0e0d0c0b0a0908u, 1, 3, results);
        for (int byte = 0; byte < 16; byte++) printf("%02x", ((uint8_t *)results)[byte]);
    }
    return 0;
}
"""

WITHOUT_NUMPY = (
    "from unittest import mock; sys.modules |= {name: mock.MagicMock() for name in ('numpy', 'numpy.typing')}; "
    "from kcompact import kernels"
)


@pytest.mark.slow
@pytest.mark.skipif(AARCH64 is None, reason="needs qemu-aarch64-static (package qemu-user-static)")
def test_aarch64(tmp_path: Path) -> None:
    """The checksum is the library's; the hashes are those of `test_kernel_hashes`, published with Rust."""
    prototypes = "\n".join(KERNELS[name].c_prototype(name) for name in ("crc32c", "siphash128"))
    source, kernels, program = tmp_path / "program.c", tmp_path / "kernels.o", tmp_path / "program"
    source.write_text(PROGRAM.replace("PROTOTYPES", prototypes).replace("BYTES", str(BYTES)))
    kernels.write_bytes(build.object_file(build.compiled_ir(), TARGETS["aarch64"]))
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static"]
    subprocess.run([*compiler, "-o", program, source, kernels], check=True)
    assert AARCH64 is not None
    done = subprocess.run([AARCH64, program], check=True, capture_output=True, text=True)
    fits, checksum, hashes = done.stdout.splitlines()
    data = bytes((at * 2654435761 & 0xFFFFFFFF) >> 13 & 0xFF for at in range(BYTES))
    assert (fits, int(checksum)) == ("1", crc32c.crc32c(data))
    assert (
        hashlib.sha256(bytes.fromhex(hashes)).hexdigest()
        == "58cbba5178d829c27ef56e1b54bdf3db60957320e97f2fd6c8b270a7eecc0cca"
    )


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="starts this interpreter")
@pytest.mark.skipif(X86_64 is None, reason="needs qemu-x86_64-static (package qemu-user-static)")
@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        (
            "core2duo",
            "none: machine code: this processor lacks the instructions of x86-64-v2 (SSE 4.2 and POPCNT)",
        ),
        ("Nehalem", "machine code for x86-64-v2 (SSE 4.2 and POPCNT)"),
    ],
)
def test_x86_64_of_other_years(processor: str, expected: str) -> None:
    """The first one is of 2006, the second one of 2008. On the first one numpy itself ends the process."""
    assert X86_64 is not None
    interpreter = str(Path(sys.executable).resolve())
    root = Path(__file__).parents[3]
    program = f"import sys; sys.path.insert(0, {str(root)!r}); {WITHOUT_NUMPY}; print(kernels.state())"
    done = subprocess.run(
        [X86_64, "-cpu", processor, interpreter, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == expected
