"""The processors that the kernels are compiled for, as data.

`support` is LLVM's text of two functions that differ between processors. `kcompact_crc_step` continues a CRC-32C with
eight bytes; every kernel that calls it gets it inlined. `kcompact_fits` returns whether the processor has the
instructions that the machine code uses; it uses none of them itself.
"""

from __future__ import annotations

from kcompact.values import dataclass

CRC_STEP = "kcompact_crc_step"
FITS = "kcompact_fits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A kind of processor. `triple`, `cpu` and `features` are LLVM's words for it; `instructions` is said to people."""

    triple: str
    cpu: str
    features: str
    instructions: str
    support: str


# The bits of ECX after CPUID 1 are SSE3, SSSE3, CX16, SSE4.1, SSE4.2 and POPCNT; after CPUID 0x80000001 it is LAHF.
_X86_64 = """
declare i64 @llvm.x86.sse42.crc32.64.64(i64, i64)

define i64 @kcompact_crc_step(i64 %crc, i64 %word) alwaysinline nounwind {
  %next = call i64 @llvm.x86.sse42.crc32.64.64(i64 %crc, i64 %word)
  ret i64 %next
}

define i64 @kcompact_fits() nounwind {
  %basic = call {i32, i32, i32, i32} asm "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}"(i32 1, i32 0)
  %found = extractvalue {i32, i32, i32, i32} %basic, 2
  %needed = and i32 %found, 9970177
  %has_needed = icmp eq i32 %needed, 9970177
  %extended = call {i32, i32, i32, i32} asm "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}"(i32 -2147483647, i32 0)
  %more = extractvalue {i32, i32, i32, i32} %extended, 2
  %lahf = and i32 %more, 1
  %has_lahf = icmp eq i32 %lahf, 1
  %fits = and i1 %has_needed, %has_lahf
  %result = zext i1 %fits to i64
  ret i64 %result
}
"""

# getauxval(AT_HWCAP) has the bit HWCAP_CRC32.
_AARCH64 = """
declare i32 @llvm.aarch64.crc32cx(i32, i64)
declare i64 @getauxval(i64)

define i64 @kcompact_crc_step(i64 %crc, i64 %word) alwaysinline nounwind {
  %before = trunc i64 %crc to i32
  %after = call i32 @llvm.aarch64.crc32cx(i32 %before, i64 %word)
  %next = zext i32 %after to i64
  ret i64 %next
}

define i64 @kcompact_fits() nounwind {
  %capabilities = call i64 @getauxval(i64 16)
  %shifted = lshr i64 %capabilities, 7
  %result = and i64 %shifted, 1
  ret i64 %result
}
"""

TARGETS = {
    "x86_64": Target(
        triple="x86_64-unknown-linux-gnu",
        cpu="x86-64-v2",
        features="",
        instructions="x86-64-v2 (SSE 4.2 and POPCNT)",
        support=_X86_64,
    ),
    "aarch64": Target(
        triple="aarch64-unknown-linux-gnu",
        cpu="generic",
        features="+crc",
        instructions="ARMv8 with CRC32",
        support=_AARCH64,
    ),
}
"""By the name that `uname -m` has for the processor."""
